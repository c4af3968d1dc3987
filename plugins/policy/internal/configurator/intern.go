package configurator

import (
	"encoding/binary"
	"fmt"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// interner keeps one object per list of policies (a profile), per list of rules and per derived
// set, and counts references to them. It drops unused ones. These are no memos that could be left
// out: a list of rules is identical for all pods that have it, and a renderer compares pointers.
type interner struct {
	allowNode bool

	numbers  map[*api.ContivPolicy]*policyNumber
	lastUsed uint64 // last number given to a policy
	byKey    map[string]*profile
	lists    map[listKey]*list
	derived  derivedSets
	refusing map[*list]struct{}    // lists in which something is refused
	refusals []renderer.Unenforced // of these; nil: to be rebuilt
}

// policyNumber represents a policy in keys of profiles.
type policyNumber struct {
	n    uint64
	uses int // number of profiles
}

func newInterner(allowNode bool) *interner {
	return &interner{
		allowNode: allowNode,
		numbers:   map[*api.ContivPolicy]*policyNumber{},
		byKey:     map[string]*profile{},
		lists:     map[listKey]*list{},
		derived:   newDerivedSets(),
		refusing:  map[*list]struct{}{},
	}
}

// acquire returns the profile of some policies, and of those of pods that share an address, and
// adds a reference to it. taken reports whether the ID of a derived set is already used for another
// set.
func (in *interner) acquire(policies []*api.ContivPolicy, shared []api.Sharing, taken func(api.SetID) bool) *profile {
	policies = canonical(policies)
	key, known := in.keyOf(policies, shared)
	if known {
		if p := in.byKey[key]; p != nil {
			p.uses++
			return p
		}
	}
	p := &profile{policies: policies, shared: shared, uses: 1}
	p.key = in.number(p)
	for _, d := range []api.Direction{api.Ingress, api.Egress} {
		p.lists[d] = in.intern(finish(generate(d, p.policies, in.allowNode, shared...)), taken)
	}
	in.byKey[p.key] = p
	return p
}

// keyOf returns the key of the profile of some policies; it returns false if one of them is in no
// profile, so that the profile does not exist. No policy has the number 0, which separates the
// shared part.
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

// number assigns numbers to the policies of a profile that have none, adds a reference to each, and
// returns the key.
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

// release drops one reference to a profile.
func (in *interner) release(p *profile) {
	if p.uses--; p.uses > 0 {
		return
	}
	delete(in.byKey, p.key)
	for policy := range p.all() {
		number := in.numbers[policy]
		if number.uses--; number.uses == 0 {
			delete(in.numbers, policy)
		}
	}
	for _, l := range p.lists {
		in.releaseList(l)
	}
}

// intern returns the one list that equals g; it returns nil for nil.
func (in *interner) intern(g *finished, taken func(api.SetID) bool) *list {
	if g == nil {
		return nil
	}
	if g.refuse(func(s addressSet) bool {
		other := in.derived.byID[s.id]
		return taken(s.id) || other != nil && !s.equal(other.addressSet)
	}) {
		g = finish(g.generated)
	}
	l := in.lists[g.key]
	if l == nil {
		l = &list{key: g.key, rules: g.rules, refused: g.refused}
		in.noteRefused(l, true)
		for _, s := range g.sets {
			l.sets = append(l.sets, s.id)
			in.derived.use(s)
		}
		in.lists[g.key] = l
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

// noteRefused records whether a list refuses something.
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

// unenforced returns what lists in use refuse, sorted; the same slice while nothing changes.
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
