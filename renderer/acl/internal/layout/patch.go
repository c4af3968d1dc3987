package layout

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// Patch returns what Refit returns for a table of which the slot holds an earlier version. Its work
// follows the change. It returns false where it cannot tell: then Refit must look at all entries.
func (z Sizes) Patch(held Content, c entries.Change) (Content, bool) {
	cells, ok := cellsOf(held.Roles)
	if !ok || len(held.Roles) == 1 || c.Count() <= z.Whole {
		return Content{}, false
	}
	of, ok := sameCells(cells, c.Blocks)
	if !ok {
		return Content{}, false
	}
	out := Content{Pieces: slices.Clone(held.Pieces), Roles: held.Roles}
	before, after := c.Within(c.Around)
	for b := range after {
		if slices.Equal(before[b].Entries, after[b].Entries) && slices.Equal(before[b].Rules, after[b].Rules) {
			continue
		}
		cell := cells[of[b]]
		if !cell.isGroup {
			return Content{}, false
		}
		g := z.groupOf(held.Pieces[cell.first:cell.last], Usual)
		pieces, ok := g.patch(b, c, before[b], after[b])
		if !ok {
			return Content{}, false
		}
		copy(out.Pieces[cell.first:], pieces)
	}
	return out, true
}

// IsInOrder reports whether Patch can find entries: there are several ACLs, and those of a group
// are sorted and have none that another one of the same ACL and class contains.
func (c Content) IsInOrder() bool {
	for n, p := range c.Pieces {
		for i := 1; i < len(p.Entries) && c.Roles[n].isSegment(); i++ {
			a, b := &p.Entries[i-1], &p.Entries[i]
			if entries.CompareEntries(a, b) >= 0 || a.Includes(b) {
				return false
			}
		}
	}
	return len(c.Pieces) > 1
}

// sameCells returns the cell of each block. It returns false when a block changes its cell.
func sameCells(cells []cell, blocks [2][]entries.Run) (of []int, ok bool) {
	for i, runs := range blocks {
		var list []block
		at := 0
		for _, r := range runs {
			list = append(list, block{at, at + r.Count, r.Verdict})
			at += r.Count
		}
		parts, ok := divide(cells, list)
		if !ok {
			return nil, false
		}
		now, n := make([]int, len(list)), 0
		for b := range list {
			for parts[n].last <= list[b].first {
				n++
			}
			now[b] = n
		}
		if i > 0 && !slices.Equal(of, now) {
			return nil, false
		}
		of = now
	}
	return of, true
}

// patch changes the segments of a block in the classes that change.
func (g *group) patch(b int, c entries.Change, was, now entries.List) ([]entries.Piece, bool) {
	whole := block{last: len(was.Entries)}
	before := classesOf(was, whole)
	whole.last = len(now.Entries)
	after := classesOf(now, whole)
	changed := changedClasses(before, after)
	around := make([][]member, len(changed))
	region := entries.NetsOf(nil, c.Around)
	all := slices.Clone(c.Around)
	for i, of := range changed {
		around[i] = g.around(of, region, before, after)
		for _, m := range around[i] {
			all = append(all, m.prefix.Prefix())
		}
	}
	_, parts := c.Within(all)
	whole.last = len(parts[b].Entries)
	now = parts[b]
	return g.patchClasses(changed, around, classesOf(now, whole))
}

// changedClasses returns the classes that differ, in order, with empty sources.
func changedClasses(before, after []class) (out []entries.Entry) {
	for len(before) > 0 || len(after) > 0 {
		switch c := compareFirst(before, after); {
		case c < 0:
			out, before = append(out, before[0].of), before[1:]
		case c > 0:
			out, after = append(out, after[0].of), after[1:]
		default:
			if !slices.Equal(before[0].members, after[0].members) {
				out = append(out, after[0].of)
			}
			before, after = before[1:], after[1:]
		}
	}
	return out
}

// compareFirst compares the first classes of two lists; the end comes last.
func compareFirst(a, b []class) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return entries.CompareClasses(&a[0].of, &b[0].of)
}

// around returns the prefixes around which a class must be compared: wide enough that every entry
// and every member that overlaps one lies inside of it.
func (g *group) around(of entries.Entry, region []entries.Net, members ...[]class) []member {
	out := make([]member, len(region))
	for i, p := range region {
		for _, classes := range members {
			if n, ok := slices.BinarySearchFunc(classes, of, func(c class, of entries.Entry) int { return entries.CompareClasses(&c.of, &of) }); ok {
				for _, m := range classes[n].members {
					p = wider(p, m.prefix)
				}
			}
		}
		for _, s := range g.segments() {
			of.Src = p
			if n, _ := s.find(&of); n > 0 && s.old.Entries[n-1].IsLike(&of) {
				p = wider(p, s.old.Entries[n-1].Src)
			}
		}
		out[i].prefix = p
	}
	return antichain(out)
}

// wider returns the one of two prefixes that contains the other; the first if none does.
func wider(a, b entries.Net) entries.Net {
	if b.Bits() < a.Bits() && b.Contains(&a) {
		return b
	}
	return a
}

// find returns the place of the first entry of the old content that does not come before another.
func (s *segment) find(e *entries.Entry) (int, bool) {
	return slices.BinarySearchFunc(s.old.Entries, e, func(a entries.Entry, e *entries.Entry) int { return entries.CompareEntries(&a, e) })
}

// patchClasses compares what the segments hold of some classes around some prefixes. All has at
// least what these classes must have there.
func (g *group) patchClasses(changed []entries.Entry, around [][]member, all []class) ([]entries.Piece, bool) {
	var missing []ruled
	for i, of := range changed {
		c := class{of: of}
		for _, k := range all {
			if k.of.IsLike(&of) {
				c.members = within(k.members, around[i])
			}
		}
		f := coverage{class: &c, covered: make([]bool, len(c.members))}
		for _, s := range g.segments() {
			for _, m := range around[i] {
				p := m.prefix
				of.Src = p
				at := 0
				for s.at, _ = s.find(&of); s.at < len(s.old.Entries) && s.old.Entries[s.at].IsLike(&of) && p.Contains(&s.old.Entries[s.at].Src); s.at++ {
					at = f.seek(at, &s.old.Entries[s.at].Src)
					f.entry(s, at)
				}
			}
		}
		missing = f.missing(missing, true)
	}
	if !g.settle(missing, false) {
		return nil, false
	}
	return g.pieces()
}

// within returns the members inside of some prefixes.
func within(members, around []member) (out []member) {
	for _, a := range around {
		at, _ := slices.BinarySearchFunc(members, &a.prefix, func(m member, p *entries.Net) int { return m.prefix.Compare(p) })
		for ; at < len(members) && a.prefix.Contains(&members[at].prefix); at++ {
			out = append(out, members[at])
		}
	}
	return out
}
