package configurator

import (
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
)

// commonPeers returns the intersection of two peers as a list of peers; it is empty if they are
// disjoint.
func (g *generator) commonPeers(p, q peer) []peer {
	common, known := g.peers.common[[2]peer{p, q}]
	if !known {
		for _, n := range g.commonNets(g.peers.nets[p], g.peers.nets[q]) {
			common = append(common, g.peers.numberOf(n))
		}
		g.peers.common[[2]peer{p, q}] = common
	}
	return common
}

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
	var nets []api.Net // prefixes that contain them
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

// parts returns the parts of a peer: prefixes, sets of the processor, or both.
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

// fixedNets returns the intersection of two lists of prefixes.
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
		if net, ok := g.keep(setOf(addrs)); ok {
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

// commonSet returns a derived set. Its ID is derived from its parts.
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
