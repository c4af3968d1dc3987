package configurator

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
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
	derived       map[api.SetID]*derivedSet
	touched       map[api.SetID]struct{}      // derived sets that renderers may have to be told of
	partOf        map[api.SetID][]*derivedSet // sets with common, by their parts
	closedProfile *profile                    // of new pods that wait, nil before there was one
	refusing      map[*list]struct{}          // lists in which something is refused
	refusals      []renderer.Unenforced       // of these; nil: to be made anew
}

// policyNumber stands for a policy in keys of profiles.
type policyNumber struct {
	n    uint64
	uses int // by profiles
}

// sliceID identifies a slice that is not empty and never changed.
type sliceID struct {
	first **api.ContivPolicy
	len   int
}

// profile is what some policies mean for a pod; pods with the same policies share
// it, unless others have their addresses. The lists are by direction, the pod's; nil
// does not restrict.
type profile struct {
	policies []*api.ContivPolicy
	shared   []api.Sharing
	slice    sliceID
	key      string
	lists    [2]*list
	pairs    [2]int  // of a peer and a port, that rules of NetworkPolicies name
	why      reasons // lists are closed by the share of a namespace
	uses     int     // by pods
}

// list is an immutable list of rules, shared by profiles. Lists with equal rules
// and equal origins are one.
type list struct {
	key   listKey
	rules *renderer.RuleList
	sets  []api.SetID // derived sets that it names
	uses  int         // by profiles, per direction

	refused []refusal
}

type listKey struct{ rules, origins renderer.Digest }

func newInterner(allowNode bool) *interner {
	return &interner{
		allowNode: allowNode,
		numbers:   map[*api.ContivPolicy]*policyNumber{},
		bySlice:   map[sliceID]*profile{},
		byKey:     map[string]*profile{},
		lists:     map[listKey]*list{},
		derived:   map[api.SetID]*derivedSet{},
		touched:   map[api.SetID]struct{}{},
		partOf:    map[api.SetID][]*derivedSet{},
		refusing:  map[*list]struct{}{},
	}
}

func idOfSlice(policies []*api.ContivPolicy) sliceID {
	if len(policies) == 0 {
		return sliceID{}
	}
	return sliceID{&policies[0], len(policies)}
}

// acquire returns the profile of some policies, and of those of pods that share an
// address, and counts a use of it. taken says whether the ID of a derived set stands
// for something else. A new list with more pairs than limit returns is closed, for the reason that it
// returns.
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

// all returns the policies of a profile, those of others included.
func (p *profile) all() iter.Seq[*api.ContivPolicy] {
	return func(yield func(*api.ContivPolicy) bool) {
		for _, policy := range p.policies {
			if !yield(policy) {
				return
			}
		}
		for _, s := range p.shared {
			for _, policy := range s.Policies {
				if !yield(policy) {
					return
				}
			}
		}
	}
}

// canonical returns the policies in order and once each; the argument if it is so.
func canonical(policies []*api.ContivPolicy) []*api.ContivPolicy {
	ordered := true
	for i := 1; i < len(policies) && ordered; i++ {
		ordered = policies[i-1].Compare(policies[i]) < 0
	}
	if ordered {
		return policies
	}
	policies = slices.SortedFunc(slices.Values(policies), (*api.ContivPolicy).Compare)
	return slices.Compact(policies)
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
		other := in.derived[s.id]
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
			in.useSet(s)
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
		in.derived[id].uses--
		in.touched[id] = struct{}{}
	}
}

// refuse drops the derived sets for which no is true, and the permits that name
// them. A deny that names one denies every peer instead.
func (g *generated) refuse(no func(addressSet) bool) {
	refused := map[api.SetID]bool{}
	for _, s := range g.sets {
		if no(s) {
			refused[s.id] = true
		}
	}
	if len(refused) == 0 {
		return
	}
	g.sets = slices.DeleteFunc(g.sets, func(s addressSet) bool { return refused[s.id] })
	var rules []api.ContivRule
	var origins [][]api.Origin
	for i, r := range g.rules {
		if refused[r.Src.Set] || refused[r.Dst.Set] {
			if r.Action == api.Permit {
				continue
			}
			r.Src, r.Dst = api.Net{}, api.Net{}
		}
		rules, origins = append(rules, r), append(origins, g.origins[i])
	}
	g.rules, g.origins = rules, origins
}

// digestOrigins identifies the origins of a list, and what is refused of it.
func digestOrigins(origins [][]api.Origin, refused []refusal) renderer.Digest {
	h := sha256.New()
	var b []byte
	for _, r := range refused {
		origins = append(slices.Clip(origins), r.origins)
		h.Write([]byte(r.reason))
	}
	for _, of := range origins {
		b = binary.BigEndian.AppendUint32(b[:0], uint32(len(of)))
		for _, o := range of {
			b = append(b, byte(o.Policy.Kind), byte(o.Direction))
			b = binary.BigEndian.AppendUint32(b, uint32(int32(o.Rule)))
			b = binary.BigEndian.AppendUint32(b, uint32(len(o.Policy.Namespace)))
			b = append(b, o.Policy.Namespace...)
			b = binary.BigEndian.AppendUint32(b, uint32(len(o.Policy.Name)))
			b = append(b, o.Policy.Name...)
		}
		h.Write(b)
	}
	return renderer.Digest(h.Sum(b[:0])[:16])
}
