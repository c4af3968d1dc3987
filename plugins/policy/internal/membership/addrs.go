package membership

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// addrList collects the members of a set. It stores and sorts IPv4 addresses, of which there may be
// tens of thousands, as numbers: a quarter of the memory, and a fraction of the time.
type addrList struct {
	v4 []uint32
	v6 []netip.Addr
}

func (l *addrList) add(a netip.Addr) {
	if !a.Is4() {
		l.v6 = append(l.v6, a)
		return
	}
	b := a.As4()
	l.v4 = append(l.v4, binary.BigEndian.Uint32(b[:]))
}

// take returns the addresses, sorted and without duplicates, as prefixes of one address, or nil if
// there are none. It empties the list but keeps its memory. spare is memory for sorting; take
// returns it, possibly larger.
func (l *addrList) take(spare []uint32) (out []netip.Prefix, _ []uint32) {
	sorted, spare := sortNumbers(l.v4, spare)
	l.v4 = sorted
	v4 := slices.Compact(sorted)
	slices.SortFunc(l.v6, netip.Addr.Compare)
	v6 := slices.Compact(l.v6)
	if n := len(v4) + len(v6); n > 0 {
		out = make([]netip.Prefix, 0, n)
	}
	for _, v := range v4 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], v)
		out = append(out, netip.PrefixFrom(netip.AddrFrom4(b), 32))
	}
	for _, a := range v6 {
		out = append(out, netip.PrefixFrom(a, 128))
	}
	l.v4, l.v6 = l.v4[:0], l.v6[:0]
	return out, spare
}

// radixNumbers is the length from which radix sort with three passes is cheaper than comparing.
const radixNumbers = 512

// sortNumbers sorts in ascending order, using spare. The result may be in the memory of either
// argument; the other one is returned as the new spare.
func sortNumbers(v, spare []uint32) (sorted, _ []uint32) {
	if len(v) < radixNumbers {
		slices.Sort(v)
		return v, spare
	}
	const digit = 11
	spare = slices.Grow(spare[:0], len(v))[:len(v)]
	for shift := 0; shift < 32; shift += digit {
		var at [1 << digit]int32
		for _, x := range v {
			at[x>>shift&(1<<digit-1)]++
		}
		sum := int32(0)
		for i, n := range at {
			at[i] = sum
			sum += n
		}
		for _, x := range v {
			d := x >> shift & (1<<digit - 1)
			spare[at[d]] = x
			at[d]++
		}
		v, spare = spare, v
	}
	return v, spare
}

// prefixes returns addresses as prefixes of one address each, or nil if there are none.
func prefixes(addrs []netip.Addr) []netip.Prefix {
	if len(addrs) == 0 {
		return nil
	}
	out := make([]netip.Prefix, len(addrs))
	for i, a := range addrs {
		out[i] = netip.PrefixFrom(a, a.BitLen())
	}
	return out
}
