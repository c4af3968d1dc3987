// Package classify finds the first rule of an ACL that matches a packet.
package classify

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// NoRule is returned if no rule matches. It is larger than every rule number.
const NoRule = ^uint32(0)

// Tuple is what rules match.
type Tuple struct {
	Src, Dst         netip.Addr // of one family
	Protocol         api.Protocol
	Flags            uint8  // TCP flags; 0 for other protocols
	Fragment         bool   // not the first fragment: ports are unknown
	SrcPort, DstPort uint16 // for ICMP the type and the code
}

// Classifier finds the first matching rule of an ordered list without scanning the list. It is
// immutable and safe for concurrent use.
//
// The rules of a family with the same pair of prefixes form a bucket. A packet belongs to the
// buckets of the pairs (covering prefix of its source, covering prefix of its destination); the
// lowest matching rule number over these buckets wins. The number of pairs depends on how deeply
// prefixes are nested, not on the number of rules.
type Classifier struct {
	v4, v6 family
}

// Lookup returns the number of the first rule that matches, or NoRule.
func (c *Classifier) Lookup(t *Tuple) uint32 {
	if t.Src.Is4() {
		return c.v4.lookup(t)
	}
	return c.v6.lookup(t)
}

// family indexes the rules of one address family. The side with more distinct prefixes is the outer
// one: it is more selective.
type family struct {
	outer, inner side
	swapped      bool    // the outer side is the destination
	groups       []group // by outer node
	pairs        []pair  // by outer node, then by inner node
	hash         pairTable
	entries      []entry // of all buckets, each bucket in rule order
	indexes      []portIndex
}

// group is the pairs of one outer node: pairs[first:first+count].
type group struct {
	first, count int32
	parent       int32  // node of the longest prefix that covers this one, -1 for none
	above        uint32 // lowest rule of all nodes that cover this one
}

// fewPairs is the number of pairs of one group up to which a linear search is used instead of the
// hash table.
const fewPairs = 4

// pair is a pair of prefixes of some rules, and its bucket. It contains the first rule, because
// most buckets have no other.
type pair struct {
	inner, innerEnd int32 // inner node and the end of the nodes it covers
	head            entry
	first, last     uint32 // entries[first:last] is the rest of the bucket
	index           int32  // into indexes for a large bucket, else -1
}

// entry is a rule without its prefixes.
type entry struct {
	rule         uint32
	sport, dport Range
	proto        api.Protocol
	mask, value  uint8 // zero unless the protocol is TCP
}

func (e *entry) matches(t *Tuple) bool {
	if e.proto != t.Protocol || t.Fragment {
		return e.proto == api.AnyProtocol || e.proto == t.Protocol
	}
	return e.sport.contains(t.SrcPort) && e.dport.contains(t.DstPort) && t.Flags&e.mask == e.value ||
		e.proto == api.AnyProtocol
}

func (f *family) lookup(t *Tuple) uint32 {
	o, i := t.Src, t.Dst
	if f.swapped {
		o, i = i, o
	}
	n, inner := f.outer.find(o), f.inner.find(i)
	if inner < 0 {
		return NoRule
	}
	best := NoRule
	for n >= 0 {
		g := &f.groups[n]
		if g.count > fewPairs {
			best = f.lookupHash(t, n, inner, best)
		} else {
			pairs := f.pairs[g.first : g.first+g.count]
			for i := range pairs {
				if p := &pairs[i]; p.head.rule < best && p.inner <= inner && inner < p.innerEnd {
					best = f.lookupPair(t, p, best)
				}
			}
		}
		if g.above >= best {
			break
		}
		n = g.parent
	}
	return best
}

// lookupHash looks up the pairs of an outer node with every node that covers the inner address.
func (f *family) lookupHash(t *Tuple, outer, inner int32, best uint32) uint32 {
	for ; inner >= 0; inner = f.inner.nodes[inner].parent {
		if i := f.hash.get(outer, inner); i >= 0 && f.pairs[i].head.rule < best {
			best = f.lookupPair(t, &f.pairs[i], best)
		}
	}
	return best
}

// lookupPair returns the lower of best and the first rule of the bucket that
// matches; the first rule of the bucket is lower than best.
func (f *family) lookupPair(t *Tuple, p *pair, best uint32) uint32 {
	if p.head.matches(t) {
		return p.head.rule
	}
	if p.index >= 0 {
		return min(best, f.indexes[p.index].lookup(t))
	}
	entries := f.entries[p.first:p.last]
	for i := range entries {
		e := &entries[i]
		if e.rule >= best {
			break
		}
		if e.matches(t) {
			return e.rule
		}
	}
	return best
}

// pairTable is an open-addressing hash table from (outer node, inner node) to a pair, for groups
// with many pairs.
type pairTable struct {
	keys   []uint64
	values []int32 // -1 is free
	mask   uint64
}

func pairKey(outer, inner int32) uint64 { return uint64(uint32(outer))<<32 | uint64(uint32(inner)) }

func pairSlot(key, mask uint64) uint64 {
	key *= golden
	return (key ^ key>>29) & mask
}

func (h *pairTable) get(outer, inner int32) int32 {
	key := pairKey(outer, inner)
	for i := pairSlot(key, h.mask); h.values[i] >= 0; i = (i + 1) & h.mask {
		if h.keys[i] == key {
			return h.values[i]
		}
	}
	return -1
}
