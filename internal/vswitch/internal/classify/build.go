package classify

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// New indexes the rules of an ACL in O(n log n).
func New(rules []Rule) *Classifier {
	var v4, v6 []uint32
	for i := range rules {
		if rules[i].Src.Addr().Is4() {
			v4 = append(v4, uint32(i))
		} else {
			v6 = append(v6, uint32(i))
		}
	}
	return &Classifier{v4: buildFamily(rules, v4), v6: buildFamily(rules, v6)}
}

// placed is a rule with the numbers of its prefixes.
type placed struct {
	key  uint64 // pairKey of its nodes
	rule uint32
}

func buildFamily(rules []Rule, numbers []uint32) family {
	var f family
	var outerOf, innerOf []int32
	f.outer, outerOf = buildSide(numbers, func(i uint32) netip.Prefix { return rules[i].Src })
	f.inner, innerOf = buildSide(numbers, func(i uint32) netip.Prefix { return rules[i].Dst })
	if len(f.inner.nodes) > len(f.outer.nodes) {
		f.swapped = true
		f.outer, f.inner = f.inner, f.outer
		outerOf, innerOf = innerOf, outerOf
	}
	order := make([]placed, len(numbers))
	for i, n := range numbers {
		order[i] = placed{key: pairKey(outerOf[i], innerOf[i]), rule: n}
	}
	slices.SortFunc(order, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rule, b.rule))
	})
	f.groups = make([]group, len(f.outer.nodes))
	pairs := 0
	for i := range order {
		if i == 0 || order[i].key != order[i-1].key {
			pairs++
		}
	}
	f.pairs = make([]pair, 0, pairs)
	var bucket []entry
	for len(order) > 0 {
		key, n := order[0].key, 1
		for n < len(order) && order[n].key == key {
			n++
		}
		bucket = appendBucket(bucket[:0], rules, order[:n])
		f.addPair(int32(key>>32), int32(uint32(key)), bucket)
		order = order[n:]
	}
	f.finish()
	return f
}

// appendBucket appends the rules of one pair of prefixes. Rules after a rule for any protocol
// cannot match a packet of this bucket and are left out.
func appendBucket(bucket []entry, rules []Rule, order []placed) []entry {
	for _, p := range order {
		r := &rules[p.rule]
		e := entry{rule: p.rule, sport: r.SrcPorts, dport: r.DstPorts, proto: r.Protocol}
		if r.Protocol == api.TCP {
			e.mask, e.value = r.FlagsMask, r.FlagsValue
		}
		bucket = append(bucket, e)
		if r.Protocol == api.AnyProtocol {
			break
		}
	}
	return bucket
}

// addPair adds the bucket of a pair; pairs come in the order of their nodes.
func (f *family) addPair(outer, inner int32, bucket []entry) {
	p := pair{inner: inner, innerEnd: f.inner.nodes[inner].end, head: bucket[0], index: -1}
	if len(bucket) > fewEntries {
		p.index = int32(len(f.indexes))
		f.indexes = append(f.indexes, newPortIndex(bucket))
	} else {
		p.first = uint32(len(f.entries))
		f.entries = append(f.entries, bucket[1:]...)
		p.last = uint32(len(f.entries))
	}
	if g := &f.groups[outer]; g.count == 0 {
		*g = group{first: int32(len(f.pairs)), count: 1}
	} else {
		g.count++
	}
	f.pairs = append(f.pairs, p)
}

// finish completes the groups and the hash table. Parents have lower numbers than what they cover,
// so they are completed first.
func (f *family) finish() {
	lowest := make([]uint32, len(f.groups)) // of a node and of all that cover it
	large := 0
	for n := range f.groups {
		g := &f.groups[n]
		g.parent, g.above = f.outer.nodes[n].parent, NoRule
		if g.parent >= 0 {
			g.above = lowest[g.parent]
		}
		lowest[n] = g.above
		for _, p := range f.pairs[g.first : g.first+g.count] {
			lowest[n] = min(lowest[n], p.head.rule)
		}
		if g.count > fewPairs {
			large += int(g.count)
		}
	}
	if large == 0 {
		return
	}
	f.hash = newPairTable(large)
	for n, g := range f.groups {
		if g.count <= fewPairs {
			continue
		}
		for i := g.first; i < g.first+g.count; i++ {
			f.hash.insert(int32(n), f.pairs[i].inner, i)
		}
	}
}

func newPairTable(n int) pairTable {
	size := 1 << bits.Len(uint(2*n))
	h := pairTable{keys: make([]uint64, size), values: make([]int32, size), mask: uint64(size - 1)}
	for i := range h.values {
		h.values[i] = -1
	}
	return h
}

func (h *pairTable) insert(outer, inner, value int32) {
	key := pairKey(outer, inner)
	i := pairSlot(key, h.mask)
	for h.values[i] >= 0 {
		i = (i + 1) & h.mask
	}
	h.keys[i], h.values[i] = key, value
}
