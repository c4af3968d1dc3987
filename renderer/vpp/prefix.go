package vpp

import (
	"net/netip"

	"go.fd.io/govpp/binapi/ip_types"
)

// ToPrefix converts a valid prefix for use in VPP messages.
func ToPrefix(p netip.Prefix) ip_types.Prefix {
	out := ip_types.Prefix{Len: uint8(p.Bits())}
	if a := p.Addr(); a.Is4() {
		out.Address.Un.SetIP4(a.As4())
	} else {
		out.Address.Af = ip_types.ADDRESS_IP6
		out.Address.Un.SetIP6(a.As16())
	}
	return out
}

// FromPrefix converts a prefix from a message. A prefix that is too long becomes invalid.
func FromPrefix(p ip_types.Prefix) netip.Prefix {
	if p.Address.Af == ip_types.ADDRESS_IP4 {
		return netip.PrefixFrom(netip.AddrFrom4(p.Address.Un.GetIP4()), int(p.Len))
	}
	return netip.PrefixFrom(netip.AddrFrom16(p.Address.Un.GetIP6()), int(p.Len))
}
