package configurator

import (
	"fmt"

	"github.com/sluice-net/sluice/api"
)

// outcome translates the policies of an input.
func (g *generator) outcome(in input) outcome {
	g.input = in
	l := g.lower()
	admin := g.admins(l)
	return outcome{sections: admin.add(l.sections...), admin: len(admin), action: l.action, origins: l.origins}
}

// lower translates the tiers below admin: NetworkPolicies if one of them isolates the pod, else the
// baseline.
func (g *generator) lower() outcome {
	if len(g.isolating) == 0 {
		l := outcome{action: api.Permit}
		for _, c := range g.clausesOf(g.baseline) {
			action := api.Permit // passing from the last tier permits
			if c.rule.Action == api.RuleDeny {
				action = api.Deny
			}
			if node := g.nodeTraffic(c); node != nil {
				l.sections = l.sections.add(section{action: api.Permit, traffic: node})
			}
			l.sections = l.sections.add(section{action: action, traffic: g.match(c)})
		}
		return l
	}
	var permitted traffic
	if !g.closed {
		permitted = g.match(g.clausesOf(g.isolating)...)
	}
	if g.allowNode && !permitted.portsOf(anyPeer).isAll() {
		for _, node := range g.node {
			permitted.add(portSet{anySpan(g.originsWith(api.NodeRule))}, g.peers.numberOf(node))
		}
	}
	permitted = g.peers.disjoint(permitted)
	return outcome{
		sections: sections(nil).add(section{action: api.Permit, traffic: permitted}),
		action:   api.Deny, origins: g.originsWith(api.IsolationRule),
	}
}

// admins returns the sections of the admin tier. A rule that passes matters only where a later rule
// of the tier would decide: everything else reaches the lower tiers anyway. Therefore it starts
// with the last rule.
func (g *generator) admins(l outcome) (out sections) {
	clauses := g.clausesOf(g.admin)
	parts := make([]sections, len(clauses))
	var later covered // ports on which a later rule decides, without origins
	for i := len(clauses) - 1; i >= 0; i-- {
		c := clauses[i]
		matched := g.match(c)
		switch c.rule.Action {
		case api.RulePass:
			parts[i] = g.pass(matched.within(later), l, c)
			continue
		case api.RuleAllow:
			parts[i] = sections{{action: api.Permit, traffic: matched}}
		default:
			if node := g.nodeTraffic(c); node != nil {
				parts[i] = g.pass(node, l, c)
			}
			parts[i] = append(parts[i], section{action: api.Deny, traffic: matched})
		}
		later = later.with(c.ports)
	}
	out = make(sections, 0, len(clauses)+len(l.sections))
	for _, part := range parts {
		out = out.add(part...)
	}
	return out
}

// nodeTraffic returns the traffic of the own node, which a rule that denies every peer must leave
// to the next tier: ingress rules never match traffic from the own node, such as kubelet probes.
// Only an invalid rule has any peer.
func (g *generator) nodeTraffic(c clause) traffic {
	if g.direction != api.Ingress || !c.rule.AnyPeer || c.rule.Action != api.RuleDeny {
		return nil
	}
	var t traffic
	for _, node := range g.node {
		t.add(c.ports, g.peers.numberOf(node))
	}
	return t
}

// pass returns the decisions of the lower tiers about the traffic that a rule passes. Traffic that
// takes too many rules is denied.
func (g *generator) pass(passed traffic, l outcome, by clause) sections {
	out, ok := g.delegate(passed, passed, l)
	if !ok {
		g.refused = append(g.refused, refusal{
			g.originsOf([]int32{g.origin(by.policy, by.rule.Index)}),
			fmt.Sprintf("what it passes on would %s, so it is denied", g.excess()),
		})
	}
	return out
}
