package configurator

import (
	"fmt"

	"github.com/sluice-net/sluice/api"
)

// maxExpanded bounds how many spans of ports what is passed on may become in one
// list: the rules of the admin tier that pass times those of lower tiers. Real
// clusters have some dozens.
const maxExpanded = 1 << 16

// lower is what the tiers below admin decide.
type lower struct {
	sections sections
	action   api.Action // of the rest
	origins  []int32    // of the rest
}

// lower translates the tiers below admin: NetworkPolicies when one of them
// isolates the pod, else the baseline.
func (g *generator) lower(allowNode bool) lower {
	if len(g.isolating) == 0 {
		l := lower{action: api.Permit}
		for _, c := range g.clausesOf(g.baseline) {
			action := api.Permit // to pass on from the last tier is to permit
			if c.rule.Action == api.RuleDeny {
				action = api.Deny
			}
			l.sections = l.sections.add(section{action, g.match([]clause{c})})
		}
		return l
	}
	permitted := traffic{}
	if !g.closed {
		permitted = g.match(g.clausesOf(g.isolating))
	}
	if allowNode && !newPortSet(permitted[api.Net{}]).isAll() {
		permitted.add(api.SetNet(api.NodeSet), portSet{anySpan(g.originsWith(api.NodeRule))})
	}
	return lower{
		sections: sections(nil).add(section{api.Permit, permitted}),
		action:   api.Deny, origins: g.originsWith(api.IsolationRule),
	}
}

// addAdmin adds the sections of the admin tier. A rule that passes matters only where
// a later one of the tier would decide: everything else gets to the lower tiers by
// itself.
func (g *generator) addAdmin(l lower) {
	clauses := g.clausesOf(g.admin)
	later := make([]portSet, len(clauses)) // ports on which a later rule decides
	for i := len(clauses) - 2; i >= 0; i-- {
		later[i] = later[i+1]
		if next := clauses[i+1].rule; next.Action != api.RulePass {
			later[i] = newPortSet(append(portsOf(next, 0), later[i]...))
		}
	}
	for i, c := range clauses {
		matched := g.match([]clause{c})
		switch c.rule.Action {
		case api.RuleAllow:
			g.sections = g.sections.add(section{api.Permit, matched})
		case api.RulePass:
			g.delegate(matched.within(later[i]), l, g.originsOf([]int32{g.origin(c.policy, c.rule.Index)}))
		default:
			g.sections = g.sections.add(section{api.Deny, matched})
		}
	}
}

// delegate adds what the lower tiers decide about some traffic, for this traffic
// only. Rules above it have decided about their part of it, and whatever it leaves
// goes on to the rules below: so it is exact. Where that takes too many rules the
// traffic is denied.
func (g *generator) delegate(passed traffic, l lower, origins []api.Origin) {
	var expanded sections
	for _, s := range l.sections {
		expanded = expanded.add(section{s.action, g.meet(passed, s.traffic)})
	}
	if g.expanded > maxExpanded {
		g.refused = append(g.refused, refusal{origins, fmt.Sprintf("what it passes on would take more than %d rules, so it is denied", maxExpanded)})
		g.sections = g.sections.add(section{api.Deny, passed})
		return
	}
	rest := traffic{}
	for peer, spans := range passed {
		for _, s := range spans {
			s.origins = union(s.origins, l.origins)
			rest[peer] = append(rest[peer], s)
		}
	}
	g.sections = g.sections.add(expanded...).add(section{l.action, rest})
}

// within returns the part of some traffic that is on some ports. Origins stay.
func (t traffic) within(ports portSet) traffic {
	out := traffic{}
	for peer, spans := range t {
		out.add(peer, newPortSet(spans).meet(ports, func(mine, _ []int32) []int32 { return mine }))
	}
	return out
}

// meet returns what two kinds of traffic have in common, with the origins of both.
func (g *generator) meet(a, b traffic) traffic {
	out := traffic{}
	byPeer := make(map[api.Net]portSet, len(b))
	for peer, spans := range b {
		byPeer[peer] = newPortSet(spans)
	}
	for p, spans := range a {
		ports := newPortSet(spans)
		for q, others := range byPeer {
			if g.expanded > maxExpanded {
				return out
			}
			both := ports.meet(others, union)
			if len(both) == 0 {
				continue
			}
			for _, net := range g.commonNets(p, q) {
				g.expanded += len(both)
				out.add(net, both)
			}
		}
	}
	return out
}
