package configurator

import (
	"fmt"

	"github.com/sluice-net/sluice/api"
)

// maxExpanded bounds how many spans of ports what is passed on may become in one
// list: the rules of the admin tier that pass times those of lower tiers. Real
// clusters have some dozens.
const maxExpanded = 1 << 16

// maxOrigins bounds how many rules of policies the spans that delegate makes may come from, each
// counted for every span: a span of one rule that passes and of a million that permit has a million.
const maxOrigins = 1 << 20

// exceeded reports whether what is passed on has become too much.
func (g *generator) exceeded() bool { return g.expanded > maxExpanded || g.named > maxOrigins }

// excess says what is too much.
func (g *generator) excess() string {
	if g.expanded > maxExpanded {
		return fmt.Sprintf("take more than %d rules", maxExpanded)
	}
	return fmt.Sprintf("come from rules of policies more than %d times", maxOrigins)
}

// unite returns two ascending lists of origins as one, nothing once it is too much.
func (g *generator) unite(a, b []int32) []int32 {
	if g.named += len(a) + len(b); g.exceeded() {
		return nil
	}
	return union(a, b)
}

// outcome is what some tiers decide.
type outcome struct {
	sections sections
	action   api.Action // of the rest
	origins  []int32    // of the rest
}

// outcome translates the policies of an input.
func (g *generator) outcome(in input) outcome {
	g.input = in
	l := g.lower()
	return outcome{g.admins(l).add(l.sections...), l.action, l.origins}
}

// lower translates the tiers below admin: NetworkPolicies when one of them
// isolates the pod, else the baseline.
func (g *generator) lower() outcome {
	if len(g.isolating) == 0 {
		l := outcome{action: api.Permit}
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
	if g.allowNode && !newPortSet(permitted[api.Net{}]).isAll() {
		for _, node := range g.node {
			permitted.add(node, portSet{anySpan(g.originsWith(api.NodeRule))})
		}
	}
	return outcome{
		sections: sections(nil).add(section{api.Permit, permitted}),
		action:   api.Deny, origins: g.originsWith(api.IsolationRule),
	}
}

// admins returns the sections of the admin tier. A rule that passes matters only where
// a later one of the tier would decide: everything else gets to the lower tiers by
// itself. Therefore the last rule is looked at first.
func (g *generator) admins(l outcome) (out sections) {
	clauses := g.clausesOf(g.admin)
	parts := make([]sections, len(clauses))
	var later portSet // ports on which a later rule decides, without origins
	for i := len(clauses) - 1; i >= 0; i-- {
		c := clauses[i]
		matched := g.match([]clause{c})
		switch c.rule.Action {
		case api.RulePass:
			parts[i] = g.pass(matched.within(later), l, c)
			continue
		case api.RuleAllow:
			parts[i] = sections{{api.Permit, matched}}
		default:
			if node := g.nodeTraffic(c); node != nil {
				parts[i] = g.pass(node, l, c)
			}
			parts[i] = append(parts[i], section{api.Deny, matched})
		}
		later = later.with(portsOf(c.rule, 0))
	}
	for _, part := range parts {
		out = out.add(part...)
	}
	return out
}

// nodeTraffic returns what a rule that denies everybody must let go on to the next
// tier: rules for ingress never match what comes from the own node, such as probes of
// the kubelet. Only a rule that was not understood has any peer.
func (g *generator) nodeTraffic(c clause) traffic {
	if g.direction != api.Ingress || !c.rule.AnyPeer || c.rule.Action != api.RuleDeny {
		return nil
	}
	t := traffic{}
	for _, node := range g.node {
		t.add(node, portsOf(c.rule, g.origin(c.policy, c.rule.Index)))
	}
	return t
}

// pass returns what the lower tiers decide about what a rule passes on. Where that
// takes too many rules it is denied.
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

// delegate returns what an outcome decides about some traffic, for this traffic only;
// denied is the same traffic, with the origins that it has where it is denied. Rules
// above it have decided about their part of it, and whatever it leaves goes on to the
// rules below: so it is exact. Where that takes too many rules the traffic is denied,
// and ok is false.
func (g *generator) delegate(passed, denied traffic, o outcome) (out sections, ok bool) {
	as := func(a api.Action) traffic {
		if a == api.Deny {
			return denied
		}
		return passed
	}
	for _, s := range o.sections {
		out = out.add(section{s.action, g.meet(as(s.action), s.traffic)})
	}
	rest := make(traffic, len(passed))
	for peer, spans := range as(o.action) {
		for _, s := range spans {
			s.origins = g.unite(s.origins, o.origins)
			rest[peer] = append(rest[peer], s)
		}
	}
	if g.exceeded() {
		return sections{{api.Deny, passed}}, false
	}
	return out.add(section{o.action, rest}), true
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
			if g.exceeded() {
				return out
			}
			both := ports.meet(others, g.unite)
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
