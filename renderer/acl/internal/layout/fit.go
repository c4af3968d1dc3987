package layout

import (
	"slices"

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
	front, last int                     // where the permits begin, and where they end
	nets        map[entries.Entry]int32 // the rules of permits whose source is more than an address; nil until needed
}

// NewTable prepares a table. Where one address has more permits than an ACL may have, all of them stay in
// front, in their order.
func (z Sizes) NewTable(x entries.List) *Table {
	t := &Table{List: x, last: len(x.Entries)}
	for t.last > 0 && x.Entries[t.last-1].MatchesAll() {
		t.last--
	}
	for t.front = t.last; t.front > 0 && x.Entries[t.front-1].Verdict == entries.Reflect; {
		t.front--
	}
	if permits := t.last - t.front; permits > z.Most {
		base := t.divide(z.baseFor(permits), nil)
		if slices.ContainsFunc(base, func(x entries.List) bool { return len(x.Entries) > z.Most }) {
			t.front = t.last
		}
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
	for _, x := range t.divide(shape.Base, nil) {
		out = append(out, pieceOf(x))
	}
	return shape, append(out, pieceOf(entries.List{}), t.rest())
}

// Fit returns the content that ACLs of a shape get to hold a table, given what they hold. It is false
// when they cannot: the table needs new ACLs.
//
// The ACL of recent permits is behind the base, so that VPP applies little again when it changes:
//   - What joins goes there, as long as it has room. No other ACL changes.
//   - When it has none, all recent permits join the base, and it is empty.
//   - What leaves the recent permits changes their ACL, what leaves the base one ACL of that: the one of its
//     address. That gets all that the table has for it, but for what is recent.
//   - When the prefix of two neighbours leaves, the one that stays joins: the recent permits, or the ACL of
//     the prefix if that is its own, too.
//   - What changes in front, where the order matters, changes ACLs there.
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
	recent, recentRules := t.permitted(held[shape.Front+shape.Base].Entries)
	base := t.compare(held[shape.Front:shape.Front+shape.Base], recentRules)
	missing := missingIn(base)
	room := len(recent.Entries)+len(missing.Entries) <= z.Recent
	if room {
		recent.Entries, recent.Rules = append(recent.Entries, missing.Entries...), append(recent.Rules, missing.Rules...)
	} else { // all of them join the base
		recent = entries.List{}
		base = t.compare(held[shape.Front:shape.Front+shape.Base], nil)
	}
	for _, b := range base {
		switch stays := !b.excess && (room || len(b.missing.Entries) == 0); {
		case stays:
			out = append(out, b.held)
		case len(b.whole.Entries) > z.Most:
			return nil, false
		default:
			out = append(out, pieceOf(b.whole))
		}
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

// ruleAround returns the rule of a permit that matches all that an entry matches. When an address
// joins, its prefix may become one with that of a neighbour, which the base still has.
func (t *Table) ruleAround(e entries.Entry) (rule int32, ok bool) {
	if t.nets == nil {
		t.nets = map[entries.Entry]int32{}
		for i := t.front; i < t.last; i++ {
			if x := &t.Entries[i]; !x.Src.IsHost() {
				t.nets[*x] = t.Rules[i]
			}
		}
	}
	for len(t.nets) > 0 && e.Src.Bits() > 0 {
		e.Src = e.Src.Wider()
		if rule, ok = t.nets[e]; ok {
			return rule, true
		}
	}
	return 0, false
}

// permitted returns those of a few entries that are permits of the table.
func (t *Table) permitted(few []entries.Entry) (out entries.List, rules map[entries.Entry]int32) {
	if len(few) == 0 {
		return out, nil
	}
	asked := make(map[entries.Entry]bool, len(few))
	for _, e := range few {
		asked[e] = true
	}
	rules = make(map[entries.Entry]int32, len(few))
	for i := t.front; i < t.last; i++ {
		if e := &t.Entries[i]; asked[*e] {
			rules[*e] = t.Rules[i]
		}
	}
	for _, e := range few {
		if rule, ok := rules[e]; ok {
			out.Add(rule, e)
		}
	}
	return out, rules
}

// isIn returns the ACL of the base that has a permit. It depends on the source or, where that is any, on the
// destination, so that an address that leaves changes one ACL, whatever the number of its permits.
func isIn(e *entries.Entry, of int) int {
	if e.Src.Bits() == 0 {
		return int(e.Dst.Hash() % uint32(of))
	}
	return int(e.Src.Hash() % uint32(of))
}

// divide divides the permits among the ACLs of a base, without those in besides.
func (t *Table) divide(of int, besides map[entries.Entry]int32) []entries.List {
	lists := make([]entries.List, of)
	for n := range lists {
		some := (t.last-t.front)/of + 8
		lists[n] = entries.List{Entries: make([]entries.Entry, 0, some), Rules: make([]int32, 0, some)}
	}
	for i := t.front; i < t.last; i++ {
		e := &t.Entries[i]
		if _, is := besides[*e]; !is {
			lists[isIn(e, of)].Add(t.Rules[i], *e)
		}
	}
	return lists
}

// baseACL is an ACL of the base, beside the table.
type baseACL struct {
	whole   entries.List  // what the table has for it
	held    entries.Piece // what it holds, with the rules of the table
	missing entries.List  // what it lacks
	excess  bool          // it permits what the table does not
}

// compare compares the ACLs of a base with the table, without what is recent. Most of them hold what they
// are to hold.
func (t *Table) compare(held []entries.Piece, recent map[entries.Entry]int32) []baseACL {
	base := make([]baseACL, len(held))
	for n, x := range t.divide(len(held), recent) {
		if slices.Equal(x.Entries, held[n].Entries) {
			base[n] = baseACL{whole: x, held: held[n]}
			base[n].held.Rules = x.Rules
		} else {
			base[n] = t.compareOne(held[n], x, recent)
		}
	}
	return base
}

func (t *Table) compareOne(held entries.Piece, whole entries.List, recent map[entries.Entry]int32) baseACL {
	b := baseACL{whole: whole, held: held}
	b.held.Rules = make([]int32, len(held.Entries))
	has := make(map[entries.Entry]bool, len(held.Entries))
	rules := make(map[entries.Entry]int32, len(whole.Entries))
	for i, e := range whole.Entries {
		rules[e] = whole.Rules[i]
	}
	for i, e := range held.Entries {
		rule, ok := rules[e]
		if !ok {
			rule, ok = recent[e]
		}
		if !ok {
			rule, ok = t.ruleAround(e)
		}
		has[e], b.held.Rules[i], b.excess = true, rule, b.excess || !ok
	}
	for i, e := range whole.Entries {
		if !has[e] {
			b.missing.Add(whole.Rules[i], e)
		}
	}
	return b
}

// missingIn returns what ACLs lack, but for those that must change anyway.
func missingIn(base []baseACL) (out entries.List) {
	for _, b := range base {
		if !b.excess {
			out.Entries, out.Rules = append(out.Entries, b.missing.Entries...), append(out.Rules, b.missing.Rules...)
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
