package cache

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer/cache/internal/traffic"
	"github.com/sluice-net/sluice/renderer/internal/prefixes"

	"github.com/gaissmai/bart"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// list is one rule list, shared by all pods with equal rules, and its verdicts about local peer
// addresses.
type list struct {
	digest renderer.Digest
	rules  []api.ContivRule
	id     uint32             // unique in the cache
	pods   map[api.PodID]*pod // pods that have the list
	first  *pod               // of an opposite list: its smallest pod, whose origins represent the list

	// The rules, indexed by their peer side.
	always   []uint32
	bySet    map[api.SetID][]uint32
	byPrefix bart.Table[[]uint32]

	verdicts   []verdict // by address slot
	byMatches  map[matches]verdict
	classes    uint32 // distinct results so far
	isOpposite bool
	index      int       // of an opposite list: position in combiner.opposites
	podsSet    api.SetID // of an opposite list: the set of its pods

	listShare
}

// listShare is what a list takes of the share of its namespaces.
type listShare struct {
	origins *renderer.RuleList // of one of its pods
	entries int
	sized   bool   // entries is known
	closed  string // why everything is denied instead; "" when it is not
	named   map[*renderer.RuleList][]api.Origin
}

// matches encodes the indexes of the rules whose peer side contains an address, in a form that
// works as a map key.
type matches string

// verdict is the result of a list for one address: which rules match and what they permit. The zero
// value means "not computed".
type verdict struct {
	known   bool
	class   uint32 // number of the result within the list
	matches matches
	allowed traffic.Traffic
}

// maxMemo bounds the memos whose size depends on history. A full memo is dropped.
const maxMemo = 1 << 14

func newList(l *renderer.RuleList, peer side) *list {
	out := &list{digest: l.Digest(), rules: l.Rules(), listShare: listShare{origins: l}, pods: make(map[api.PodID]*pod),
		bySet: make(map[api.SetID][]uint32), byMatches: make(map[matches]verdict)}
	for i, r := range l.Rules() {
		switch n := peer.of(r); {
		case n.Set != 0:
			out.bySet[n.Set] = append(out.bySet[n.Set], uint32(i))
		case n.Prefix.IsValid():
			p := renderer.Unmapped(n.Prefix)
			rules, _ := out.byPrefix.Get(p)
			out.byPrefix.Insert(p, append(rules, uint32(i)))
		default:
			out.always = append(out.always, uint32(i))
		}
	}
	return out
}

// restricts reports whether a list can deny or audit anything. A nil list, or one that permits
// everything before it does, restricts nothing.
func restricts(l *renderer.RuleList) bool {
	if l == nil {
		return false
	}
	for _, r := range l.Rules() {
		if r.Action == api.Deny || r.Audit {
			return true
		}
		if r == (api.ContivRule{Action: api.Permit}) {
			return false
		}
	}
	return true
}

// match returns the indexes of the rules whose peer side contains the address.
func (l *list) match(a netip.Addr, inSet func(api.SetID, netip.Addr) bool) []uint32 {
	out := slices.Clone(l.always)
	for id, rules := range l.bySet {
		if inSet(id, a) {
			out = append(out, rules...)
		}
	}
	for _, rules := range l.byPrefix.Supernets(prefixes.Host(a)) {
		out = append(out, rules...)
	}
	slices.Sort(out)
	return out
}

// verdict returns the result of what is in force for the list, for a local address.
func (l *list) verdict(a *address, inSet func(api.SetID, netip.Addr) bool) verdict {
	if l.closed != "" {
		return verdict{known: true, allowed: traffic.Nothing}
	}
	return l.asked(a, inSet)
}

// asked returns the memoized result of the list for a local address, also if the list is closed.
func (l *list) asked(a *address, inSet func(api.SetID, netip.Addr) bool) verdict {
	if a.slot < len(l.verdicts) && l.verdicts[a.slot].known {
		return l.verdicts[a.slot]
	}
	if a.slot >= len(l.verdicts) {
		l.verdicts = append(l.verdicts, make([]verdict, a.slot+1-len(l.verdicts))...)
	}
	l.verdicts[a.slot] = l.judge(l.match(a.addr, inSet))
	return l.verdicts[a.slot]
}

// judge evaluates the rules that match an address. Most addresses match the same rules, so few
// evaluations are needed.
func (l *list) judge(indexes []uint32) verdict {
	key := make([]byte, 0, 4*len(indexes))
	for _, i := range indexes {
		key = binary.BigEndian.AppendUint32(key, i)
	}
	v, ok := l.byMatches[matches(key)]
	if !ok {
		rules := make([]api.ContivRule, len(indexes))
		for n, i := range indexes {
			rules[n] = l.rules[i]
		}
		if len(l.byMatches) >= maxMemo {
			clear(l.byMatches)
		}
		l.classes++
		v = verdict{known: true, class: l.classes, matches: matches(key), allowed: traffic.Allowed(rules)}
		l.byMatches[v.matches] = v
	}
	return v
}

// forget drops the verdict of a slot.
func (l *list) forget(slot int) {
	if slot < len(l.verdicts) {
		l.verdicts[slot] = verdict{}
	}
}

// rejudge computes a known verdict about an address again, and reports whether it changed.
func (l *list) rejudge(a *address, inSet func(api.SetID, netip.Addr) bool) bool {
	if a.slot >= len(l.verdicts) || !l.verdicts[a.slot].known {
		return false
	}
	old := l.verdicts[a.slot]
	l.verdicts[a.slot] = l.judge(l.match(a.addr, inSet))
	return old.matches != l.verdicts[a.slot].matches
}

// count returns the number of rules.
func (m matches) count() int { return len(m) / 4 }

// indexes decodes the rule indexes.
func (m matches) indexes() []uint32 {
	out := make([]uint32, 0, m.count())
	for b := []byte(m); len(b) > 0; b = b[4:] {
		out = append(out, binary.BigEndian.Uint32(b))
	}
	return out
}

// side is the source or the destination side of a rule.
type side bool

// The two sides of a rule.
const (
	source      side = false
	destination side = true
)

// of returns the net on this side of a rule.
func (s side) of(r api.ContivRule) api.Net {
	if s == source {
		return r.Src
	}
	return r.Dst
}

// set returns the rule with the net on this side replaced.
func (s side) set(r api.ContivRule, n api.Net) api.ContivRule {
	if s == source {
		r.Src = n
	} else {
		r.Dst = n
	}
	return r
}
