package configurator

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
)

// block is a CIDR without some holes, and the ports on which it is a peer.
type block struct {
	cidr   netip.Prefix
	except []netip.Prefix // by address; each within cidr, they may overlap each other
	ports  portSet
}

// newBlock returns false for a block without an address: one that is covered by
// its holes, or that is not well formed.
func newBlock(b api.IPBlock, ports portSet) (block, bool) {
	if !b.CIDR.IsValid() || len(ports) == 0 {
		return block{}, false
	}
	cidr := b.CIDR.Masked()
	var except []netip.Prefix
	for _, e := range b.Except {
		if !e.IsValid() {
			return block{}, false // a hole of unknown extent: the block could be too large
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

// isUnknown reports whether a block is not well formed.
func isUnknown(b api.IPBlock) bool {
	return !b.CIDR.IsValid() || slices.ContainsFunc(b.Except, func(e netip.Prefix) bool { return !e.IsValid() })
}

// addTo adds what the holes leave of the CIDR.
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

// uncovered drops the ports of blocks that an outer block without holes permits
// anyway, and joins equal blocks. It reorders its argument. Because blocks are
// visited in the order of their addresses, those around one are on a stack, which
// is never higher than an address has bits.
func uncovered(blocks []block) []block {
	slices.SortFunc(blocks, func(a, b block) int {
		return cmp.Or(a.cidr.Compare(b.cidr), cmp.Compare(min(len(a.except), 1), min(len(b.except), 1)))
	})
	var result []block
	var outer []netip.Prefix // prefixes around the current one, and
	var covers []portSet     // the ports on which they are permitted whole
	for i := 0; i < len(blocks); {
		b, next := joinEqual(blocks, i)
		i = next
		for n := len(outer) - 1; n >= 0 && !outer[n].Contains(b.cidr.Addr()); n-- {
			outer, covers = outer[:n], covers[:n]
		}
		if b.ports = b.ports.without(covers...); len(b.ports) == 0 {
			continue
		}
		result = append(result, b)
		if len(b.except) == 0 {
			outer, covers = append(outer, b.cidr), append(covers, b.ports)
		}
	}
	return result
}

// joinEqual returns the i-th block, joined with all that are equal to it if it has
// no holes, and the index of the next one.
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

// uncoveredBy is uncovered with ports on which everything is covered.
func uncoveredBy(any portSet, blocks []block) []block {
	if len(any) == 0 {
		return uncovered(blocks)
	}
	kept := blocks[:0]
	for _, b := range uncovered(blocks) {
		if b.ports = b.ports.without(any); len(b.ports) > 0 {
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

// regions unites the blocks that have equal port sets. Ranges are kept as long as
// they can be: they are not made prefixes here.
func regions(blocks []block) []*region {
	var all []*region
	byPorts := map[string]*region{}
	byIdentity := map[*span]*region{} // saves the keys of rules with many blocks
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

// fewPrefixes returns the prefixes of some addresses if they are few.
func fewPrefixes(addrs *netipx.IPSet) ([]netip.Prefix, bool) {
	if len(addrs.Ranges()) > maxInline {
		return nil, false // there is at least one prefix per range
	}
	prefixes := addrs.Prefixes()
	return prefixes, len(prefixes) <= maxInline
}
