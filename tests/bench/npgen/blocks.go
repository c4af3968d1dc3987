package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// What the policies of the workload ipblock are made of.
const (
	blocksPerPolicy = 50
	exceptsPerBlock = 8
)

// addBlockPolicies appends n policies with many blocks, half of them IPv6.
func (c *cluster) addBlockPolicies(n int) {
	r := newRNG(c.seed, "ipblock")
	ports := []port{tcp(80), tcp(443), tcp(5432), tcp(8080), tcp(9090)}
	for i := range n {
		var to []peer
		for b := range blocksPerPolicy {
			block := randomBlock4
			if b%2 == 1 {
				block = randomBlock6
			}
			drawn := block(r, exceptsPerBlock)
			if r.oneIn(4) {
				nestExcept(&drawn)
			}
			to = append(to, peer{IPBlock: &drawn})
		}
		c.addPolicy(i%c.size.namespaces, fmt.Sprintf("blk-%04d", i), policySpec{
			PodSelector: matching("app", appName(i%c.size.apps)), PolicyTypes: egressOnly,
			Egress: []egressRule{{ports, to}},
		})
	}
}

// nestExcept puts the second exception of an IPv4 block into the first one.
func nestExcept(b *ipBlock) {
	if outer := netip.MustParsePrefix(b.Except[0]); outer.Addr().Is4() && outer.Bits() < 31 {
		b.Except[1] = netip.PrefixFrom(outer.Addr(), outer.Bits()+1).String()
	}
}

// randomBlock4 draws a block of /8 to /20 and exceptions in it.
func randomBlock4(r *rng, excepts int) ipBlock {
	const ones = ^uint32(0)
	bits := 8 + r.below(13)
	base := uint32(1+r.below(222)) << 24
	base |= uint32(r.next() & 0xffffff)
	base &= ones << (32 - bits)
	b := ipBlock{CIDR: block4(base, bits).String()}
	for range excepts {
		inner := min(bits+2+r.below(9), 32)
		offset := uint32(r.next()) & (ones >> bits) & (ones << (32 - inner))
		b.Except = append(b.Except, block4(base|offset, inner).String())
	}
	return b
}

// randomBlock6 draws a block of /32 to /56 and exceptions in it, of up to /64.
func randomBlock6(r *rng, excepts int) ipBlock {
	const ones = ^uint64(0)
	bits := 32 + r.below(25)
	base := uint64(0x2001_0db8_0000_0000) | r.next()&0xffff_ffff
	base &= ones << (64 - bits)
	b := ipBlock{CIDR: block6(base, bits).String()}
	for range excepts {
		inner := bits + 2 + r.below(64-bits-1)
		offset := r.next() & (ones >> bits) & (ones << (64 - inner))
		b.Except = append(b.Except, block6(base|offset, inner).String())
	}
	return b
}

// block4 returns the IPv4 prefix of an address.
func block4(address uint32, bits int) netip.Prefix {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], address)
	return netip.PrefixFrom(netip.AddrFrom4(a), bits)
}

// block6 returns the IPv6 prefix of the upper half of an address.
func block6(upper uint64, bits int) netip.Prefix {
	var a [16]byte
	binary.BigEndian.PutUint64(a[:], upper)
	return netip.PrefixFrom(netip.AddrFrom16(a), bits)
}

// coverSize returns the smallest number of prefixes that make up the block without
// its exceptions, and whether they are IPv4.
func coverSize(b *ipBlock) (n int, v4 bool) {
	var excepts []netip.Prefix
	for _, e := range b.Except {
		excepts = append(excepts, netip.MustParsePrefix(e).Masked())
	}
	whole := netip.MustParsePrefix(b.CIDR).Masked()
	return countCover(whole, excepts), whole.Addr().Is4()
}

// countCover halves the prefix until a half has no exception in it or is one.
func countCover(whole netip.Prefix, excepts []netip.Prefix) int {
	var inside []netip.Prefix
	for _, e := range excepts {
		if e.Bits() <= whole.Bits() && e.Contains(whole.Addr()) {
			return 0
		}
		if whole.Contains(e.Addr()) {
			inside = append(inside, e)
		}
	}
	if len(inside) == 0 {
		return 1
	}
	low, high := halves(whole)
	return countCover(low, inside) + countCover(high, inside)
}

// halves splits a masked prefix that is not a single address.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits()
	a := p.Addr().AsSlice()
	a[bits/8] |= 0x80 >> (bits % 8)
	upper, _ := netip.AddrFromSlice(a) // always 4 or 16 bytes
	return netip.PrefixFrom(p.Addr(), bits+1), netip.PrefixFrom(upper, bits+1)
}
