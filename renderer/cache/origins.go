package cache

import (
	"math/bits"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// originIndex finds the origins of exceptions among the rules of opposite lists. It numbers
// origins, so that uniting those of many lists compares no names. It is valid until lists change.
type originIndex struct {
	rules   map[listClass]*rulesAbout
	held    int // rules in there
	numbers map[api.Origin]int32
	all     []api.Origin // by number
	order   []int32      // sorted numbers, without those that were added since
	ranks   []int32      // by number: positions in order
	found   []uint64     // reused: a bit for each rank
}

// maxAbout bounds the rules that an originIndex holds.
const maxAbout = 1 << 17

// listClass is a list and the result that it has for some addresses.
type listClass struct {
	list  *list
	class uint32
}

func newOriginIndex() originIndex {
	return originIndex{rules: make(map[listClass]*rulesAbout), numbers: make(map[api.Origin]int32)}
}

// about returns the rules of a list that match the addresses with a verdict.
func (x *originIndex) about(l *list, v verdict) *rulesAbout {
	k := listClass{l, v.class}
	r := x.rules[k]
	if r == nil {
		if x.held += v.matches.count(); x.held > maxAbout {
			clear(x.rules)
			x.held = v.matches.count()
		}
		r = newRulesAbout(l.ofAll, v.matches.indexes())
		x.rules[k] = r
	}
	return r
}

// of returns the sorted origins of the rules that an exception stems from: rules with the same
// action that match common traffic.
func (x *originIndex) of(about []*rulesAbout, r api.ContivRule) (out []api.Origin) {
	for _, list := range about {
		list.each(r, func(i int) { x.number(list, i) })
	}
	x.rank()
	x.found = append(x.found[:0], make([]uint64, len(x.all)/64+1)...)
	n := 0
	for _, list := range about {
		list.each(r, func(i int) {
			for _, o := range list.numbers[i] {
				at := x.ranks[o]
				x.found[at/64] |= 1 << (at % 64)
			}
		})
	}
	for _, word := range x.found {
		n += bits.OnesCount64(word)
	}
	if n > 0 {
		out = make([]api.Origin, 0, n)
	}
	for i, word := range x.found {
		for ; word != 0; word &= word - 1 {
			out = append(out, x.all[x.order[i*64+bits.TrailingZeros64(word)]])
		}
	}
	return out
}

// number numbers the origins of the i-th rule about an address.
func (x *originIndex) number(about *rulesAbout, i int) {
	if about.numbers[i] != nil {
		return
	}
	origins := about.list.Origins(int(about.rules[i]))
	about.numbers[i] = make([]int32, len(origins))
	for j, o := range origins {
		n, known := x.numbers[o]
		if !known {
			n = int32(len(x.all))
			x.numbers[o] = n
			x.all = append(x.all, o)
		}
		about.numbers[i][j] = n
	}
}

// rank merges new origins into the order of all.
func (x *originIndex) rank() {
	if len(x.ranks) == len(x.all) {
		return
	}
	var added []int32
	for n := len(x.ranks); n < len(x.all); n++ {
		added = append(added, int32(n))
	}
	compare := func(a, b int32) int { return x.all[a].Compare(x.all[b]) }
	slices.SortFunc(added, compare)
	old := x.order
	x.order = make([]int32, 0, len(x.all))
	for _, n := range added {
		before, _ := slices.BinarySearchFunc(old, n, compare)
		x.order = append(append(x.order, old[:before]...), n)
		old = old[before:]
	}
	x.order = append(x.order, old...)
	x.ranks = append(x.ranks, added...)
	for rank, n := range x.order {
		x.ranks[n] = int32(rank)
	}
}

// rulesAbout holds the rules of a list that apply to an address, ordered by their first destination
// port.
type rulesAbout struct {
	list    *renderer.RuleList
	rules   []uint32  // indexes in the list
	numbers [][]int32 // of the origins of each of rules; nil until they are asked for
	order   []uint64  // first port and index in rules, packed
	highest []uint16  // by position in order: the highest last port so far
}

func newRulesAbout(list *renderer.RuleList, indexes []uint32) *rulesAbout {
	x := &rulesAbout{
		list: list, rules: indexes, numbers: make([][]int32, len(indexes)),
		order: make([]uint64, 0, len(indexes)), highest: make([]uint16, 0, len(indexes)),
	}
	for n, i := range indexes {
		first, _ := list.Rules()[i].DstPort.Bounds()
		x.order = append(x.order, uint64(first)<<32|uint64(n))
	}
	slices.Sort(x.order)
	highest := uint16(0)
	for _, o := range x.order {
		_, last := x.rule(int(uint32(o))).DstPort.Bounds()
		highest = max(highest, last)
		x.highest = append(x.highest, highest)
	}
	return x
}

func (x *rulesAbout) rule(n int) *api.ContivRule { return &x.list.Rules()[x.rules[n]] }

// each calls f with the positions in rules of those with the action of r that match common traffic.
func (x *rulesAbout) each(r api.ContivRule, f func(n int)) {
	first, last := r.DstPort.Bounds()
	behind, _ := slices.BinarySearch(x.order, (uint64(last)+1)<<32)
	for i := behind - 1; i >= 0 && x.highest[i] >= first; i-- {
		n := int(uint32(x.order[i]))
		if rule := x.rule(n); rule.Action == r.Action && rule.Audit == r.Audit && overlap(*rule, r) {
			f(n)
		}
	}
}

// ruleAbout is a rule of a list.
type ruleAbout struct {
	list  *renderer.RuleList
	index int
}

func (r ruleAbout) rule() api.ContivRule { return r.list.Rules()[r.index] }

// overlap reports whether two rules match common traffic; it ignores addresses.
func overlap(a, b api.ContivRule) bool {
	return (a.Protocol == b.Protocol || a.Protocol == api.AnyProtocol || b.Protocol == api.AnyProtocol) &&
		overlapPorts(a.SrcPort, b.SrcPort) && overlapPorts(a.DstPort, b.DstPort)
}

func overlapPorts(a, b api.PortRange) bool {
	af, al := a.Bounds()
	bf, bl := b.Bounds()
	return af <= bl && bf <= al
}
