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

// Has reports in which families a net has addresses.
func (x *Nets) Has(n api.Net) [2]bool {
	switch {
	case n.Set != 0:
		all := x.aggregated(n.Set)
		return [2]bool{len(all[0]) > 0, len(all[1]) > 0}
	case n.Prefix.IsValid():
		is4 := renderer.Unmapped(n.Prefix).Addr().Is4()
		return [2]bool{is4, !is4}
	}
	return [2]bool{true, true}
}

// byFamily splits sorted prefixes by family.
func byFamily(sorted []netip.Prefix) Families {
	i := slices.IndexFunc(sorted, func(p netip.Prefix) bool { return !p.Addr().Is4() })
	if i < 0 {
		i = len(sorted)
	}
	return Families{sorted[:i], sorted[i:]}
}
