package cache

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache/internal/traffic"
	"github.com/sluice-net/sluice/renderer/internal/prefixes"
)

// newList returns a list without pods. It is closed if it has more than most rules of
// NetworkPolicies, unless most is 0.
func newList(l *renderer.RuleList, peer side, most int) *list {
	out := &list{digest: l.Digest(), listShare: listShare{origins: l}, pods: make(map[api.PodID]*pod),
		bySet: make(map[api.SetID][]uint32), byMatches: make(map[matches]verdict)}
	if out.tooLong = most > 0 && isLonger(l, most); out.tooLong {
		out.closed = fmt.Sprintf("this list has more than %d rules, too many for a dataplane without address sets, so everything is denied: name fewer peers or ports", most)
		return out
	}
	out.rules = l.Rules()
	for i, r := range out.rules {
		switch n := peer.netOf(r); {
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

// isLonger reports whether a list has more than most rules of NetworkPolicies.
func isLonger(l *renderer.RuleList, most int) bool {
	n := 0
	for i := range l.Len() {
		if n > most || n+l.Len()-i <= most {
			break
		}
		if isOfTenants(l.Origins(i)) {
			n++
		}
	}
	return n > most
}

// isOfTenants reports whether a rule counts: not if it comes from admin policies only.
func isOfTenants(origins []api.Origin) bool {
	return slices.ContainsFunc(origins, func(o api.Origin) bool { return o.Policy.Kind == api.NetworkPolicy })
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
	if l.tooLong {
		return verdict{known: true, allowed: traffic.Nothing}
	}
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
		v.rules = len(v.allowed.Rules())
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

// closedRules are in force in place of a closed list.
var closedRules = renderer.NewRuleList([]api.ContivRule{{}}, nil)

// inForce returns the rules that are in force for a list; asked are those of one of its pods.
func (l *list) inForce(asked *renderer.RuleList) *renderer.RuleList {
	if l != nil && l.closed != "" {
		return closedRules
	}
	return asked
}

// policies returns the policies of the rules that pods asked for; equal lists may come from others.
func (l *list) policies(asked *renderer.RuleList) []api.Origin {
	out, known := l.named[asked]
	if known {
		return out
	}
	seen := make(map[api.Origin]bool)
	var last api.Origin // rules of a policy follow each other
	for i := range asked.Len() {
		for _, o := range asked.Origins(i) {
			if o.Policy != last.Policy || o.Direction != last.Direction || len(seen) == 0 {
				last = api.Origin{Policy: o.Policy, Direction: o.Direction, Rule: api.IsolationRule}
				seen[last] = true
			}
		}
	}
	out = slices.Collect(maps.Keys(seen))
	if l.named == nil || len(l.named) > len(l.pods) {
		l.named = make(map[*renderer.RuleList][]api.Origin)
	}
	l.named[asked] = out
	return out
}
