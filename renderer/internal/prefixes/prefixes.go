// Package prefixes computes with prefixes of addresses. Prefixes are masked; lists of them are in
// the order of Compare, where that is said. It is pure.
package prefixes

import (
	"cmp"
	"net/netip"
)

// Compare orders prefixes by address, IPv4 first, a prefix before its parts.
func Compare(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Host returns the prefix that holds one address alone.
func Host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// IsHost reports whether a prefix is one address.
func IsHost(p netip.Prefix) bool { return p.Bits() == p.Addr().BitLen() }

// Aggregate returns the fewest prefixes that hold exactly the same addresses, in the same order.
// The prefixes must be in order, and may overlap; the slice is reused.
func Aggregate(sorted []netip.Prefix) []netip.Prefix {
	out := sorted[:0]
	for _, p := range sorted {
		if n := len(out); n > 0 && out[n-1].Contains(p.Addr()) {
			continue // in order: the one before starts no later, so it holds all of p
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

// Parent returns the prefix that two prefixes are the halves of, the lower first.
func Parent(low, high netip.Prefix) (parent netip.Prefix, ok bool) {
	bits := low.Bits()
	if bits == 0 || high.Bits() != bits || low.Addr().BitLen() != high.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	parent = netip.PrefixFrom(low.Addr(), bits-1)
	return parent, low != high && parent == parent.Masked() && parent.Contains(high.Addr())
}

// Halves divides a prefix that holds more than one address.
func Halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits() + 1
	b := p.Addr().AsSlice()
	b[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	upper, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(upper, bits)
}
