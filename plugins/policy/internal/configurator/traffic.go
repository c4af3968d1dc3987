package configurator

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// traffic is what some rules match: a sum of products. A peer may be in several of them.
type traffic []product

// product is some ports of some peers. The peers are sorted, each once; they may overlap, and are
// shared. So are the ports.
type product struct {
	peers []peer
	ports portSet
}

// add adds peers on some ports.
func (t *traffic) add(ports portSet, peers ...peer) {
	if len(ports)*len(peers) > 0 {
		*t = append(*t, product{peers, ports})
	}
}

// mapped returns the traffic with other ports.
func (t traffic) mapped(ports func(portSet) portSet) traffic {
	out := make(traffic, 0, len(t))
	for _, p := range t {
		out.add(ports(p.ports), p.peers...)
	}
	return out
}

// withOrigins returns the traffic with other origins.
func (t traffic) withOrigins(of func([]int32) []int32) traffic {
	return t.mapped(func(ports portSet) portSet {
		ports = slices.Clone(ports)
		for i := range ports {
			ports[i].origins = of(ports[i].origins)
		}
		return ports
	})
}

// bare returns the traffic without origins.
func (t traffic) bare() traffic {
	return t.withOrigins(func([]int32) []int32 { return nil })
}

// allOrigins returns all origins of the traffic.
func (t traffic) allOrigins() (out []int32) {
	for _, p := range t {
		for _, s := range p.ports {
			out = append(out, s.origins...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// within returns the part of the traffic that is on some ports. It keeps origins.
func (t traffic) within(c covered) traffic {
	return t.mapped(func(p portSet) portSet {
		return intersect(p, c, func(mine []int32, _ ports) []int32 { return mine })
	})
}

// byPeer returns the traffic as one product for each peer, if no two have one in common.
func (t traffic) byPeer() traffic {
	var out traffic
	for _, p := range t {
		for i := range p.peers {
			out.add(p.ports, p.peers[i:i+1:i+1]...)
		}
	}
	return out
}

// portsOf returns the ports of one peer.
func (t traffic) portsOf(of peer) portSet {
	var spans []span
	for _, p := range t {
		if slices.Contains(p.peers, of) {
			spans = append(spans, p.ports...)
		}
	}
	return newPortSet(spans)
}

// repeated reports whether some products have a peer in common.
func (x *peers) repeated(t traffic) bool {
	if len(t) < 2 {
		return false
	}
	x.times++
	x.seen = append(x.seen, make([]int, len(x.nets)-len(x.seen))...)
	for _, p := range t {
		for _, n := range p.peers {
			if x.seen[n] == x.times {
				return true
			}
			x.seen[n] = x.times
		}
	}
	return false
}

// disjoint returns the traffic as products that have no peer in common.
func (x *peers) disjoint(t traffic) traffic {
	if !x.repeated(t) {
		return t
	}
	spans := map[peer][]span{}
	var order []peer
	for _, p := range t {
		for _, n := range p.peers {
			if spans[n] == nil {
				order = append(order, n)
			}
			spans[n] = append(spans[n], p.ports...)
		}
	}
	out := make(traffic, 0, len(order))
	for i, n := range order {
		out.add(newPortSet(spans[n]), order[i:i+1:i+1]...)
	}
	return out
}

// clause is one rule of a policy.
type clause struct {
	policy *api.ContivPolicy
	rule   *api.PolicyRule
	ports  portSet
}

// clausesOf lists the rules of some policies, in order.
func (g *generator) clausesOf(policies []*api.ContivPolicy) []clause {
	var out []clause
	for _, p := range policies {
		rules := p.Rules(g.direction)
		out = slices.Grow(out, len(rules))
		for i := range rules {
			out = append(out, clause{p, &rules[i], portsOf(&rules[i], g.origin(p, rules[i].Index))})
		}
	}
	return out
}

// match returns what some rules match. If one of them matches everything, it returns only that.
func (g *generator) match(clauses ...clause) (t traffic) {
	var blocks []block
	var toAny []span
	for _, c := range clauses {
		ports := c.ports
		if c.rule.AnyPeer {
			toAny = append(toAny, ports...)
			continue // any includes the other peers of the rule
		}
		if len(c.rule.Sets) > 0 {
			t.add(ports, g.peers.sets(c.rule.Sets)...)
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
		return traffic{{[]peer{anyPeer}, any}}
	}
	g.addBlocks(&t, any, blocks)
	t.add(any, anyPeer)
	return t
}

// addBlocks adds blocks as prefixes or derived sets, without what any peer may do. It drops blocks
// within others twice: before the union, so that they do not make sets larger, and afterwards,
// because united blocks can cover others that single ones do not.
func (g *generator) addBlocks(t *traffic, any portSet, blocks []block) {
	var inline []block
	for _, r := range regions(uncoveredBy(any, blocks)) {
		addrs, err := r.addrs.IPSet()
		if err != nil {
			continue // impossible, since all ranges are valid; no addresses fail closed
		}
		ports := newPortSet(r.spans)
		prefixes, few := fewPrefixes(addrs)
		if !few {
			if net, ok := g.keep(setOf(addrs)); ok {
				t.add(ports, g.peers.numberOf(net))
			}
			continue
		}
		for _, p := range prefixes {
			inline = append(inline, block{cidr: p, ports: ports})
		}
	}
	for _, b := range uncovered(inline) {
		t.add(b.ports, g.peers.numberOf(api.Net{Prefix: b.cidr}))
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
		for _, p := range x.traffic {
			n += len(p.peers) * len(p.ports)
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
func (o outcome) apart(x *peers, family netip.Prefix) outcome {
	if !family.IsValid() {
		return o
	}
	all := traffic{{[]peer{x.numberOf(api.Net{Prefix: family})}, portSet{anySpan(nil)}}}
	o.sections = append(sections{{action: api.Permit, traffic: all}}, o.sections...)
	return o
}
