// Package prefixes compares, aggregates, splits and joins IP prefixes. All prefixes are masked.
// Where a function requires sorted lists, Compare defines the order. The package is pure.
package prefixes

import (
	"cmp"
	"net/netip"
)

// Compare orders prefixes by address, IPv4 first, and a prefix before those that it contains.
func Compare(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Host returns the prefix that contains only the address.
func Host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// IsHost reports whether a prefix contains a single address.
func IsHost(p netip.Prefix) bool { return p.Bits() == p.Addr().BitLen() }

// Aggregate returns the fewest prefixes that contain exactly the same addresses, in order. The
// input must be in order and may overlap. Aggregate reuses the slice.
func Aggregate(sorted []netip.Prefix) []netip.Prefix {
	out := sorted[:0]
	for _, p := range sorted {
		if n := len(out); n > 0 && out[n-1].Contains(p.Addr()) {
			continue // the previous prefix starts no later, so it contains all of p
		}
		for n := len(out); n > 0; n = len(out) {
			parent, ok := Parent(out[n-1], p)
			if !ok {
				break
			}
			p, out = parent, out[:n-1]
		}
		out = append(out, p)
	}
	return out
}

// Parent returns the prefix of which low and high are the two halves; ok is false if there is none.
func Parent(low, high netip.Prefix) (parent netip.Prefix, ok bool) {
	bits := low.Bits()
	if bits == 0 || high.Bits() != bits || low.Addr().BitLen() != high.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	parent = netip.PrefixFrom(low.Addr(), bits-1)
	return parent, low != high && parent == parent.Masked() && parent.Contains(high.Addr())
}

// Halves splits a prefix that contains more than one address.
func Halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits() + 1
	b := p.Addr().AsSlice()
	b[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	upper, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(upper, bits)
}
