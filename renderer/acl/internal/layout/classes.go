package layout

import (
	"cmp"
	"slices"

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
	prefix entries.Net
	rule   int32
}

// ruled is an entry with its rule.
type ruled struct {
	entries.Entry
	rule int32
}

func (c *class) entry(p entries.Net) entries.Entry {
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
		k.Src = entries.Net{}
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
		a, b := &members[i-1].prefix, &members[i].prefix
		ordered = a.Compare(b) < 0 && !a.Contains(b)
	}
	if ordered {
		return members
	}
	slices.SortStableFunc(members, func(a, b member) int { return a.prefix.Compare(&b.prefix) })
	out := members[:0]
	for _, m := range members {
		if n := len(out); n == 0 || !out[n-1].prefix.Contains(&m.prefix) {
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
		if n > 0 && out[n-1].Includes(&e.Entry) {
			continue // it starts no earlier
		}
		for ; n > 0 && out[n-1].IsLike(&e.Entry); n = len(out) {
			parent, ok := out[n-1].Src.Parent(&e.Src)
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
func without(p entries.Net, others []entries.Net) []entries.Net {
	if len(others) == 0 {
		return []entries.Net{p}
	}
	if slices.Contains(others, p) {
		return nil
	}
	low, high := p.Halves()
	var below, above []entries.Net
	for _, o := range others {
		if low.Contains(&o) {
			below = append(below, o)
		} else {
			above = append(above, o)
		}
	}
	return append(without(low, below), without(high, above)...)
}
