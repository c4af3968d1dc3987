package entries_test

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/internal/prefixes"
)

// near generates prefixes that often contain each other or are halves of one.
func near(t *rapid.T, name string) netip.Prefix {
	base := netip.MustParseAddr(rapid.SampledFrom([]string{"10.1.2.0", "0.0.0.0", "fd00::", "::", "::ffff:10.1.2.0", "fd00:0:0:1::"}).Draw(t, name))
	b := base.AsSlice()
	b[len(b)/2-1] ^= rapid.SampledFrom([]byte{0, 0, 1, 128}).Draw(t, name+" middle")
	b[len(b)-1] ^= rapid.SampledFrom([]byte{0, 1, 2, 3, 128}).Draw(t, name+" end")
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, name+" bits")).Masked()
}

func TestNetIsPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, q := near(t, "p"), near(t, "q")
		if rapid.Bool().Draw(t, "halves") && p.Bits() < p.Addr().BitLen() {
			p, q = prefixes.Halves(p)
		}
		n, o := entries.NetOf(p), entries.NetOf(q)
		if n.Prefix() != p || n.Bits() != p.Bits() || n.Is6() != p.Addr().Is6() || n.String() != p.String() || (n == o) != (p == q) {
			t.Fatalf("%s is %s, of %d bits", p, n, n.Bits())
		}
		if got, want := n.Contains(&o), p.Contains(q.Addr()); got != want {
			t.Errorf("%s contains %s: %t", p, q, got)
		}
	})
	if n := entries.NetOf(netip.Prefix{}); n != (entries.Net{}) || n.Prefix().IsValid() || n.Bits() != -1 || n.Contains(&n) {
		t.Errorf("no prefix is %s", n)
	}
}
