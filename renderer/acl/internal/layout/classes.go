package layout

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// class is a group of entries of one block that differ only in their source. The sources are
// sorted, and none contains another.
type class struct {
	of      entries.Entry // with an empty source
	members []member
}

// member is a source, and the table rule that names it.
type member struct {
	prefix netip.Prefix
	rule   int32
}

// ruled is an entry with its rule.
type ruled struct {
	entries.Entry
	rule int32
}

func (c *class) entry(p netip.Prefix) entries.Entry {
	e := c.of
	e.Src = p
	return e
}

// classesOf groups the entries of a block, sorted by CompareClasses.
func classesOf(x entries.List, b block) []class {
	var out []class
	at := make(map[entries.Entry]int)
	for i := b.first; i < b.last; {
		end := i + 1 // of the entries of one class
		for end < b.last && x.Entries[end].IsLike(&x.Entries[i]) {
			end++
		}
		k := x.Entries[i]
		k.Src = netip.Prefix{}
		n, ok := at[k]
		if !ok {
			n = len(out)
			at[k] = n
			out = append(out, class{of: k})
		}
		members := slices.Grow(out[n].members, end-i)
		for ; i < end; i++ {
			members = append(members, member{x.Entries[i].Src, x.Rules[i]})
		}
		out[n].members = members
	}
	for i := range out {
		out[i].members = antichain(out[i].members)
	}
	slices.SortFunc(out, func(a, b class) int { return entries.CompareClasses(&a.of, &b.of) })
	return out
}

// antichain sorts members and removes those that another member contains.
func antichain(members []member) []member {
	ordered := true
	for i := 1; i < len(members) && ordered; i++ {
		a, b := members[i-1].prefix, members[i].prefix
		ordered = prefixes.Compare(a, b) < 0 && !a.Contains(b.Addr())
	}
	if ordered {
		return members
	}
	slices.SortStableFunc(members, func(a, b member) int { return prefixes.Compare(a.prefix, b.prefix) })
	out := members[:0]
	for _, m := range members {
		if n := len(out); n == 0 || !out[n-1].prefix.Contains(m.prefix.Addr()) {
			out = append(out, m)
		}
	}
	return out
}

// merge sorts entries as in segments, and aggregates them to the fewest prefixes. A merged entry
// gets the rule of the first one.
func merge(entries []ruled) []ruled {
	if !slices.IsSortedFunc(entries, compareRuled) {
		slices.SortFunc(entries, compareRuled)
	}
	out := entries[:0]
	for _, e := range entries {
		n := len(out)
		if n > 0 && out[n-1].IsLike(&e.Entry) && out[n-1].Src.Contains(e.Src.Addr()) {
			continue // it starts no earlier
		}
		for ; n > 0 && out[n-1].IsLike(&e.Entry); n = len(out) {
			parent, ok := prefixes.Parent(out[n-1].Src, e.Src)
			if !ok {
				break
			}
			e = out[n-1]
			e.Src, out = parent, out[:n-1]
		}
		out = append(out, e)
	}
	return out
}

func compareRuled(a, b ruled) int {
	return cmp.Or(entries.CompareEntries(&a.Entry, &b.Entry), cmp.Compare(a.rule, b.rule))
}

// without returns the fewest prefixes, in order, that cover a prefix except the others, which lie
// inside of it.
func without(p netip.Prefix, others []netip.Prefix) []netip.Prefix {
	if len(others) == 0 {
		return []netip.Prefix{p}
	}
	if slices.Contains(others, p) {
		return nil
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	high := netip.PrefixFrom(upper(low), p.Bits()+1)
	var below, above []netip.Prefix
	for _, o := range others {
		if low.Contains(o.Addr()) {
			below = append(below, o)
		} else {
			above = append(above, o)
		}
	}
	return append(without(low, below), without(high, above)...)
}

// upper returns the first address behind a prefix. The prefix has at least one bit and is a lower
// half.
func upper(low netip.Prefix) netip.Addr {
	a, bit := low.Addr().As16(), low.Bits()-1
	if low.Addr().Is4() {
		bit += 96
	}
	a[bit/8] |= 0x80 >> (bit % 8)
	if out := netip.AddrFrom16(a); !low.Addr().Is4() {
		return out
	} else {
		return out.Unmap()
	}
}
