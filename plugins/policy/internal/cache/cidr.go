package cache

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// parseBlock parses a block. A block with an invalid exception matches nothing, because it is
// unknown what the exception was meant to exclude. It also returns the field with the error.
func parseBlock(m *model.NetworkPolicy_IPBlock) (b api.IPBlock, field string, err error) {
	if b.CIDR, err = parseCIDR(m.GetCidr()); err != nil {
		return b, "cidr", err
	}
	for i, text := range m.GetExcept() {
		at := fmt.Sprintf("except[%d]", i)
		e, err := parseCIDR(text)
		if err != nil {
			return b, at, err
		}
		if e.Bits() <= b.CIDR.Bits() || !b.CIDR.Overlaps(e) {
			return b, at, fmt.Errorf("%s is not a part of %s", e, b.CIDR)
		}
		b.Except = append(b.Except, e)
	}
	slices.SortFunc(b.Except, netip.Prefix.Compare)
	b.Except = slices.Compact(b.Except)
	return b, "", nil
}

// parseCIDR parses a CIDR as leniently as earlier API servers did, because objects from that time
// are still stored: host bits are masked, leading zeros of IPv4 octets are decimal, and IPv4-mapped
// IPv6 is IPv4.
func parseCIDR(s string) (netip.Prefix, error) {
	text, length, ok := strings.Cut(s, "/")
	bits, err := strconv.ParseUint(length, 10, 8)
	if !ok || err != nil {
		return netip.Prefix{}, fmt.Errorf("%.80q is not a CIDR", s)
	}
	a, err := netip.ParseAddr(trimOctets(text))
	if err != nil || a.Zone() != "" || int(bits) > a.BitLen() {
		return netip.Prefix{}, fmt.Errorf("%.80q is not a CIDR", s)
	}
	n := int(bits)
	if a.Is4In6() && n >= 96 {
		a, n = a.Unmap(), n-96
	}
	return netip.PrefixFrom(a, n).Masked(), nil
}

// trimOctets removes leading zeros from the octets of an IPv4 address, also at the end of an IPv6
// address.
func trimOctets(s string) string {
	head := ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		head, s = s[:i+1], s[i+1:]
	}
	if !strings.Contains(s, ".0") && !strings.HasPrefix(s, "0") || !strings.Contains(s, ".") {
		return head + s
	}
	octets := strings.Split(s, ".")
	for i, o := range octets {
		if t := strings.TrimLeft(o, "0"); t != "" {
			octets[i] = t
		} else if o != "" {
			octets[i] = "0"
		}
	}
	return head + strings.Join(octets, ".")
}
