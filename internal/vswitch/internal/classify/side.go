package classify

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// side is the set of distinct prefixes on one side of the rules of a family. Nodes are numbered in
// the order (address, length). In this order a prefix precedes those that it covers, and these are
// contiguous: node a covers node b if a <= b < a.end.
type side struct {
	nodes []node
	hosts hostTable          // nodes of single addresses
	table *bart.Table[int32] // the other nodes; nil if there are none except perhaps /0
	zero  int32              // node of /0, or -1
}

type node struct {
	parent int32 // longest prefix that covers this one, -1 for none
	end    int32 // first node after those that this one covers
}

// find returns the node of the longest prefix that covers the address, or -1.
func (s *side) find(a netip.Addr) int32 {
	if n := s.hosts.get(a); n >= 0 {
		return n
	}
	if s.table != nil {
		if n, ok := s.table.Lookup(a); ok {
			return n
		}
	}
	return s.zero
}

// sourced is the prefix of a rule: of IPv4 as a number that sorts like it, of IPv6 0. It has no
// pointers, because there may be hundreds of thousands.
type sourced struct {
	key uint64
	at  int32 // index of the rule
}

// buildSide numbers the distinct prefixes of one side and returns the node of
// each rule.
func buildSide(numbers []uint32, prefix func(uint32) netip.Prefix) (side, []int32) {
	order := make([]sourced, len(numbers))
	for i, n := range numbers {
		order[i].at = int32(i)
		if p := prefix(n); p.Addr().Is4() {
			b := p.Addr().As4()
			order[i].key = uint64(binary.BigEndian.Uint32(b[:]))<<8 | uint64(p.Bits())
		}
	}
	of := func(s sourced) netip.Prefix { return prefix(numbers[s.at]) }
	compare := func(a, b sourced) int {
		if c := cmp.Compare(a.key, b.key); c != 0 || of(a).Addr().Is4() {
			return c
		}
		return cmp.Or(of(a).Addr().Compare(of(b).Addr()), cmp.Compare(of(a).Bits(), of(b).Bits()))
	}
	slices.SortFunc(order, compare)
	nodes, count := make([]int32, len(numbers)), int32(0) // of rules; of nodes
	for i := range order {
		if i == 0 || compare(order[i-1], order[i]) != 0 {
			count++
		}
		nodes[order[i].at] = count - 1
	}
	prefixes := make([]netip.Prefix, count)
	for _, s := range order {
		prefixes[nodes[s.at]] = of(s)
	}
	return newSide(prefixes), nodes
}

// newSide indexes sorted prefixes.
func newSide(prefixes []netip.Prefix) side {
	s := side{nodes: linkNodes(prefixes), zero: -1}
	hosts := 0
	for _, p := range prefixes {
		if p.IsSingleIP() {
			hosts++
		}
	}
	s.hosts = newHostTable(hosts)
	for i, p := range prefixes {
		switch {
		case p.IsSingleIP():
			s.hosts.insert(p.Addr(), int32(i))
		case p.Bits() == 0:
			s.zero = int32(i)
		default:
			if s.table == nil {
				s.table = new(bart.Table[int32])
			}
			s.table.Insert(p, int32(i))
		}
	}
	return s
}

// linkNodes determines the parent and the end of each prefix.
func linkNodes(prefixes []netip.Prefix) []node {
	nodes := make([]node, len(prefixes))
	parent := int32(-1)
	for i, p := range prefixes {
		for parent >= 0 && !covers(prefixes[parent], p) {
			nodes[parent].end = int32(i)
			parent = nodes[parent].parent
		}
		nodes[i].parent = parent
		parent = int32(i)
	}
	for ; parent >= 0; parent = nodes[parent].parent {
		nodes[parent].end = int32(len(prefixes))
	}
	return nodes
}

func covers(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }

// hostTable is an open-addressing hash table from addresses of one family to nodes. A slot holds 32
// bits of the key above the node plus one; 0 is free. For IPv4 these 32 bits are the complete
// address; IPv6 addresses are also compared.
type hostTable struct {
	slots []uint64
	shift uint8
	addrs []netip.Addr // of IPv6, by slot
}

func newHostTable(n int) hostTable {
	if n == 0 {
		return hostTable{}
	}
	size := bits.Len(uint(2*n - 1))
	return hostTable{slots: make([]uint64, 1<<size), shift: uint8(64 - size)}
}

// golden is 2^64 divided by the golden ratio, for multiplicative hashing.
const golden = 0x9e3779b97f4a7c15

// hostKey returns the bits to compare and the hash.
func hostKey(a netip.Addr) (key uint32, hash uint64) {
	if a.Is4() {
		b := a.As4()
		key = binary.BigEndian.Uint32(b[:])
		return key, uint64(key) * golden
	}
	b := a.As16()
	hash = (binary.BigEndian.Uint64(b[:8])*golden ^ binary.BigEndian.Uint64(b[8:])) * golden
	hash ^= hash >> 32
	return uint32(hash), hash * golden
}

func (h *hostTable) get(a netip.Addr) int32 {
	if h.slots == nil {
		return -1
	}
	key, hash := hostKey(a)
	mask := uint64(len(h.slots) - 1)
	for i := hash >> h.shift; ; i = (i + 1) & mask {
		slot := h.slots[i&mask]
		if slot == 0 {
			return -1
		}
		if uint32(slot>>32) == key && (h.addrs == nil || h.addrs[i] == a) {
			return int32(uint32(slot)) - 1
		}
	}
}

// insert adds an address that is not in the table.
func (h *hostTable) insert(a netip.Addr, n int32) {
	key, hash := hostKey(a)
	mask := uint64(len(h.slots) - 1)
	i := hash >> h.shift
	for h.slots[i] != 0 {
		i = (i + 1) & mask
	}
	h.slots[i] = uint64(key)<<32 | uint64(n+1)
	if a.Is4() {
		return
	}
	if h.addrs == nil {
		h.addrs = make([]netip.Addr, len(h.slots))
	}
	h.addrs[i] = a
}
