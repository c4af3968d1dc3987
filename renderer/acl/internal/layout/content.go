package layout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

const (
	// maxGroups is the maximum number of blocks of a table that are held in segments. The largest
	// blocks are chosen.
	maxGroups = 8
	// maxMixed is the maximum number of ACLs that a new slot has between two groups, unless these
	// would be too large.
	maxMixed = 48
)

// Content is the current or desired content of the ACLs of a slot, with their roles.
type Content struct {
	Pieces []entries.Piece // with rules, where known
	Roles  []Role
}

// Table is a local table as entries.
type Table struct {
	entries.List
	whole   entries.Piece // for a table in one ACL
	blocks  []block
	classes map[block][]class // of its blocks; memoized
	refits  map[string]refit  // memoized, by slot content: slots of a group of interfaces usually have the same content
}

func (t Table) classesOf(b block) []class {
	c, ok := t.classes[b]
	if !ok {
		c = classesOf(t.List, b)
		t.classes[b] = c
	}
	return c
}

// refit is the result of laying out a table for a slot with some content.
type refit struct {
	Content
	ok bool
}

// How is how a slot takes over a table.
type How int

// The ways to take a table over.
const (
	Usual      How = iota
	Compacting     // compact the segments of recent entries
	OnlyEqual      // only if nothing changes
)

// IsWhole reports whether a table fits into one ACL.
func (z Sizes) IsWhole(t Table) bool { return len(t.Entries) <= z.Whole }

// NewTable prepares a table for layout.
func (z Sizes) NewTable(x entries.List) Table {
	t := Table{List: x, blocks: blocksOf(x.Entries), classes: make(map[block][]class), refits: make(map[string]refit)}
	if z.IsWhole(t) {
		t.whole = entries.NewPiece(x.Entries, x.Rules)
	}
	return t
}

// New lays out a table for a new slot. The result depends only on the table.
func (z Sizes) New(x Table) Content {
	if z.IsWhole(x) {
		return Content{Pieces: []entries.Piece{x.whole}, Roles: []Role{{}}}
	}
	c, _ := x.refitOnce("", func() (Content, bool) { return z.newGroups(x), true })
	return c
}

// newGroups lays out a table that needs several ACLs.
func (z Sizes) newGroups(x Table) (c Content) {
	between := 0
	for _, b := range z.largest(slices.Clone(x.blocks)) {
		z.addMixed(&c, x.List, block{first: between, last: b.first})
		z.addGroup(&c, x, b)
		between = b.last
	}
	z.addMixed(&c, x.List, block{first: between, last: len(x.Entries)})
	return c
}

// refitOnce calls lay, unless it was called before for a slot with the same content.
func (t Table) refitOnce(held string, lay func() (Content, bool)) (Content, bool) {
	out, known := t.refits[held]
	if !known {
		out.Content, out.ok = lay()
		t.refits[held] = out
	}
	return Content{slices.Clone(out.Pieces), out.Roles}, out.ok
}

// largest returns the blocks to hold in segments, in order.
func (z Sizes) largest(blocks []block) []block {
	blocks = slices.DeleteFunc(blocks, func(b block) bool { return b.size() <= z.Whole })
	slices.SortStableFunc(blocks, func(a, b block) int { return cmp.Compare(b.size(), a.size()) })
	blocks = blocks[:min(len(blocks), maxGroups)]
	slices.SortFunc(blocks, func(a, b block) int { return cmp.Compare(a.first, b.first) })
	return blocks
}

func (c *Content) add(p entries.Piece, r Role) {
	c.Pieces, c.Roles = append(c.Pieces, p), append(c.Roles, r)
}

// addMixed adds the ACLs between groups, even if these are empty.
func (z Sizes) addMixed(c *Content, x entries.List, b block) {
	count := max(1, min(maxMixed, Ceil(b.size(), z.Whole*3/4)), Ceil(b.size(), z.Full))
	each := Ceil(b.size(), count)
	for i := range count {
		from := min(b.first+i*each, b.last)
		to := min(from+each, b.last)
		c.add(entries.NewPiece(x.Entries[from:to:to], x.Rules[from:to:to]), Role{})
	}
}

// maxApart is how many rules of a block have ACLs of their own in a new slot.
const maxApart = 8

// addGroup adds the segments of a block. The largest rules are cold, each in ACLs of its own, so
// that tables that name the same large sets have equal ACLs. A little that is left is warm.
func (z Sizes) addGroup(c *Content, x Table, b block) {
	of := x.Entries[b.first].Verdict
	cold := func(all []ruled) {
		for count := Ceil(len(all), z.Full); len(all) > 0; count-- {
			n := Ceil(len(all), count)
			s := segment{changed: true, next: merge(all[:n:n])}
			c.add(s.piece(), Role{Cold, of})
			all = all[n:]
		}
	}
	runs := runsOf(x.classesOf(b))
	bySize := slices.SortedStableFunc(slices.Values(runs), func(a, b []ruled) int { return cmp.Compare(len(b), len(a)) })
	least := z.Full / 2 // more than that is apart
	if len(runs) > maxApart {
		least = max(least, len(bySize[maxApart]))
	}
	rest := make([]ruled, 0, b.size())
	for _, run := range runs {
		if len(run) > least {
			cold(run)
		} else {
			rest = append(rest, run...)
		}
	}
	byRule(rest)
	warm := segment{changed: true}
	if len(rest) <= z.Warm/2 && len(c.Pieces) > 0 && c.Roles[len(c.Roles)-1].Kind == Cold {
		warm.hold(merge(rest))
	} else {
		cold(rest)
	}
	c.add(warm.piece(), Role{Warm, of})
	c.add(entries.NewPiece(nil, nil), Role{Young, of})
}

// runsOf returns the entries of each rule and class. Members of a set often leave together, as in a
// rolling update, so a rule is spread over few ACLs.
func runsOf(classes []class) (out [][]ruled) {
	for _, k := range classes {
		all := make([]ruled, len(k.members))
		for i, m := range k.members {
			all[i] = ruled{k.entry(m.prefix), m.rule}
		}
		byRule(all)
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n].rule == all[0].rule {
				n++
			}
			out, all = append(out, all[:n:n]), all[n:]
		}
	}
	return out
}

func byRule(all []ruled) {
	slices.SortStableFunc(all, func(a, b ruled) int { return cmp.Compare(a.rule, b.rule) })
}

// Ceil returns n/by, rounded up.
func Ceil(n, by int) int { return (n + by - 1) / by }

// Refit returns the new content of the ACLs of a slot for a table, with as few changes as possible.
// It returns false when the slot cannot hold the table.
func (z Sizes) Refit(held Content, x Table, how How) (Content, bool) {
	if len(held.Roles) == 1 {
		return Content{[]entries.Piece{x.whole}, held.Roles}, z.IsWhole(x)
	}
	key := fmt.Appendf(nil, "%d %v", how, held.Roles)
	for _, p := range held.Pieces {
		key = append(key, p.Digest[:]...)
	}
	return x.refitOnce(string(key), func() (Content, bool) { return z.refitCells(held, x, how) })
}

// refitCells is Refit for a slot with several ACLs.
func (z Sizes) refitCells(held Content, x Table, how How) (Content, bool) {
	cells, ok := cellsOf(held.Roles)
	if !ok {
		return Content{}, false
	}
	of, ok := divide(cells, x.blocks)
	if !ok {
		return Content{}, false
	}
	out := Content{Roles: held.Roles}
	for n, c := range cells {
		old := held.Pieces[c.first:c.last]
		var pieces []entries.Piece
		if c.isGroup {
			pieces, ok = z.refitGroup(old, x, of[n], how)
		} else {
			pieces, ok = z.refitMixed(old, x.List, of[n])
		}
		if !ok || how == OnlyEqual && !areEqual(old, pieces) {
			return Content{}, false
		}
		out.Pieces = append(out.Pieces, pieces...)
	}
	return out, true
}

// refitMixed returns the new content of the ACLs of a cell between groups.
func (z Sizes) refitMixed(old []entries.Piece, x entries.List, of block) (out []entries.Piece, ok bool) {
	limit := min(z.Most, max(z.Whole, 2*Ceil(of.size(), len(old))))
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

// refitGroup returns the new content of the segments of a group.
func (z Sizes) refitGroup(old []entries.Piece, x Table, of block, how How) (out []entries.Piece, ok bool) {
	g := z.groupOf(old, how)
	if !g.fit(x.classesOf(of), how == Compacting) {
		return nil, false
	}
	return g.pieces()
}

// groupOf returns a group with its current content.
func (z Sizes) groupOf(old []entries.Piece, how How) group {
	all := make([]*segment, len(old))
	for n, p := range old {
		all[n] = newSegment(p, p.Rules)
		all[n].onlyEqual = how == OnlyEqual
	}
	last := len(all) - 1
	return group{max: z, colds: all[:last-1], warm: all[last-1], young: all[last], onlyEqual: how == OnlyEqual}
}

// pieces returns the new content of the segments. It returns false when one is too large.
func (g *group) pieces() (out []entries.Piece, ok bool) {
	for _, s := range g.segments() {
		if s.size() > g.max.Most {
			return nil, false
		}
		out = append(out, s.piece())
	}
	return out, true
}

// Holds reports whether the ACLs of a slot already hold a table.
func (z Sizes) Holds(held Content, x Table) bool {
	if len(held.Pieces) == 0 {
		return false
	}
	c, ok := z.Refit(held, x, OnlyEqual)
	return ok && areEqual(held.Pieces, c.Pieces)
}

func areEqual(a, b []entries.Piece) bool {
	return slices.EqualFunc(a, b, func(a, b entries.Piece) bool { return a.Digest == b.Digest })
}

// IsDue reports whether idle compaction has work to do: a segment of recent entries is more than
// half full.
func (z Sizes) IsDue(c Content) bool {
	for n, r := range c.Roles {
		if r.Kind == Young && n < len(c.Pieces) && c.Pieces[n].Count > z.Young/2 {
			return true
		}
	}
	return false
}

// IsDueGlobally is IsDue for the ACL of recent entries of the global table.
func (z Sizes) IsDueGlobally(young entries.Piece) bool { return young.Count > z.Peers/2 }

// GroupToJoin returns the group for an additional interface: the fullest group with room, so that
// small groups end with their interfaces, or a new group.
func GroupToJoin(sizes map[int]int, most int) int {
	best, free := -1, 0
	for group, n := range sizes {
		if n > 0 && n < most && (best < 0 || n > sizes[best] || n == sizes[best] && group < best) {
			best = group
		}
	}
	if best >= 0 {
		return best
	}
	for sizes[free] > 0 {
		free++
	}
	return free
}
