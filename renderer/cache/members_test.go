package cache_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/cache"
)

// TestAggregatedFollowsMembers: the fewest prefixes after changes are those of a new set with the
// same members, and lists that were returned before stay as they were.
func TestAggregatedFollowsMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, in := cache.New(api.Egress), make(map[netip.Prefix]bool)
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			before := c.Aggregated(1)
			kept := cache.Families{slices.Clone(before[0]), slices.Clone(before[1])}
			for range rapid.SampledFrom([]int{1, 2, 40}).Draw(t, "at once") {
				n := rapid.IntRange(0, 63).Draw(t, "member")
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 32)
				switch {
				case n >= 60:
					p = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(n%4) << 6}), 26)
				case n >= 40:
					p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 15: byte(n)}), 128)
				}
				if in[p] = !in[p]; in[p] {
					c.UpdateSet(1, []netip.Prefix{p}, nil)
				} else {
					c.UpdateSet(1, nil, []netip.Prefix{p})
				}
			}
			fresh := cache.New(api.Egress)
			for p, in := range in {
				if in {
					fresh.UpdateSet(1, []netip.Prefix{p}, nil)
				}
			}
			got, want := c.Aggregated(1), fresh.Aggregated(1)
			for family := range got {
				if !slices.Equal(got[family], want[family]) {
					t.Fatalf("%v, want %v", got[family], want[family])
				}
				if !slices.Equal(before[family], kept[family]) {
					t.Fatalf("what was returned became %v, want %v", before[family], kept[family])
				}
			}
		}
	})
}
