package configurator

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
)

// block is a CIDR with exceptions, and the ports on which it is a peer.
type block struct {
	cidr   netip.Prefix
	except []netip.Prefix // by address; within cidr, may overlap
	ports  portSet
}

// newBlock returns false for a block without addresses: its exceptions cover it, or it is
// malformed.
func newBlock(b api.IPBlock, ports portSet) (block, bool) {
	if !b.CIDR.IsValid() || len(ports) == 0 {
		return block{}, false
	}
	cidr := b.CIDR.Masked()
	var except []netip.Prefix
	for _, e := range b.Except {
		if !e.IsValid() {
			return block{}, false // an exception of unknown extent: the block could be too large
		}
		e = e.Masked()
		switch {
		case !cidr.Overlaps(e):
		case e.Bits() <= cidr.Bits():
			return block{}, false
		default:
			except = append(except, e)
		}
	}
	slices.SortFunc(except, netip.Prefix.Compare)
	return block{cidr, except, ports}, true
}

// isUnknown reports whether a block is malformed.
func isUnknown(b api.IPBlock) bool {
	return !b.CIDR.IsValid() || slices.ContainsFunc(b.Except, func(e netip.Prefix) bool { return !e.IsValid() })
}

// addTo adds the CIDR without the exceptions.
func (b *block) addTo(set *netipx.IPSetBuilder) {
	whole := netipx.RangeOfPrefix(b.cidr)
	from := whole.From()
	for _, e := range b.except {
		hole := netipx.RangeOfPrefix(e)
		if from.Less(hole.From()) {
			set.AddRange(netipx.IPRangeFrom(from, hole.From().Prev()))
		}
		if hole.To() == whole.To() {
			return
		}
		if next := hole.To().Next(); from.Less(next) {
			from = next
		}
	}
	set.AddRange(netipx.IPRangeFrom(from, whole.To()))
}

// uncovered drops the ports of blocks that an outer block without exceptions permits anyway, and
// joins equal blocks. It reorders its argument. It visits blocks in the order of their addresses,
// so the blocks around the current one form a stack, at most as high as an address has bits.
func uncovered(blocks []block) []block {
	slices.SortFunc(blocks, func(a, b block) int {
		return cmp.Or(a.cidr.Compare(b.cidr), cmp.Compare(min(len(a.except), 1), min(len(b.except), 1)))
	})
	var result []block
	var outer []netip.Prefix // prefixes around the current one
	var covers []portSet     // the ports on which they are permitted completely
	for i := 0; i < len(blocks); {
		b, next := joinEqual(blocks, i)
		i = next
		for n := len(outer) - 1; n >= 0 && !outer[n].Contains(b.cidr.Addr()); n-- {
			outer, covers = outer[:n], covers[:n]
		}
		if b.ports = without(b.ports, covers...); len(b.ports) == 0 {
			continue
		}
		result = append(result, b)
		if len(b.except) == 0 {
			outer, covers = append(outer, b.cidr), append(covers, b.ports)
		}
	}
	return result
}

// joinEqual returns the i-th block, joined with all equal ones if it has no exceptions, and the
// index of the next block.
func joinEqual(blocks []block, i int) (b block, next int) {
	b, next = blocks[i], i+1
	if len(b.except) > 0 {
		return b, next
	}
	for next < len(blocks) && blocks[next].cidr == b.cidr && len(blocks[next].except) == 0 {
		next++
	}
	if next == i+1 {
		return b, next
	}
	var raw []span
	for _, equal := range blocks[i:next] {
		raw = append(raw, equal.ports...)
	}
	b.ports = newPortSet(raw)
	return b, next
}

// uncoveredBy is uncovered, given ports on which everything is covered.
func uncoveredBy(any portSet, blocks []block) []block {
	if len(any) == 0 {
		return uncovered(blocks)
	}
	kept := blocks[:0]
	for _, b := range uncovered(blocks) {
		if b.ports = without(b.ports, any); len(b.ports) > 0 {
			kept = append(kept, b)
		}
	}
	return kept
}

// region is a set of addresses that are peers on the same ports.
type region struct {
	addrs netipx.IPSetBuilder
	spans []span         // of all its blocks
	seen  map[*span]bool // first spans of the port sets that are in spans already
}

// regions unites the blocks that have equal port sets. It keeps ranges and does not split them into
// prefixes.
func regions(blocks []block) []*region {
	var all []*region
	byPorts := map[string]*region{}
	byIdentity := map[*span]*region{} // avoids computing keys for rules with many blocks
	var key []byte
	for i := range blocks {
		b := &blocks[i]
		r := byIdentity[&b.ports[0]]
		if r == nil {
			key = b.ports.appendKey(key[:0])
			if r = byPorts[string(key)]; r == nil {
				r = &region{seen: map[*span]bool{}}
				byPorts[string(key)] = r
				all = append(all, r)
			}
			byIdentity[&b.ports[0]] = r
		}
		if !r.seen[&b.ports[0]] {
			r.seen[&b.ports[0]] = true
			r.spans = append(r.spans, b.ports...)
		}
		b.addTo(&r.addrs)
	}
	return all
}

// fewPrefixes returns the prefixes of some addresses if there are few.
func fewPrefixes(addrs *netipx.IPSet) ([]netip.Prefix, bool) {
	if len(addrs.Ranges()) > maxInline {
		return nil, false // there is at least one prefix per range
	}
	prefixes := addrs.Prefixes()
	return prefixes, len(prefixes) <= maxInline
}
