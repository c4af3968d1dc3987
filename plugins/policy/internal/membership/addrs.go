package membership

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// deltas collects by how much the number of pods that have an address changes. It stores and sorts
// those of IPv4 addresses, of which there may be tens of thousands, as numbers: a quarter of the
// memory, and a fraction of the time.
type deltas struct {
	v4 []uint64 // the address times two, plus one for a pod that joins
	v6 []delta
}

// delta means that d more pods have an address.
type delta struct {
	addr netip.Addr
	d    int
}

// add records that d more pods have an address.
func (l *deltas) add(a netip.Addr, d int) {
	if !a.Is4() {
		l.v6 = append(l.v6, delta{a, d})
		return
	}
	b := a.As4()
	v := uint64(binary.BigEndian.Uint32(b[:])) << 1
	if d > 0 {
		v |= 1
	}
	for range max(d, -d) {
		l.v4 = append(l.v4, v)
	}
}

// negated returns the opposite of the deltas.
func (l *deltas) negated() (out deltas) {
	for _, v := range l.v4 {
		out.v4 = append(out.v4, v^1)
	}
	for _, x := range l.v6 {
		out.v6 = append(out.v6, delta{x.addr, -x.d})
	}
	return out
}

// size returns how many deltas are of pods that join, and how many of pods that leave.
func (l *deltas) size() (join, leave int) {
	for _, v := range l.v4 {
		join += int(v & 1)
	}
	leave = len(l.v4) - join
	for _, x := range l.v6 {
		join += max(0, x.d)
		leave += max(0, -x.d)
	}
	return join, leave
}

// keptDeltas is how much memory an empty list keeps.
const keptDeltas = 256

// drain empties the list. It calls yield with the sum for each address, in order. spare is memory for
// sorting; take returns it, possibly larger.
func (l *deltas) drain(spare []uint64, yield func(a netip.Addr, d int)) []uint64 {
	sorted, spare := sortNumbers(l.v4, spare)
	for i := 0; i < len(sorted); {
		v, d := sorted[i]>>1, 0
		for ; i < len(sorted) && sorted[i]>>1 == v; i++ {
			d += int(sorted[i]&1)*2 - 1
		}
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(v))
		yield(netip.AddrFrom4(b), d)
	}
	slices.SortFunc(l.v6, func(a, b delta) int { return a.addr.Compare(b.addr) })
	for i := 0; i < len(l.v6); {
		a, d := l.v6[i].addr, 0
		for ; i < len(l.v6) && l.v6[i].addr == a; i++ {
			d += l.v6[i].d
		}
		yield(a, d)
	}
	if l.v6 = l.v6[:0]; cap(l.v6) > keptDeltas {
		l.v6 = nil
	}
	if l.v4 = sorted[:0]; cap(l.v4) > keptDeltas {
		if cap(l.v4) > cap(spare) {
			spare = l.v4
		}
		l.v4 = nil
	}
	return spare
}

// radixNumbers is the length from which radix sort with three passes is cheaper than comparing.
const radixNumbers = 512

// sortNumbers sorts in ascending order of addresses, using spare. The result may be in the memory
// of either argument; the other one is returned as the new spare.
func sortNumbers(v, spare []uint64) (sorted, _ []uint64) {
	if len(v) < radixNumbers {
		slices.SortFunc(v, func(a, b uint64) int { return cmp.Compare(a>>1, b>>1) })
		return v, spare
	}
	const digit = 11
	spare = slices.Grow(spare[:0], len(v))[:len(v)]
	for shift := 1; shift <= 32; shift += digit {
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
