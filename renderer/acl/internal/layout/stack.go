package layout

import (
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// Sizes bound ACLs.
type Sizes struct {
	Whole  int // entries of a table in one ACL
	Recent int // entries of an ACL with recent permits
	Base   int // permits of an ACL of the base, as long as there are few of these
	Most   int // entries of any ACL
}

// DefaultSizes are those of VPP. For an ACL that changes, VPP stops for 2 us for each of its entries,
// and for 1 us for each of them and of those behind it.
func DefaultSizes() Sizes { return Sizes{Whole: 256, Recent: 128, Base: 128, Most: entries.MaxEntries} }

// Shape is how many ACLs hold what of a table. The zero Shape is one ACL with all of it.
type Shape struct {
	Front int // with the entries whose order matters
	Base  int // with the permits behind them; then comes one of recent permits, and one that decides the rest
	Parts int // as the caller has divided the table, and one that decides the rest
}

// ACLs returns the number of ACLs.
func (s Shape) ACLs() int {
	switch {
	case s.Parts > 0:
		return s.Parts + 1
	case s.Base > 0:
		return s.Front + s.Base + 2
	}
	return 1
}

// manyACLs is how many ACLs a base has at most, unless they would be too large. More make a leave
// hardly cheaper, because of the entries behind the ACL that changes, and dear what changes them all.
const manyACLs = 8

// baseFor returns how many ACLs a new base of some permits has.
func (z Sizes) baseFor(permits int) int {
	ceil := func(n, by int) int { return (n + by - 1) / by }
	return max(1, min(ceil(permits, z.Base), manyACLs), ceil(permits+permits/2, z.Most))
}

// Table is a table as entries. Its entries are those in front, whose order matters; then permits, in
// any order; then those that decide everything.
type Table struct {
	entries.List
	front, last int // where the permits begin, and where they end
	permits     map[entries.Entry]int32
}

// NewTable prepares a table.
func NewTable(x entries.List) *Table {
	t := &Table{List: x, last: len(x.Entries)}
	for t.last > 0 && x.Entries[t.last-1].MatchesAll() {
		t.last--
	}
	for t.front = t.last; t.front > 0 && x.Entries[t.front-1].Verdict == entries.Reflect; {
		t.front--
	}
	return t
}

// New lays out a table for new ACLs.
func (z Sizes) New(t *Table) (Shape, []entries.Piece) {
	if len(t.Entries) <= z.Whole {
		return Shape{}, []entries.Piece{pieceOf(t.List)}
	}
	out := entries.Cut(t.part(0, t.front), z.Most)
	shape := Shape{Front: len(out), Base: z.baseFor(t.last - t.front)}
	out = append(out, t.base(shape.Base, nil)...)
	return shape, append(out, pieceOf(entries.List{}), t.rest())
}

// Fit returns the content that ACLs of a shape get to hold a table, given what they hold. It is false
// when they cannot: the table needs new ACLs.
//
// The ACL of recent permits is behind the base, so that VPP applies little again when it changes. A
// permit that is new goes there, as long as it has room. An ACL of the base changes only when it
// permits what the table does not, and when the recent permits need room: then they join the base.
func (z Sizes) Fit(shape Shape, held []entries.Piece, t *Table) ([]entries.Piece, bool) {
	if shape.Base == 0 {
		return []entries.Piece{pieceOf(t.List)}, len(t.Entries) <= max(z.Whole, 1)
	}
	out := entries.Cut(t.part(0, t.front), z.Most)
	if len(out) > shape.Front || z.baseFor(t.last-t.front) > 4*shape.Base {
		return nil, false
	}
	for len(out) < shape.Front {
		out = append(out, pieceOf(entries.List{}))
	}
	recent, inRecent := t.permitted(held[shape.Front+shape.Base].Entries)
	base, lacks := t.compare(held[shape.Front : shape.Front+shape.Base])
	missing := t.missing(lacks, base, inRecent)
	if len(recent.Entries)+len(missing.Entries) <= z.Recent {
		recent.Entries, recent.Rules = append(recent.Entries, missing.Entries...), append(recent.Rules, missing.Rules...)
	} else { // they join the base
		recent, inRecent = entries.List{}, nil
		for n := range base {
			base[n].keep = base[n].keep && !lacks.in[n]
		}
	}
	for n, whole := range t.base(shape.Base, inRecent) {
		if base[n].keep {
			whole = base[n].Piece
		} else if whole.Count > z.Most {
			return nil, false
		}
		out = append(out, whole)
	}
	return append(out, pieceOf(recent), t.rest()), true
}

func pieceOf(x entries.List) entries.Piece { return entries.NewPiece(x.Entries, x.Rules) }

// part returns some entries, which must not be changed.
func (t *Table) part(first, last int) entries.List {
	return entries.List{Entries: t.Entries[first:last:last], Rules: t.Rules[first:last:last]}
}

// rest returns the ACL that decides the rest.
func (t *Table) rest() entries.Piece { return pieceOf(t.part(t.last, len(t.Entries))) }

// ruleOf returns the rule of a permit behind the front.
func (t *Table) ruleOf(e *entries.Entry) (rule int32, ok bool) {
	if t.permits == nil {
		t.permits = make(map[entries.Entry]int32, t.last-t.front)
		for i := t.front; i < t.last; i++ {
			t.permits[t.Entries[i]] = t.Rules[i]
		}
	}
	rule, ok = t.permits[*e]
	return rule, ok
}

// ruleAround returns the rule of a permit that matches all that an entry matches. When an address
// joins, its prefix may become one with that of a neighbour, which the base still has.
func (t *Table) ruleAround(e entries.Entry) (rule int32, ok bool) {
	for e.Src.Bits() > 0 {
		e.Src = e.Src.Wider()
		if rule, ok = t.ruleOf(&e); ok {
			return rule, true
		}
	}
	return 0, false
}

// permitted returns those of some entries that are permits of the table.
func (t *Table) permitted(some []entries.Entry) (out entries.List, are map[entries.Entry]bool) {
	are = make(map[entries.Entry]bool, len(some))
	for i := range some {
		if rule, ok := t.ruleOf(&some[i]); ok {
			out.Add(rule, some[i])
			are[some[i]] = true
		}
	}
	return out, are
}

// isIn returns the ACL of the base that has a permit. It depends on the source, so that an address that
// leaves changes one ACL, whatever the number of its permits.
func isIn(e *entries.Entry, of int) int { return int(e.Src.Hash() % uint32(of)) }

// base returns the permits as a base of some ACLs, without those in besides.
func (t *Table) base(of int, besides map[entries.Entry]bool) []entries.Piece {
	lists := make([]entries.List, of)
	for i := t.front; i < t.last; i++ {
		if e := &t.Entries[i]; !besides[*e] {
			lists[isIn(e, of)].Add(t.Rules[i], *e)
		}
	}
	out := make([]entries.Piece, of)
	for n := range lists {
		out[n] = pieceOf(lists[n])
	}
	return out
}

// heldBase is an ACL of the base, with the rules of the table.
type heldBase struct {
	entries.Piece
	keep bool // it permits nothing that the table does not
}

// lacking are permits that the base lacks.
type lacking struct {
	at []int  // indexes of entries
	in []bool // ACLs of the base
}

// compare compares a base with the table.
func (t *Table) compare(held []entries.Piece) (base []heldBase, lacks lacking) {
	has := make(map[entries.Entry]bool, t.last-t.front)
	for _, p := range held {
		b := heldBase{Piece: p, keep: true}
		b.Rules = make([]int32, len(p.Entries))
		for i := range p.Entries {
			e, ok := &p.Entries[i], false
			if b.Rules[i], ok = t.ruleOf(e); !ok {
				b.Rules[i], ok = t.ruleAround(*e)
			}
			has[*e], b.keep = true, b.keep && ok
		}
		base = append(base, b)
	}
	lacks.in = make([]bool, len(base))
	for i := t.front; i < t.last; i++ {
		if e := &t.Entries[i]; !has[*e] {
			lacks.at, lacks.in[isIn(e, len(base))] = append(lacks.at, i), true
		}
	}
	return base, lacks
}

// missing returns what is neither recent nor in an ACL that changes anyway.
func (t *Table) missing(lacks lacking, base []heldBase, inRecent map[entries.Entry]bool) (out entries.List) {
	for _, i := range lacks.at {
		if e := &t.Entries[i]; !inRecent[*e] && base[isIn(e, len(base))].keep {
			out.Add(t.Rules[i], *e)
		}
	}
	return out
}

// PermitsMore reports whether a change of a large table only adds permits. It is false for tables in one
// ACL, whose changes are not looked into.
func PermitsMore(shape Shape, held, want []entries.Piece) bool {
	if shape.Base == 0 {
		return false
	}
	recent := len(held) - 2
	for n := range held {
		if n != recent && held[n].Digest != want[n].Digest {
			return false
		}
	}
	return len(held[recent].Entries) < len(want[recent].Entries) && includes(want[recent].Entries, held[recent].Entries)
}
