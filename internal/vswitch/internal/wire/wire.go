// Package wire converts prefixes between netip and VPP's binary API, and reads the names in its
// messages.
package wire

import (
	"net/netip"
	"strings"

	"go.fd.io/govpp/binapi/ip_types"
)

// MaxName is the maximum length of a name or tag in the messages.
const MaxName = 63

// Cut returns the first n bytes of a text, up to a NUL.
func Cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	s, _, _ = strings.Cut(s, "\x00")
	return s
}

// ReadPrefix parses a prefix. It returns false for an unknown family, an invalid length, and host
// bits that are not zero.
func ReadPrefix(w ip_types.Prefix) (netip.Prefix, bool) {
	var addr netip.Addr
	switch w.Address.Af {
	case ip_types.ADDRESS_IP4:
		addr = netip.AddrFrom4(w.Address.Un.GetIP4())
	case ip_types.ADDRESS_IP6:
		addr = netip.AddrFrom16(w.Address.Un.GetIP6())
	default:
		return netip.Prefix{}, false
	}
	p := netip.PrefixFrom(addr, int(w.Len))
	return p, p.IsValid() && p.Masked() == p
}

// Prefix is the inverse of ReadPrefix.
func Prefix(p netip.Prefix) ip_types.Prefix {
	w := ip_types.Prefix{Len: uint8(p.Bits())}
	if p.Addr().Is4() {
		w.Address.Af = ip_types.ADDRESS_IP4
		w.Address.Un.SetIP4(p.Addr().As4())
	} else {
		w.Address.Af = ip_types.ADDRESS_IP6
		w.Address.Un.SetIP6(p.Addr().As16())
	}
	return w
}
