package cache

import (
	"cmp"
	"net/netip"
)

// ComparePrefixes orders prefixes by address, IPv4 first, a prefix before its parts.
func ComparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Aggregate returns the fewest prefixes that hold exactly the same addresses, in
// the same order. The prefixes must be masked and sorted by ComparePrefixes; the
// slice is reused.
func Aggregate(sorted []netip.Prefix) []netip.Prefix {
	out := sorted[:0]
	for _, p := range sorted {
		if n := len(out); n > 0 && out[n-1].Contains(p.Addr()) {
			continue // sorted: the one before starts no later, so it holds all of p
		}
		for n := len(out); n > 0; n = len(out) {
			parent, ok := Siblings(out[n-1], p)
			if !ok {
				break
			}
			p, out = parent, out[:n-1]
		}
		out = append(out, p)
	}
	return out
}

// Siblings returns the prefix that two prefixes are the halves of, the lower first.
func Siblings(a, b netip.Prefix) (parent netip.Prefix, ok bool) {
	bits := a.Bits()
	if bits == 0 || b.Bits() != bits || a.Addr().BitLen() != b.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	parent = netip.PrefixFrom(a.Addr(), bits-1)
	return parent, parent == parent.Masked() && parent.Contains(b.Addr())
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// isHost says whether the prefix is one address.
func isHost(p netip.Prefix) bool { return p.Bits() == p.Addr().BitLen() }
