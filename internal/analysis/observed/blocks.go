package observed

import (
	"net/netip"
	"slices"
)

// maxBlocks is above how many blocks addresses of one port are put together in larger ones.
const maxBlocks = 16

// widths are the lengths of prefixes that addresses are put together in, by family.
var widths = map[bool][]int{true: {28, 24, 20, 16, 12, 8}, false: {64, 56, 48, 32}}

// block is a prefix that stands for some addresses.
type block struct {
	netip.Prefix
	addrs []netip.Addr // that were observed, sorted
}

// blocksOf puts addresses into blocks, each of which is of a family: into those that have no other
// address and, where these are too many, into larger ones in which no pod and no node is. inside
// are the sorted addresses of these.
func blocksOf(addrs []netip.Addr, inside []netip.Addr) (out []block) {
	for _, is4 := range []bool{true, false} {
		var family []block
		for _, a := range sortedAddrs(addrs) {
			if a.Is4() == is4 {
				family = append(family, block{netip.PrefixFrom(a, a.BitLen()), []netip.Addr{a}})
			}
		}
		family = joined(family)
		for _, bits := range widths[is4] {
			if len(family) <= maxBlocks {
				break
			}
			family = widened(family, bits, inside)
		}
		out = append(out, family...)
	}
	return out
}

func sortedAddrs(addrs []netip.Addr) []netip.Addr {
	out := slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
	return slices.Compact(out)
}

// holdsAny reports whether a prefix without host bits contains one of some sorted addresses.
func holdsAny(p netip.Prefix, sorted []netip.Addr) bool {
	i, _ := slices.BinarySearchFunc(sorted, p.Addr(), netip.Addr.Compare)
	return i < len(sorted) && p.Contains(sorted[i])
}

// joined replaces two halves of a prefix by it, again and again. Blocks are sorted and apart.
func joined(blocks []block) (out []block) {
	for _, b := range blocks {
		out = append(out, b)
		for n := len(out); n > 1; n = len(out) {
			x, y := out[n-2], out[n-1]
			up := netip.PrefixFrom(x.Addr(), x.Bits()-1)
			if x.Bits() != y.Bits() || x.Bits() == 0 || up.Masked() != up || !up.Contains(y.Addr()) {
				break
			}
			out = append(out[:n-2], block{up, slices.Concat(x.addrs, y.addrs)})
		}
	}
	return out
}

// widened puts blocks together that are in one prefix of a length.
func widened(blocks []block, bits int, inside []netip.Addr) (out []block) {
	for len(blocks) > 0 {
		p, n := blocks[0].Prefix, 1
		if p.Bits() > bits {
			p, _ = p.Addr().Prefix(bits) // its family has so many bits
		}
		var all []netip.Addr
		for n < len(blocks) && p.Contains(blocks[n].Addr()) {
			n++
		}
		for _, b := range blocks[:n] {
			all = append(all, b.addrs...)
		}
		if n == 1 || holdsAny(p, inside) {
			out = append(out, blocks[:n]...)
		} else {
			out = append(out, block{p, all})
		}
		blocks = blocks[n:]
	}
	return out
}
