package prefixes

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The tests look at the addresses base + 0 to base + 255 of each family, one by one. The varying
// bits are the last bits of an IPv4 address, middle bits of an IPv6 address, and the first bits of
// both.
var bases = []struct {
	from  netip.Addr
	shift int // position of the varying bits
}{
	{netip.MustParseAddr("10.1.2.0"), 24}, {netip.MustParseAddr("0.0.0.0"), 0},
	{netip.MustParseAddr("fd00::"), 56}, {netip.MustParseAddr("::"), 0}, {netip.MustParseAddr("fd00::ab00"), 120},
}

func at(base netip.Addr, shift int, n byte) netip.Addr {
	b := base.AsSlice()
	b[shift/8] = n
	a, _ := netip.AddrFromSlice(b)
	return a
}

func gen(t *rapid.T, base netip.Addr, shift int) netip.Prefix {
	n, bits := rapid.Byte().Draw(t, "address"), rapid.IntRange(0, 8).Draw(t, "bits")
	return netip.PrefixFrom(at(base, shift, n), shift+bits).Masked()
}

func holds(all []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
}

func TestAggregateHoldsSamePoints(t *testing.T) {
	for _, base := range bases {
		t.Run(base.from.String(), rapid.MakeCheck(func(t *rapid.T) {
			in := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix { return gen(t, base.from, base.shift) }), 0, 40).Draw(t, "in")
			slices.SortFunc(in, Compare)
			out := Aggregate(slices.Clone(in))
			if !slices.IsSortedFunc(out, Compare) {
				t.Fatalf("%v is not in order", out)
			}
			for n := range 256 {
				if a := at(base.from, base.shift, byte(n)); holds(in, a) != holds(out, a) {
					t.Fatalf("%v: %v becomes %v", a, in, out)
				}
			}
			// The result is minimal: no prefix contains another, and no two are halves of one.
			for i, p := range out {
				for _, o := range out[i+1:] {
					if _, ok := Parent(p, o); ok || p.Overlaps(o) {
						t.Fatalf("%v: %v and %v could be one", out, p, o)
					}
				}
			}
		}))
	}
}

func TestHalvesAreHalves(t *testing.T) {
	for _, base := range bases {
		t.Run(base.from.String(), rapid.MakeCheck(func(t *rapid.T) {
			p, o := gen(t, base.from, base.shift), gen(t, base.from, base.shift)
			if IsHost(p) {
				return
			}
			low, high := Halves(p)
			if low.Overlaps(high) || Compare(low, high) >= 0 || low != low.Masked() || high != high.Masked() {
				t.Fatalf("%v is divided into %v and %v", p, low, high)
			}
			for n := range 256 {
				a := at(base.from, base.shift, byte(n))
				if p.Contains(a) != (low.Contains(a) || high.Contains(a)) {
					t.Fatalf("%v is divided into %v and %v, and %v is not", p, low, high, a)
				}
			}
			if parent, ok := Parent(low, high); !ok || parent != p {
				t.Fatalf("%v and %v have the parent %v, want %v", low, high, parent, p)
			}
			if _, ok := Parent(p, o); ok != slices.Contains(halvesOfAll(p, o), o) {
				t.Fatalf("%v and %v have a parent: %v", p, o, ok)
			}
		}))
	}
}

// halvesOfAll returns the upper half of the prefix whose lower half is p.
func halvesOfAll(p, o netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	if p.Bits() > 0 && p.Addr().BitLen() == o.Addr().BitLen() {
		if low, high := Halves(netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked()); low == p {
			out = append(out, high)
		}
	}
	return out
}

func TestCompareOrdersLikeNetip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := rapid.SampledFrom(bases).Draw(t, "x"), rapid.SampledFrom(bases).Draw(t, "y")
		a, b := gen(t, x.from, x.shift), gen(t, y.from, y.shift)
		if got, want := Compare(a, b), a.Compare(b); got != want {
			t.Fatalf("%v and %v: %d, want %d", a, b, got, want)
		}
	})
}

func TestHost(t *testing.T) {
	for text, is := range map[string]bool{"10.0.0.1/32": true, "10.0.0.0/31": false, "fd00::/128": true, "fd00::/127": false} {
		p := netip.MustParsePrefix(text)
		if IsHost(p) != is || is && Host(p.Addr()) != p {
			t.Errorf("%v: is one address: %v", p, IsHost(p))
		}
	}
}

// TestPutKeepsFewest: a list that changes step by step is the list of what it holds.
func TestPutKeepsFewest(t *testing.T) {
	for _, base := range bases {
		t.Run(base.from.String(), rapid.MakeCheck(func(t *rapid.T) {
			var list []netip.Prefix
			bits := base.shift + 8
			in := make(map[netip.Prefix]bool)
			for range rapid.IntRange(1, 300).Draw(t, "steps") {
				p := netip.PrefixFrom(at(base.from, base.shift, rapid.Byte().Draw(t, "address")), bits).Masked()
				in[p] = !in[p]
				list = Put(list, p, in[p])
				var want []netip.Prefix
				for p, in := range in {
					if in {
						want = append(want, p)
					}
				}
				slices.SortFunc(want, Compare)
				if want = Aggregate(want); !slices.Equal(list, want) {
					t.Fatalf("with %v: %t: %v, want %v", p, in[p], list, want)
				}
			}
		}))
	}
}
