package configurator

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// traffic is what some rules match: ports, by peer. Peers can overlap. The spans of a peer are
// unordered and can overlap, too.
type traffic map[api.Net][]span

// add adds a peer on some ports.
func (t traffic) add(peer api.Net, ports portSet) {
	switch {
	case len(ports) == 0:
	case t[peer] == nil:
		t[peer] = slices.Clip(ports) // sorted, and shared until more is added
	default:
		t[peer] = append(t[peer], ports...)
	}
}

// bare returns the traffic without origins.
func (t traffic) bare() traffic {
	out := make(traffic, len(t))
	for peer, spans := range t {
		spans = slices.Clone(spans)
		for i := range spans {
			spans[i].origins = nil
		}
		out[peer] = spans
	}
	return out
}

// allOrigins returns all origins of the traffic.
func (t traffic) allOrigins() (out []int32) {
	for _, spans := range t {
		for _, s := range spans {
			out = append(out, s.origins...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// within returns the part of the traffic that is on some ports. It keeps origins.
func (t traffic) within(ports portSet) traffic {
	out := traffic{}
	for peer, spans := range t {
		out.add(peer, newPortSet(spans).intersect(ports, func(mine, _ []int32) []int32 { return mine }))
	}
	return out
}

// clause is one rule of a policy.
type clause struct {
	policy *api.ContivPolicy
	rule   *api.PolicyRule
}

// clausesOf lists the rules of some policies, in order.
func (g *generator) clausesOf(policies []*api.ContivPolicy) []clause {
	var out []clause
	for _, p := range policies {
		rules := p.Rules(g.direction)
		for i := range rules {
			out = append(out, clause{p, &rules[i]})
		}
	}
	return out
}

// match returns what some rules match. If one of them matches everything, it returns only that.
func (g *generator) match(clauses []clause) traffic {
	t := traffic{}
	var blocks []block
	var toAny []span
	for _, c := range clauses {
		ports := portsOf(c.rule, g.origin(c.policy, c.rule.Index))
		g.pause(1 + len(ports) + len(c.rule.Sets) + len(c.rule.Blocks))
		if c.rule.AnyPeer {
			toAny = append(toAny, ports...)
			continue // any includes the other peers of the rule
		}
		for _, s := range c.rule.Sets {
			t.add(api.SetNet(s), ports)
		}
		for _, b := range c.rule.Blocks {
			if b, ok := newBlock(b, ports); ok {
				blocks = append(blocks, b)
			}
			if c.rule.Action != api.RuleAllow && isUnknown(b) {
				toAny = append(toAny, ports...) // its exceptions cannot be applied: fail closed
			}
		}
	}
	any := newPortSet(toAny)
	if any.isAll() {
		return traffic{api.Net{}: any}
	}
	g.addBlocks(t, any, blocks)
	t.add(api.Net{}, any)
	return t
}

// addBlocks adds blocks as prefixes or derived sets, without what any peer may do. It drops blocks
// within others twice: before the union, so that they do not make sets larger, and afterwards,
// because united blocks can cover others that single ones do not.
func (g *generator) addBlocks(t traffic, any portSet, blocks []block) {
	var inline []block
	for _, r := range regions(uncoveredBy(any, blocks)) {
		addrs, err := r.addrs.IPSet()
		if err != nil {
			continue // impossible, since all ranges are valid; no addresses fail closed
		}
		ports := newPortSet(r.spans)
		g.pause(len(ports) + len(addrs.Ranges()))
		prefixes, few := fewPrefixes(addrs)
		if !few {
			if net, ok := g.setOf(addrs); ok {
				t.add(net, ports)
			}
			continue
		}
		for _, p := range prefixes {
			inline = append(inline, block{cidr: p, ports: ports})
		}
	}
	for _, b := range uncovered(inline) {
		t.add(api.Net{Prefix: b.cidr}, b.ports)
	}
}

// section is traffic that is permitted or denied as a whole.
type section struct {
	action  api.Action
	audit   bool // a permit that is audited, see api.ContivRule
	traffic traffic
}

// sections are evaluated in order; the first that matches decides. In an ordered tier every rule is
// a section, even next to others with the same action: only then does a rule of the list show which
// policy rule has decided.
type sections []section

// add appends sections that match anything.
func (s sections) add(more ...section) sections {
	for _, x := range more {
		if len(x.traffic) > 0 {
			s = append(s, x)
		}
	}
	return s
}

// rules returns an upper bound of the number of rules of the sections.
func (s sections) rules() (n int) {
	for _, x := range s {
		for _, spans := range x.traffic {
			n += len(spans)
		}
	}
	return n
}

// outcome is the decision of some tiers.
type outcome struct {
	sections sections
	admin    int        // how many of the sections are of the admin tier; 0 if several inputs are mixed
	action   api.Action // of the rest
	audit    bool       // the permit of the rest is audited
	origins  []int32    // of the rest
}

// apart returns an outcome that permits one family and leaves the other unchanged.
func (o outcome) apart(family netip.Prefix) outcome {
	if !family.IsValid() {
		return o
	}
	all := traffic{api.Net{Prefix: family}: portSet{anySpan(nil)}}
	o.sections = append(sections{{action: api.Permit, traffic: all}}, o.sections...)
	return o
}
