package entries

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Net is a prefix without pointers, in 17 bytes: tables have hundreds of thousands, which the
// garbage collector need not look at. It is comparable. The zero value is no prefix.
type Net struct {
	addr [16]byte // IPv4 as an IPv6 address that maps it
	kind uint8    // 0, or the length of a prefix plus firstIPv4 or firstIPv6
}

const firstIPv4, firstIPv6 = 1, 1 + 33

// NetOf returns a prefix; of an invalid one the zero value.
func NetOf(p netip.Prefix) Net {
	switch {
	case !p.IsValid():
		return Net{}
	case p.Addr().Is4():
		return Net{p.Addr().As16(), uint8(firstIPv4 + p.Bits())}
	}
	return Net{p.Addr().As16(), uint8(firstIPv6 + p.Bits())}
}

// NetsOf returns prefixes. It appends to out.
func NetsOf(out []Net, prefixes []netip.Prefix) []Net {
	out = slices.Grow(out, len(prefixes))
	for _, p := range prefixes {
		out = append(out, NetOf(p))
	}
	return out
}

// Prefix returns the prefix in its usual form.
func (n Net) Prefix() netip.Prefix {
	switch {
	case n.kind == 0:
		return netip.Prefix{}
	case n.Is6():
		return netip.PrefixFrom(netip.AddrFrom16(n.addr), n.Bits())
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(n.addr[12:])), n.Bits())
}

// As16 returns the address; IPv4 as an IPv6 address that maps it.
func (n *Net) As16() [16]byte { return n.addr }

// String returns the prefix as text.
func (n Net) String() string { return n.Prefix().String() }

// Is6 reports whether the prefix is one of IPv6.
func (n *Net) Is6() bool { return n.kind >= firstIPv6 }

// Bits returns the length of the prefix; of the zero value -1.
func (n *Net) Bits() int {
	if n.Is6() {
		return int(n.kind) - firstIPv6
	}
	return int(n.kind) - firstIPv4
}

// IsHost reports whether the prefix is one address.
func (n *Net) IsHost() bool { return n.Bits() == n.bitLen() }

// bitLen returns the length of the prefix's addresses.
func (n *Net) bitLen() int {
	switch {
	case n.kind == 0:
		return 0
	case n.Is6():
		return 128
	}
	return 32
}

// within returns the length of the prefix among 16 bytes.
func (n *Net) within() int {
	if n.Is6() {
		return int(n.kind) - firstIPv6
	}
	return int(n.kind) - firstIPv4 + 96
}

// high and low are the halves of the address as numbers.
func (n *Net) high() uint64 { return binary.BigEndian.Uint64(n.addr[:8]) }
func (n *Net) low() uint64  { return binary.BigEndian.Uint64(n.addr[8:]) }

// Contains reports whether the prefix contains the first address of another one.
func (n *Net) Contains(o *Net) bool {
	if n.kind == 0 || o.kind == 0 || n.Is6() != o.Is6() {
		return false
	}
	high, bits := n.high()^o.high(), n.within()
	if bits > 64 {
		return high == 0 && (n.low()^o.low())>>(128-bits) == 0
	}
	return high>>(64-bits) == 0
}

// Wider returns the prefix that is one bit shorter.
func (n Net) Wider() Net {
	at := n.within() - 1
	n.addr[at/8] &^= 0x80 >> (at % 8)
	n.kind--
	return n
}

// Hash returns a number that depends on the prefix alone, also after a restart.
func (n *Net) Hash() uint32 {
	h := uint32(2166136261)
	for _, b := range n.addr {
		h = (h ^ uint32(b)) * 16777619
	}
	h = (h ^ uint32(n.kind)) * 16777619
	return h ^ h>>16
}
