package configurator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
)

// common is the addresses that sets of the processor have in common, with each other
// or with some prefixes. It changes with its parts.
type common struct {
	sets     []api.SetID    // in order
	within   api.Net        // of the prefixes; any without them
	prefixes []netip.Prefix // the fewest, in order
}

func (c *common) equal(o *common) bool {
	if c == nil || o == nil {
		return c == o
	}
	return slices.Equal(c.sets, o.sets) && slices.Equal(c.prefixes, o.prefixes)
}

// contains reports whether an address is in all parts.
func (c *common) contains(sets Sets, a netip.Addr) bool {
	return (c.within.IsAny() || containsAddr(c.prefixes, a)) &&
		!slices.ContainsFunc(c.sets, func(s api.SetID) bool { return !sets.Contains(s, a) })
}

// containsAddr looks an address up in prefixes that are in order and do not overlap.
func containsAddr(prefixes []netip.Prefix, a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(prefixes, a, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return found || i > 0 && prefixes[i-1].Contains(a)
}

// parts returns the sets of the processor that the set is made of.
func (s addressSet) parts() []api.SetID {
	if s.common == nil {
		return nil
	}
	return s.common.sets
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
		for _, a := range members.Members(s.common.sets[0]) {
			moved = append(moved, netip.PrefixFrom(a, a.BitLen()))
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
	if s.common == nil {
		return "blocks"
	}
	names := make([]string, len(s.common.sets))
	for i, id := range s.common.sets {
		names[i] = id.String()
	}
	in := strings.Join(names, " and ")
	if len(names) == 2 {
		in = "both " + in
	}
	switch prefixes := s.common.prefixes; {
	case len(prefixes) == 0:
		return "in " + in
	case len(prefixes) > maxInline:
		return fmt.Sprintf("in %s, within %d blocks", in, len(prefixes))
	default:
		return fmt.Sprintf("in %s, within %s", in, prefixes)
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
	a, b := g.parts(p), g.parts(q)
	sets := slices.Concat(a.sets, b.sets)
	slices.Sort(sets)
	sets = slices.Compact(sets)
	var nets []api.Net // within which they have to be
	switch {
	case b.within.IsAny():
		nets = []api.Net{a.within}
	case a.within.IsAny() || a.within == b.within:
		nets = []api.Net{b.within}
	default:
		nets = g.fixedNets(a.prefixes, b.prefixes)
	}
	if len(sets) == 0 {
		return nets
	}
	var out []api.Net
	for _, within := range nets {
		c := common{sets: sets, within: within}
		if !within.IsAny() {
			c.prefixes = g.parts(within).prefixes
		}
		out = append(out, g.commonSet(c)...)
	}
	return out
}

// parts returns what a peer is made of: some prefixes, sets of the processor, or both.
func (g *generator) parts(n api.Net) common {
	s, derived := g.sets[n.Set]
	switch {
	case n.Prefix.IsValid():
		return common{within: n, prefixes: []netip.Prefix{n.Prefix}}
	case derived && s.common != nil:
		return *s.common
	case derived:
		return common{within: n, prefixes: s.members}
	}
	return common{sets: []api.SetID{n.Set}}
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
func (g *generator) commonSet(c common) []api.Net {
	parts := []string{"common", c.sets[0].String()}
	for _, set := range c.sets[1:] {
		parts = append(parts, api.SetNet(set).String())
	}
	if !c.within.IsAny() {
		parts = append(parts, c.within.String())
	}
	if net, ok := g.keep(addressSet{id: api.NewSetID(strings.Join(parts, " ")), common: &c}); ok {
		return []api.Net{net}
	}
	return nil
}
