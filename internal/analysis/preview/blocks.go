package preview

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// blockTerm is a block of addresses that a rule names as a peer.
type blockTerm struct {
	rule   int
	cidr   netip.Prefix
	except []netip.Prefix
}

// blockTree has blocks by their prefixes, so that those which hold an address are found without a
// look at all.
type blockTree struct {
	at   map[netip.Prefix][]mark
	bits map[int]bool // lengths of prefixes; those of IPv6 are above 1000
	next int          // number of the next block
}

// mark says that a prefix is one of a block.
type mark struct {
	block, rule int
	except      bool
}

func newBlockTree() *blockTree {
	return &blockTree{at: map[netip.Prefix][]mark{}, bits: map[int]bool{}}
}

func (t *blockTree) add(b blockTerm) {
	t.next++
	t.insert(b.cidr, mark{t.next, b.rule, false})
	for _, e := range b.except {
		t.insert(e, mark{t.next, b.rule, true})
	}
}

func (t *blockTree) insert(p netip.Prefix, m mark) {
	t.at[p] = append(t.at[p], m)
	t.bits[length(p)] = true
}

// length is the length of a prefix, with the family.
func length(p netip.Prefix) int {
	if p.Addr().Is6() {
		return 1000 + p.Bits()
	}
	return p.Bits()
}

// above returns the prefixes of the tree that hold an address, the longest first.
func (t *blockTree) above(a netip.Addr) (out []netip.Prefix) {
	for bits := a.BitLen(); bits >= 0; bits-- {
		p := netip.PrefixFrom(a, bits)
		if !t.bits[length(p)] {
			continue
		}
		if p = p.Masked(); t.at[p] != nil {
			out = append(out, p)
		}
	}
	return out
}

// rules returns the numbers of the rules that match an address by a block, sorted.
func (t *blockTree) rules(a netip.Addr) []int {
	held, out := map[int]int{}, map[int]bool{} // rules by block; outside of excepts
	for _, p := range t.above(a) {
		for _, m := range t.at[p] {
			if m.except {
				held[m.block] = -1
			} else if held[m.block] == 0 {
				held[m.block] = 1 + m.rule
			}
		}
	}
	for _, rule := range held {
		if rule > 0 {
			out[rule-1] = true
		}
	}
	return sortedKeys(out)
}

// region is the part of a prefix that no longer prefix has.
type region struct {
	prefix netip.Prefix
	addr   netip.Addr // in the region, and none of those that are taken
}

// everywhere are the addresses of both families.
var everywhere = [...]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// regions divides all addresses by some blocks. A region without an address that is not taken is
// left out.
func regions(blocks []blockTerm, taken []netip.Addr) []region {
	all := slices.Clone(everywhere[:])
	for _, b := range blocks {
		all = append(append(all, b.cidr), b.except...)
	}
	comparePrefixes := func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	}
	slices.SortFunc(all, comparePrefixes)
	all = slices.Compact(all)
	holes := make([][]netip.Prefix, len(all)) // of each prefix: those directly within, and what is taken
	var open []int
	within := func(p netip.Prefix) {
		for len(open) > 0 && !all[open[len(open)-1]].Contains(p.Addr()) {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			holes[open[len(open)-1]] = append(holes[open[len(open)-1]], p)
		}
	}
	at := 0
	for _, a := range taken { // sorted
		single := netip.PrefixFrom(a, a.BitLen())
		for ; at < len(all) && comparePrefixes(all[at], single) <= 0; at++ {
			within(all[at])
			open = append(open, at)
		}
		within(single)
	}
	for ; at < len(all); at++ {
		within(all[at])
		open = append(open, at)
	}
	var out []region
	for i, p := range all {
		if a, ok := gap(p, holes[i]); ok {
			out = append(out, region{p, a})
		}
	}
	return out
}

// gap returns the first usable address of a prefix that is in none of some holes, which are sorted
// and apart. The address of the prefix itself is the last choice.
func gap(p netip.Prefix, holes []netip.Prefix) (netip.Addr, bool) {
	if a, ok := gapBehind(p, slices.Concat(reserved(p), holes)); ok {
		return a, true
	}
	return gapBehind(p, holes)
}

func gapBehind(p netip.Prefix, holes []netip.Prefix) (netip.Addr, bool) {
	a := p.Addr()
	for _, h := range holes {
		if h.Contains(a) {
			if a = last(h).Next(); !a.IsValid() {
				return a, false
			}
		}
	}
	return a, p.Contains(a) && !isSpecial(a)
}

// reserved is what no packet comes from at the begin of a prefix.
func reserved(p netip.Prefix) []netip.Prefix {
	switch {
	case p == everywhere[0]:
		return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/8")}
	case p == everywhere[1]:
		return []netip.Prefix{netip.MustParsePrefix("::/8")}
	case p.IsSingleIP():
		return nil
	}
	return []netip.Prefix{netip.PrefixFrom(p.Addr(), p.Addr().BitLen())}
}

func isSpecial(a netip.Addr) bool {
	return a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Is6() && a.IsLinkLocalUnicast() || a.Is4() && a.As4()[0] >= 240
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b) // always 4 or 16 bytes
	return a
}

// blockWords names addresses: the prefixes of some regions, each with the parts that are not among
// them. all are the regions that there are.
func blockWords(some, all []region) []string {
	if len(some) == len(all) {
		return []string{"every address outside"}
	}
	in := map[netip.Prefix]bool{}
	for _, r := range some {
		in[r.prefix] = true
	}
	parent := parents(all)
	excepts := map[netip.Prefix][]netip.Prefix{}
	var tops []netip.Prefix
	for _, r := range all {
		up, has := parent[r.prefix]
		switch {
		case in[r.prefix] && (!has || !in[up]):
			tops = append(tops, r.prefix)
		case !in[r.prefix] && has && in[up]:
			top := up
			for next, ok := parent[top]; ok && in[next]; next, ok = parent[top] {
				top = next
			}
			excepts[top] = append(excepts[top], r.prefix)
		}
	}
	var out []string
	for _, p := range tops {
		text := p.String()
		if p.Bits() == 0 {
			text = map[bool]string{true: "every IPv4 address outside", false: "every IPv6 address outside"}[p.Addr().Is4()]
		}
		if e := excepts[p]; len(e) > 0 {
			text += " except " + few(e, 4)
		}
		out = append(out, text)
	}
	return out
}

// parents returns, by prefix, the longest one that holds it. Regions are sorted.
func parents(all []region) map[netip.Prefix]netip.Prefix {
	out := map[netip.Prefix]netip.Prefix{}
	var open []netip.Prefix
	for _, r := range all {
		for len(open) > 0 && !open[len(open)-1].Contains(r.prefix.Addr()) {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			out[r.prefix] = open[len(open)-1]
		}
		open = append(open, r.prefix)
	}
	return out
}

// few joins the first of a list.
func few[T any](list []T, most int) string {
	var out []string
	for _, v := range list[:min(len(list), most)] {
		out = append(out, fmt.Sprint(v))
	}
	text := strings.Join(out, ", ")
	if n := len(list) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
