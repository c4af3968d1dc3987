package expand

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/cache"
)

// Lines are the lines of an expanded table, with the prefixes that they had. They do not change.
type Lines struct {
	all    []line
	counts []int // entries of each line
}

// Change is what a change of sets changes in a local table.
type Change struct {
	entries.Change
	Now    *Lines
	was    *Lines
	blocks []int // of each line
}

// Change returns what changed since the lines of a table were made. It returns false when the
// change is not only about sources: the table must be expanded again.
func (x *Expander) Change(was *Lines, t *cache.Table) (*Change, bool) {
	now := factorProducts(x.linesOf(t.Rules, 0, len(t.Rules)), x.enough)
	if len(now) != len(was.all) || sum(now) > maxTable {
		return nil, false
	}
	c := &Change{was: was, Now: &Lines{all: now}}
	for i := range now {
		if !was.all[i].isLike(&now[i]) {
			return nil, false
		}
		for family := range entries.Families {
			c.Around = append(c.Around, x.diff(was.all[i].src[family], now[i].src[family])...)
		}
	}
	c.Around = widest(c.Around)
	before, after := c.within(c.Around)
	c.Now.counts = slices.Clone(was.counts)
	for i := range now {
		c.Now.counts[i] += after.counts[i] - before.counts[i]
	}
	blocks := was.blocks()
	c.blocks = c.Now.blocks()
	for i := range now {
		if blocks[i] >= 0 && c.blocks[i] >= 0 && blocks[i] != c.blocks[i] {
			return nil, false
		}
		c.blocks[i] = max(c.blocks[i], blocks[i])
	}
	c.Blocks, c.Within = [2][]entries.Run{was.runs(blocks), c.Now.runs(c.blocks)}, c.inBlocks
	return c, len(c.Blocks[0]) == len(c.Blocks[1])
}

// isLike reports whether two lines differ at most in the prefixes of their sources, and have some
// in the same families.
func (l *line) isLike(o *line) bool {
	if l.rule != o.rule || l.verdict != o.verdict || l.audit != o.audit || l.net != o.net || l.traffic != o.traffic {
		return false
	}
	for family := range entries.Families {
		if (len(l.src[family]) == 0) != (len(o.src[family]) == 0) || !isSame(l.dst[family], o.dst[family]) && !slices.Equal(l.dst[family], o.dst[family]) {
			return false
		}
	}
	return true
}

// isSame reports whether two lists are one.
func isSame(a, b []netip.Prefix) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// versions are two versions of a list.
type versions struct{ was, now *netip.Prefix }

// diff returns the prefixes that only one of two lists has.
func (x *Expander) diff(was, now []netip.Prefix) (out []netip.Prefix) {
	if isSame(was, now) {
		return nil
	}
	key := versions{&was[0], &now[0]} // neither is empty; see isLike
	out, known := x.diffs[key]
	if !known {
		out = diff(was, now)
		x.diffs[key] = out
	}
	return out
}

func diff(was, now []netip.Prefix) (out []netip.Prefix) {
	for len(was) > 0 && len(now) > 0 {
		switch c := prefixes.Compare(was[0], now[0]); {
		case c == 0:
			was, now = was[1:], now[1:]
		case c < 0:
			out, was = append(out, was[0]), was[1:]
		default:
			out, now = append(out, now[0]), now[1:]
		}
	}
	return append(append(out, was...), now...)
}

// widest sorts prefixes and leaves out those that another one contains.
func widest(in []netip.Prefix) []netip.Prefix {
	slices.SortFunc(in, prefixes.Compare)
	out := in[:0]
	for _, p := range in {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

// blocks returns the number of the block of each line, or -1 for a line without entries.
func (x *Lines) blocks() []int {
	out, last := make([]int, len(x.all)), -1
	var verdict entries.Verdict
	for i := range x.all {
		if out[i] = -1; x.counts[i] == 0 {
			continue
		}
		if last < 0 || x.all[i].verdict != verdict {
			last, verdict = last+1, x.all[i].verdict
		}
		out[i] = last
	}
	return out
}

// runs returns the blocks.
func (x *Lines) runs(blocks []int) (out []entries.Run) {
	for i, b := range blocks {
		if b == len(out) && x.counts[i] > 0 {
			out = append(out, entries.Run{Verdict: x.all[i].verdict})
		}
		if x.counts[i] > 0 {
			out[b].Count += x.counts[i]
		}
	}
	return out
}

// part is the part of a table whose sources overlap some prefixes.
type part struct {
	entries.List
	counts []int
}

// within returns what the table had and has around prefixes, which are as Around.
func (c *Change) within(around []netip.Prefix) (before, after part) {
	var families cache.Families
	split := slices.IndexFunc(around, func(p netip.Prefix) bool { return p.Addr().Is6() })
	if split < 0 {
		split = len(around)
	}
	families[0], families[1] = around[:split], around[split:]
	return c.was.within(families), c.Now.within(families)
}

func (x *Lines) within(around cache.Families) (out part) {
	lines := slices.Clone(x.all)
	for i := range lines {
		for family := range around {
			lines[i].src[family] = overlapping(lines[i].src[family], around[family])
		}
	}
	out.List, out.counts = emit(lines, sum(lines), false)
	return out
}

// overlapping returns the prefixes of an ordered list that overlap one of the others. In both
// lists, no prefix contains another.
func overlapping(list, others []netip.Prefix) (out []netip.Prefix) {
	from := 0
	for _, o := range others {
		i, found := slices.BinarySearchFunc(list[from:], o, prefixes.Compare)
		if i += from; !found && i > from && list[i-1].Contains(o.Addr()) {
			i--
		}
		for from = i; from < len(list) && (o.Contains(list[from].Addr()) || list[from].Contains(o.Addr())); from++ {
			out = append(out, list[from])
		}
	}
	return out
}

// inBlocks is Within.
func (c *Change) inBlocks(around []netip.Prefix) (before, after []entries.List) {
	was, now := c.within(widest(slices.Clone(around)))
	return was.divided(c.blocks, len(c.Blocks[0])), now.divided(c.blocks, len(c.Blocks[0]))
}

// divided returns the part of each block.
func (p *part) divided(blocks []int, count int) []entries.List {
	out := make([]entries.List, count)
	at := 0
	for i, n := range p.counts {
		if n == 0 {
			continue
		}
		b := &out[blocks[i]]
		b.Entries, b.Rules = append(b.Entries, p.Entries[at:at+n]...), append(b.Rules, p.Rules[at:at+n]...)
		at += n
	}
	return out
}
