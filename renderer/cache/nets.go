package cache

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

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

// Nets resolves nets to prefixes for dataplanes without sets, and memoizes the prefixes of sets. It
// is valid for one state of the sets and used by one goroutine.
type Nets struct {
	members func(api.SetID) []netip.Prefix
	sets    map[api.SetID]Families
}

// NewNets returns a Nets. members returns the members of a set, sorted by ComparePrefixes.
func NewNets(members func(api.SetID) []netip.Prefix) *Nets {
	return &Nets{members: members, sets: make(map[api.SetID]Families)}
}

// Of returns the fewest prefixes that contain exactly the addresses of a net. Callers must not
// change them.
func (x *Nets) Of(n api.Net) Families {
	switch {
	case n.Set != 0:
		f, ok := x.sets[n.Set]
		if !ok {
			f = byFamily(prefixes.Aggregate(slices.Clone(x.members(n.Set))))
			x.sets[n.Set] = f
		}
		return f
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
