package permits

import (
	"net/netip"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Members returns the members of an address set.
type Members func(api.SetID) []netip.Prefix

// Expand returns the fewest prefixes that hold exactly the addresses of the remotes: IPv4 before
// IPv6, by address.
func Expand(remotes []Remote, members Members) []netip.Prefix {
	var all netipx.IPSetBuilder
	for _, r := range remotes {
		var b netipx.IPSetBuilder
		each(r.Net, members, b.AddPrefix)
		for _, n := range r.Except {
			each(n, members, b.RemovePrefix)
		}
		if set, err := b.IPSet(); err == nil { // an invalid prefix: no address
			all.AddSet(set)
		}
	}
	set, err := all.IPSet()
	if err != nil {
		return nil
	}
	return set.Prefixes()
}

// each calls f for the prefixes of a net.
func each(n api.Net, members Members, f func(netip.Prefix)) {
	switch {
	case n.Set != 0:
		for _, p := range members(n.Set) {
			f(p)
		}
	case n.Prefix.IsValid():
		f(renderer.Unmapped(n.Prefix))
	default:
		f(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
		f(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
}
