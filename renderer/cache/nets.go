package cache

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Families holds the prefixes of a net by family: IPv4, then IPv6.
type Families [2][]netip.Prefix

// Everywhere holds all addresses of both families. Callers must not change it.
var Everywhere = Families{
	{netip.PrefixFrom(netip.IPv4Unspecified(), 0)},
	{netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
}

// Nets resolves nets to prefixes for dataplanes without sets. It is used by one goroutine.
type Nets struct {
	aggregated func(api.SetID) Families
}

// NewNets returns a Nets. aggregated returns the fewest prefixes that contain exactly the members
// of a set, as Cache.Aggregated does.
func NewNets(aggregated func(api.SetID) Families) *Nets { return &Nets{aggregated} }

// Of returns the fewest prefixes that contain exactly the addresses of a net. Callers must not
// change them.
func (x *Nets) Of(n api.Net) Families {
	switch {
	case n.Set != 0:
		return x.aggregated(n.Set)
	case n.Prefix.IsValid():
		return byFamily([]netip.Prefix{renderer.Unmapped(n.Prefix)})
	}
	return Everywhere
}

// byFamily splits sorted prefixes by family.
func byFamily(sorted []netip.Prefix) Families {
	i := slices.IndexFunc(sorted, func(p netip.Prefix) bool { return !p.Addr().Is4() })
	if i < 0 {
		i = len(sorted)
	}
	return Families{sorted[:i], sorted[i:]}
}
