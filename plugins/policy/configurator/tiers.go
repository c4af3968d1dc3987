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
			if node := g.nodeTraffic(c); node != nil {
				l.sections = l.sections.add(section{api.Permit, node})
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
// itself. Therefore the last rule is looked at first.
func (g *generator) addAdmin(l lower) {
	clauses := g.clausesOf(g.admin)
	parts := make([]sections, len(clauses))
	var later portSet // ports on which a later rule decides, without origins
	for i := len(clauses) - 1; i >= 0; i-- {
		c := clauses[i]
		matched := g.match([]clause{c})
		switch c.rule.Action {
		case api.RulePass:
			parts[i] = g.delegate(matched.within(later), l, c)
			continue
		case api.RuleAllow:
			parts[i] = sections{{api.Permit, matched}}
		default:
			if node := g.nodeTraffic(c); node != nil {
				parts[i] = g.delegate(node, l, c)
			}
			parts[i] = append(parts[i], section{api.Deny, matched})
		}
		later = later.with(portsOf(c.rule, 0))
	}
	for _, part := range parts {
		g.sections = g.sections.add(part...)
	}
}

// nodeTraffic returns what a rule that denies everybody must let go on to the next
// tier: rules for ingress never match what comes from the own node, such as probes of
// the kubelet. Only a rule that was not understood has any peer.
func (g *generator) nodeTraffic(c clause) traffic {
	if g.direction != api.Ingress || !c.rule.AnyPeer || c.rule.Action != api.RuleDeny {
		return nil
	}
	t := traffic{}
	t.add(api.SetNet(api.NodeSet), portsOf(c.rule, g.origin(c.policy, c.rule.Index)))
	return t
}

// delegate returns what the lower tiers decide about some traffic, for this traffic
// only. Rules above it have decided about their part of it, and whatever it leaves
// goes on to the rules below: so it is exact. Where that takes too many rules the
// traffic is denied.
func (g *generator) delegate(passed traffic, l lower, by clause) sections {
	var expanded sections
	for _, s := range l.sections {
		expanded = expanded.add(section{s.action, g.meet(passed, s.traffic)})
	}
	if g.expanded > maxExpanded {
		g.refused = append(g.refused, refusal{
			g.originsOf([]int32{g.origin(by.policy, by.rule.Index)}),
			fmt.Sprintf("what it passes on would take more than %d rules, so it is denied", maxExpanded),
		})
		return sections{{api.Deny, passed}}
	}
	rest := make(traffic, len(passed))
	for peer, spans := range passed {
		for _, s := range spans {
			s.origins = union(s.origins, l.origins)
			rest[peer] = append(rest[peer], s)
		}
	}
	return expanded.add(section{l.action, rest})
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
