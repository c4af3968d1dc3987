package oracle

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// errAddress is the error for text that is not an address or a prefix.
var errAddress = errors.New("not an address")

// Block is an ipBlock: a prefix without the union of its excepts.
type Block struct {
	CIDR   netip.Prefix
	Except []netip.Prefix
}

// contains reports whether the address is in the block; if an except excludes it, hole is that
// except. Families never match each other.
func (b Block) contains(a netip.Addr) (ok bool, hole netip.Prefix) {
	if !b.CIDR.Contains(a) {
		return false, netip.Prefix{}
	}
	for _, e := range b.Except {
		if e.Contains(a) {
			return false, e
		}
	}
	return true, netip.Prefix{}
}

// ParseBlock fails if any part of the block is invalid: dropping an except would allow traffic that
// it was meant to keep out.
func ParseBlock(b *networkingv1.IPBlock) (Block, error) {
	cidr, err := parsePrefix(b.CIDR)
	if err != nil {
		return Block{}, fmt.Errorf("cidr %q: %w", b.CIDR, err)
	}
	out := Block{CIDR: cidr}
	for _, text := range b.Except {
		e, err := parsePrefix(text)
		if err != nil {
			return Block{}, fmt.Errorf("except %q: %w", text, err)
		}
		if e.Bits() <= cidr.Bits() || !cidr.Contains(e.Addr()) {
			return Block{}, fmt.Errorf("except %s is not a strict part of %s", e, cidr)
		}
		out.Except = append(out.Except, e)
	}
	return out, nil
}

// parsePrefix parses a CIDR as leniently as old API servers did: host bits are masked, leading
// zeros are decimal, an IPv6 prefix within ::ffff:0:0/96 is the IPv4 prefix that it maps.
func parsePrefix(s string) (netip.Prefix, error) {
	addrText, bitsText, ok := strings.Cut(s, "/")
	if !ok || strings.Trim(bitsText, "0123456789") != "" {
		return netip.Prefix{}, fmt.Errorf("%w and a prefix length", errAddress)
	}
	a, err := parseMapped(addrText)
	if err != nil {
		return netip.Prefix{}, err
	}
	bits, err := strconv.Atoi(bitsText)
	if err != nil || bits > a.BitLen() {
		return netip.Prefix{}, fmt.Errorf("%w: prefix length %q is out of range", errAddress, bitsText)
	}
	if a.Is4In6() && bits >= 96 {
		a, bits = a.Unmap(), bits-96
	}
	return netip.PrefixFrom(a, bits).Masked(), nil
}

// parseAddr parses an address equally leniently.
func parseAddr(s string) (netip.Addr, error) {
	a, err := parseMapped(s)
	return a.Unmap(), err
}

// parseMapped parses an address without zone and leaves IPv4-mapped ones mapped.
func parseMapped(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		a, err = netip.ParseAddr(trimZeros(s))
	}
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, errAddress
	}
	return a, nil
}

// trimZeros removes leading zeros from the octets of a dotted address, also of
// one that ends an IPv6 address.
func trimZeros(s string) string {
	head, dotted := "", s
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		head, dotted = s[:i+1], s[i+1:]
	}
	octets := strings.Split(dotted, ".")
	if len(octets) != 4 {
		return s
	}
	for i, o := range octets {
		if trimmed := strings.TrimLeft(o, "0"); trimmed != "" || o == "" {
			octets[i] = trimmed
		} else {
			octets[i] = "0"
		}
	}
	return head + strings.Join(octets, ".")
}
