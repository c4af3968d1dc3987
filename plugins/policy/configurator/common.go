package configurator

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
)

// common is the addresses that a set of the processor has in common with another
// one, or with some prefixes. It changes with its parts.
type common struct {
	a, b     api.SetID      // a before b; b is zero with prefixes
	prefixes []netip.Prefix // the fewest, in order
}

func (c *common) equal(o *common) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.a == o.a && c.b == o.b && slices.Equal(c.prefixes, o.prefixes)
}

// contains says whether an address is in both parts.
func (c *common) contains(sets Sets, a netip.Addr) bool {
	return sets.Contains(c.a, a) && c.other(sets, a)
}

// other says whether an address is in the part that is not c.a.
func (c *common) other(sets Sets, a netip.Addr) bool {
	if c.b != 0 {
		return sets.Contains(c.b, a)
	}
	return containsAddr(c.prefixes, a)
}

// containsAddr looks an address up in prefixes that are in order and do not overlap.
func containsAddr(prefixes []netip.Prefix, a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(prefixes, a, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return found || i > 0 && prefixes[i-1].Contains(a)
}

// parts returns the sets of the processor that the set is made of.
func (s addressSet) parts() []api.SetID {
	switch {
	case s.common == nil:
		return nil
	case s.common.b == 0:
		return []api.SetID{s.common.a}
	}
	return []api.SetID{s.common.a, s.common.b}
}

// difference returns what renderers have to be told of a set, and takes it for told.
func (s *derivedSet) difference(members Sets) (added, removed []netip.Prefix) {
	switch {
	case s.common != nil:
		return s.commonDifference(members)
	case s.told == (s.uses > 0):
		return nil, nil
	case s.told:
		return nil, s.members
	}
	return s.members, nil
}

// listed returns the members that renderers know, in order.
func (s *derivedSet) listed() []netip.Prefix {
	if s.common == nil {
		return s.members
	}
	out := make([]netip.Prefix, 0, len(s.current))
	for a := range s.current {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

func (s *derivedSet) commonDifference(members Sets) (added, removed []netip.Prefix) {
	moved := s.moved
	s.moved = nil
	switch {
	case s.uses == 0:
		removed = s.listed()
		s.current = nil
		return nil, removed
	case !s.told:
		s.current = map[netip.Addr]struct{}{}
		for _, a := range members.AppendMembers(nil, s.common.a) {
			if s.common.other(members, a) {
				moved = append(moved, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	slices.SortFunc(moved, netip.Prefix.Compare)
	for _, p := range slices.Compact(moved) {
		_, was := s.current[p.Addr()]
		switch is := s.common.contains(members, p.Addr()); {
		case is && !was:
			s.current[p.Addr()] = struct{}{}
			added = append(added, p)
		case was && !is:
			delete(s.current, p.Addr())
			removed = append(removed, p)
		}
	}
	return added, removed
}

// meaning says for people what the set was made of.
func (s addressSet) meaning() string {
	switch c := s.common; {
	case c == nil:
		return "blocks"
	case c.b != 0:
		return fmt.Sprintf("in both %s and %s", c.a, c.b)
	case len(c.prefixes) > maxInline:
		return fmt.Sprintf("in %s, within %d blocks", c.a, len(c.prefixes))
	default:
		return fmt.Sprintf("in %s, within %s", c.a, c.prefixes)
	}
}

// equal says whether two sets with one ID are the same.
func (s addressSet) equal(o addressSet) bool {
	return s.common.equal(o.common) && slices.Equal(s.members, o.members)
}

// commonNets returns what two peers have in common, as the peers that it takes; none
// when they have nothing in common.
func (g *generator) commonNets(p, q api.Net) []api.Net {
	switch {
	case p == q || q.IsAny():
		return []api.Net{p}
	case p.IsAny():
		return []api.Net{q}
	}
	pFixed, pIsFixed := g.fixed(p)
	qFixed, qIsFixed := g.fixed(q)
	switch {
	case pIsFixed && qIsFixed:
		return g.fixedNets(pFixed, qFixed)
	case pIsFixed:
		return g.commonSet(common{a: q.Set, prefixes: pFixed}, p)
	case qIsFixed:
		return g.commonSet(common{a: p.Set, prefixes: qFixed}, q)
	}
	return g.commonSet(common{a: min(p.Set, q.Set), b: max(p.Set, q.Set)}, api.SetNet(max(p.Set, q.Set)))
}

// fixed returns the prefixes of a peer that is no set of the processor.
func (g *generator) fixed(n api.Net) ([]netip.Prefix, bool) {
	if n.Prefix.IsValid() {
		return []netip.Prefix{n.Prefix}, true
	}
	s, derived := g.sets[n.Set]
	return s.members, derived
}

// fixedNets returns the addresses that two lists of prefixes have in common.
func (g *generator) fixedNets(a, b []netip.Prefix) []api.Net {
	both, err := ipSet(a)
	if err != nil {
		return nil
	}
	others, err := ipSet(b)
	if err != nil {
		return nil
	}
	var builder netipx.IPSetBuilder
	builder.AddSet(both)
	builder.Intersect(others)
	addrs, err := builder.IPSet()
	if err != nil || len(addrs.Ranges()) == 0 {
		return nil
	}
	prefixes, few := fewPrefixes(addrs)
	if !few {
		if net, ok := g.setOf(addrs); ok {
			return []api.Net{net}
		}
		return nil
	}
	nets := make([]api.Net, len(prefixes))
	for i, p := range prefixes {
		nets[i] = api.Net{Prefix: p}
	}
	return nets
}

func ipSet(prefixes []netip.Prefix) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	for _, p := range prefixes {
		b.AddPrefix(p)
	}
	return b.IPSet()
}

// commonSet returns a derived set. Its ID is made of its parts.
func (g *generator) commonSet(c common, other api.Net) []api.Net {
	s := addressSet{id: api.NewSetID(fmt.Sprintf("common %s %s", c.a, other)), common: &c}
	if net, ok := g.keep(s); ok {
		return []api.Net{net}
	}
	return nil
}
