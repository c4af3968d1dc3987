package configurator

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// interner keeps one object per list of policies (a profile), per list of rules
// and per derived set, and counts who uses them. What nobody uses is dropped.
type interner struct {
	allowNode bool

	numbers       map[*api.ContivPolicy]*policyNumber
	lastUsed      uint64 // number of a policy
	bySlice       map[sliceID]*profile
	byKey         map[string]*profile
	lists         map[listKey]*list
	pairs         int // sum of the pairs of profiles
	derived       derivedSets
	closedProfile *profile              // of new pods that wait, nil before there was one
	refusing      map[*list]struct{}    // lists in which something is refused
	refusals      []renderer.Unenforced // of these; nil: to be made anew
}

// policyNumber stands for a policy in keys of profiles.
type policyNumber struct {
	n    uint64
	uses int // by profiles
}

func newInterner(allowNode bool) *interner {
	return &interner{
		allowNode: allowNode,
		numbers:   map[*api.ContivPolicy]*policyNumber{},
		bySlice:   map[sliceID]*profile{},
		byKey:     map[string]*profile{},
		lists:     map[listKey]*list{},
		derived:   newDerivedSets(),
		refusing:  map[*list]struct{}{},
	}
}

// acquire returns the profile of some policies, and of those of pods that share an address, and
// counts a use of it. taken reports whether the ID of a derived set stands for something else. A
// new list with more pairs than limit returns is closed, for the reason that it returns.
func (in *interner) acquire(policies []*api.ContivPolicy, shared []api.Sharing, taken func(api.SetID) bool, limit func() (pairs int, why string)) *profile {
	slice := idOfSlice(policies)
	if p := in.bySlice[slice]; p != nil && len(shared) == 0 {
		p.uses++
		return p
	}
	policies = canonical(policies)
	key, known := in.keyOf(policies, shared)
	if known {
		if p := in.byKey[key]; p != nil {
			p.uses++
			return p
		}
	}
	p := &profile{policies: policies, shared: shared, slice: slice, uses: 1}
	p.key = in.number(p)
	most, why := limit()
	for _, d := range []api.Direction{api.Ingress, api.Egress} {
		p.pairs[d] = p.pairsOf(d, ofTenants)
		in.pairs += p.pairs[d]
		if p.pairs[d] > most {
			in.fill(p, d, why, taken)
		} else {
			in.fill(p, d, "", taken)
		}
	}
	if in.byKey[p.key] = p; len(shared) == 0 {
		in.bySlice[p.slice] = p
	}
	return p
}

// fill generates a list of a profile, or closes it for a reason.
func (in *interner) fill(p *profile, d api.Direction, why string, taken func(api.SetID) bool) {
	p.why[d] = why
	p.lists[d] = in.acquireList(generateOrClose(why, d, p.policies, in.allowNode, p.shared...), taken)
}

// keyOf returns the key of the profile of some policies, false if one of them is
// in no profile, so that there is none. No policy has the number 0, which stands before
// what is shared.
func (in *interner) keyOf(policies []*api.ContivPolicy, shared []api.Sharing) (string, bool) {
	key, ok := in.appendNumbers(make([]byte, 0, 8*len(policies)), policies)
	for _, s := range shared {
		key = binary.BigEndian.AppendUint64(key, 0)
		key = fmt.Appendf(key, "%t %s %t %s;", s.Before, s.Apart, s.Elsewhere, s.Node)
		var known bool
		key, known = in.appendNumbers(key, s.Policies)
		ok = ok && known
	}
	return string(key), ok
}

func (in *interner) appendNumbers(key []byte, policies []*api.ContivPolicy) ([]byte, bool) {
	for _, p := range policies {
		number := in.numbers[p]
		if number == nil {
			return key, false
		}
		key = binary.BigEndian.AppendUint64(key, number.n)
	}
	return key, true
}

// number gives numbers to the policies of a profile that have none, counts a use of
// all, and returns the key.
func (in *interner) number(p *profile) string {
	for policy := range p.all() {
		if in.numbers[policy] == nil {
			in.lastUsed++
			in.numbers[policy] = &policyNumber{n: in.lastUsed}
		}
		in.numbers[policy].uses++
	}
	key, _ := in.keyOf(p.policies, p.shared)
	return key
}

// release takes back one use of a profile.
func (in *interner) release(p *profile) {
	if p.uses--; p.uses > 0 {
		return
	}
	if in.bySlice[p.slice] == p {
		delete(in.bySlice, p.slice)
	}
	delete(in.byKey, p.key)
	for policy := range p.all() {
		number := in.numbers[policy]
		if number.uses--; number.uses == 0 {
			delete(in.numbers, policy)
		}
	}
	for d, l := range p.lists {
		in.releaseList(l)
		in.pairs -= p.pairs[d]
	}
}

// acquireList returns the one list that equals g, nil for nil.
func (in *interner) acquireList(g *generated, taken func(api.SetID) bool) *list {
	if g == nil {
		return nil
	}
	g.refuse(func(s addressSet) bool {
		other := in.derived.byID[s.id]
		return taken(s.id) || other != nil && !s.equal(other.addressSet)
	})
	rules := renderer.NewRuleList(g.rules, g.origins)
	key := listKey{rules.Digest(), digestOrigins(g.origins, g.refused)}
	l := in.lists[key]
	if l == nil {
		l = &list{key: key, rules: rules, refused: g.refused}
		in.noteRefused(l, true)
		for _, s := range g.sets {
			l.sets = append(l.sets, s.id)
			in.derived.use(s)
		}
		in.lists[key] = l
	}
	l.uses++
	return l
}

func (in *interner) releaseList(l *list) {
	if l == nil {
		return
	}
	if l.uses--; l.uses > 0 {
		return
	}
	delete(in.lists, l.key)
	in.noteRefused(l, false)
	for _, id := range l.sets {
		in.derived.release(id)
	}
}

// closedRules deny everything. They stand for the rules that a new pod waits for.
var closedRules = renderer.NewRuleList([]api.ContivRule{{}}, nil)

// closed returns the profile of a pod that waits for its first rules.
func (in *interner) closed() *profile {
	if in.closedProfile == nil {
		l := &list{key: listKey{rules: closedRules.Digest()}, rules: closedRules, uses: 2}
		in.closedProfile = &profile{lists: [2]*list{l, l}, uses: 1} // it is never released
	}
	in.closedProfile.uses++
	return in.closedProfile
}

// hasParts reports whether a list names a set that is made of others.
func (in *interner) hasParts(l *list) bool {
	return l != nil && slices.ContainsFunc(l.sets, func(id api.SetID) bool { return len(in.derived.byID[id].parts()) > 0 })
}

// noteRefused keeps which lists refuse something.
func (in *interner) noteRefused(l *list, used bool) {
	if len(l.refused) == 0 {
		return
	}
	if in.refusals = nil; used {
		in.refusing[l] = struct{}{}
	} else {
		delete(in.refusing, l)
	}
}

// unenforced returns what lists in use refuse, sorted; the same slice as long as it is
// the same.
func (in *interner) unenforced() []renderer.Unenforced {
	if in.refusals != nil || len(in.refusing) == 0 {
		return in.refusals
	}
	for l := range in.refusing {
		for _, r := range l.refused {
			for _, o := range r.origins {
				in.refusals = append(in.refusals, renderer.Unenforced{Origin: o, Class: api.ClassLimit, Reason: r.reason})
			}
		}
	}
	in.refusals = renderer.SortUnenforced(in.refusals)
	return in.refusals
}
