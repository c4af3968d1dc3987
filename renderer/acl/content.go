package acl

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

const (
	// maxGroups is how many blocks of a table are held in segments, the largest ones.
	maxGroups = 8
	// maxMixed is how many ACLs a new slot has between two groups, as long as they
	// are not too large.
	maxMixed = 48
)

// content is what the ACLs of a slot are to hold, and what each of them is for.
type content struct {
	pieces []entries.Piece
	roles  []role
}

// table is a local table as entries.
type table struct {
	entries.List
	whole   entries.Piece     // when it is one ACL
	classes map[block][]class // of its blocks, as far as they were needed
	refits  map[string]refit  // by what slots hold: those of groups of interfaces hold the same, most of the time
}

func (t table) classesOf(b block) []class {
	c, ok := t.classes[b]
	if !ok {
		c = classesOf(t.List, b)
		t.classes[b] = c
	}
	return c
}

// refit is the outcome of laying a table out for slots that hold something.
type refit struct {
	content
	ok bool
}

// refitting is how a slot is to take a table over.
type refitting int

const (
	usual     refitting = iota
	quietly             // it is the time to make room
	onlyEqual           // if nothing has to change
)

// isWhole says whether a table is one ACL.
func (z sizes) isWhole(t table) bool { return len(t.Entries) <= z.whole }

func (z sizes) newTable(x entries.List) table {
	t := table{List: x, classes: make(map[block][]class), refits: make(map[string]refit)}
	if z.isWhole(t) {
		t.whole = entries.NewPiece(x.Entries, x.Rules)
	}
	return t
}

// newContent lays a table out for a new slot. It depends on the table alone.
func (z sizes) newContent(x table) content {
	if z.isWhole(x) {
		return content{pieces: []entries.Piece{x.whole}, roles: []role{{}}}
	}
	c, _ := x.refitOnce("", func() (content, bool) { return z.newGroups(x), true })
	return c
}

// newGroups lays a table out that is several ACLs.
func (z sizes) newGroups(x table) (c content) {
	between := 0
	for _, b := range z.largest(blocksOf(x.Entries)) {
		z.addMixed(&c, x.List, block{between, b.first})
		z.addGroup(&c, x, b)
		between = b.last
	}
	z.addMixed(&c, x.List, block{between, len(x.Entries)})
	return c
}

// refitOnce lays the table out, unless it was for a slot that holds the same.
func (t table) refitOnce(held string, lay func() (content, bool)) (content, bool) {
	out, known := t.refits[held]
	if !known {
		out.content, out.ok = lay()
		t.refits[held] = out
	}
	return content{slices.Clone(out.pieces), out.roles}, out.ok
}

// largest returns the blocks that are held in segments, in order.
func (z sizes) largest(blocks []block) []block {
	blocks = slices.DeleteFunc(blocks, func(b block) bool { return b.size() <= z.whole })
	slices.SortStableFunc(blocks, func(a, b block) int { return cmp.Compare(b.size(), a.size()) })
	blocks = blocks[:min(len(blocks), maxGroups)]
	slices.SortFunc(blocks, func(a, b block) int { return cmp.Compare(a.first, b.first) })
	return blocks
}

func (c *content) add(p entries.Piece, r role) {
	c.pieces, c.roles = append(c.pieces, p), append(c.roles, r)
}

// addMixed adds ACLs for what is between groups, also when that is nothing.
func (z sizes) addMixed(c *content, x entries.List, b block) {
	count := max(1, min(maxMixed, ceil(b.size(), z.whole*3/4)), ceil(b.size(), z.full))
	each := ceil(b.size(), count)
	for i := range count {
		from := min(b.first+i*each, b.last)
		to := min(from+each, b.last)
		c.add(entries.NewPiece(x.Entries[from:to:to], x.Rules[from:to:to]), role{})
	}
}

// addGroup adds the segments of a block. All of it is cold.
func (z sizes) addGroup(c *content, x table, b block) {
	var all []ruled
	for _, k := range x.classesOf(b) {
		for _, m := range k.members {
			all = append(all, ruled{k.entry(m.prefix), m.rule})
		}
	}
	// The members of a set come and go together, as in a rolling update. So a rule stands in few of
	// the ACLs.
	slices.SortStableFunc(all, func(a, b ruled) int { return cmp.Compare(a.rule, b.rule) })
	of := x.Entries[b.first].Verdict
	count := max(1, ceil(len(all), z.full))
	each := ceil(len(all), count)
	for i := range count {
		s := segment{changed: true, next: merge(all[min(i*each, len(all)):min((i+1)*each, len(all))])}
		c.add(s.piece(), role{cold, of})
	}
	c.add(entries.NewPiece(nil, nil), role{warm, of})
	c.add(entries.NewPiece(nil, nil), role{young, of})
}

func ceil(n, by int) int { return (n + by - 1) / by }

// refit returns what the ACLs of a slot are to hold to hold a table, with as little
// change as possible, or false when they cannot.
func (m *mirror) refit(s *slot, x table, how refitting) (content, bool) {
	if len(s.roles) == 1 {
		return content{[]entries.Piece{x.whole}, s.roles}, m.sizes.isWhole(x)
	}
	held := fmt.Appendf(nil, "%d %v", how, s.roles)
	for _, index := range s.indexes {
		digest := m.acls[index].piece.Digest
		held = append(held, digest[:]...)
	}
	return x.refitOnce(string(held), func() (content, bool) { return m.refitCells(s, x, how) })
}

// refitCells is refit for a slot of several ACLs.
func (m *mirror) refitCells(s *slot, x table, how refitting) (content, bool) {
	cells, ok := cellsOf(s.roles)
	if !ok {
		return content{}, false
	}
	of, ok := divide(cells, x.Entries)
	if !ok {
		return content{}, false
	}
	out := content{roles: s.roles}
	for n, c := range cells {
		var pieces []entries.Piece
		if c.isGroup {
			pieces, ok = m.refitGroup(s, c, x, of[n], how)
		} else {
			pieces, ok = m.refitMixed(s, c, x.List, of[n])
		}
		if !ok {
			return content{}, false
		}
		out.pieces = append(out.pieces, pieces...)
	}
	return out, true
}

// refitMixed returns what the ACLs of a cell between groups are to hold.
func (m *mirror) refitMixed(s *slot, c cell, x entries.List, of block) ([]entries.Piece, bool) {
	var old, out []entries.Piece
	for _, index := range s.indexes[c.first:c.last] {
		old = append(old, m.acls[index].piece)
	}
	limit := min(m.sizes.most, max(m.sizes.whole, 2*ceil(of.size(), len(old))))
	from := of.first
	for _, end := range spread(old, x.Entries[of.first:of.last]) {
		to := of.first + end
		if to-from > limit {
			return nil, false
		}
		out = append(out, entries.NewPiece(x.Entries[from:to:to], x.Rules[from:to:to]))
		from = to
	}
	return out, true
}

// refitGroup returns what the segments of a group are to hold.
func (m *mirror) refitGroup(s *slot, c cell, x table, of block, how refitting) ([]entries.Piece, bool) {
	var all []*segment
	for n := c.first; n < c.last; n++ {
		held, rules := m.acls[s.indexes[n]].piece, []int32(nil)
		if n < len(s.want) {
			rules = s.want[n].Rules
		}
		segment := newSegment(held, rules)
		segment.onlyEqual = how == onlyEqual
		all = append(all, segment)
	}
	last := len(all) - 1
	g := group{sizes: m.sizes, colds: all[:last-1], warm: all[last-1], young: all[last], onlyEqual: how == onlyEqual}
	if !g.fit(x.classesOf(of), how == quietly) {
		return nil, false
	}
	var out []entries.Piece
	for _, segment := range all {
		if segment.size() > m.sizes.most {
			return nil, false
		}
		out = append(out, segment.piece())
	}
	return out, true
}

// holds says whether the ACLs of a slot hold a table as it is.
func (m *mirror) holds(s *slot, x table) bool {
	if len(s.indexes) == 0 {
		return false
	}
	c, ok := m.refit(s, x, onlyEqual)
	if !ok {
		return false
	}
	for i, index := range s.indexes {
		if h := m.acls[index]; h == nil || h.piece.Digest != c.pieces[i].Digest {
			return false
		}
	}
	return true
}
