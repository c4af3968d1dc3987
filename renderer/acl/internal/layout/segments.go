package layout

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// Sizes are bounds of ACLs, in entries.
type Sizes struct {
	Whole int // a table that is one ACL, and an ACL between groups
	Young int // the segment that changes with every address that joins
	Peers int // the young ACL of the global table: few interfaces have it, and what is behind it is long
	Warm  int // the one for what outlived the young ones
	Full  int // in any other ACL of a new slot, so that it has room
	Most  int // in any ACL
}

// DefaultSizes are for VPP. The young segment is the last of its block and small: what stands
// behind a changed ACL in the list of an interface costs a stall, and so does what is sent. The
// cold ones are the first. How the sizes were chosen: docs/reference/performance.md.
func DefaultSizes() Sizes {
	return Sizes{Whole: 256, Young: 128, Peers: 256, Warm: 2048, Full: 12_000, Most: entries.MaxEntries}
}

// segment is one of the ACLs that hold a block.
type segment struct {
	old   entries.Piece // with entries, in the order of segments
	rules []int32
	own   bool // rules are not those of old

	at      int // entries before it have been looked at
	edits   []edit
	next    []ruled // what it is to hold, when it changes
	changed bool

	onlyEqual bool // the first edit is the last: it is enough to know that there is one
}

// edit replaces the entries first..last-1 of a segment by some, or by none.
type edit struct {
	first, last int
	with        []ruled
}

func newSegment(held entries.Piece, rules []int32) *segment {
	s := &segment{old: held, rules: rules}
	if len(rules) != len(held.Entries) {
		s.rules, s.own = make([]int32, len(held.Entries)), true
	}
	return s
}

// attribute notes the rule of an entry.
func (s *segment) attribute(n int, rule int32) {
	if s.rules[n] == rule {
		return
	}
	if !s.own {
		s.rules, s.own = slices.Clone(s.rules), true
	}
	s.rules[n] = rule
}

// size is how many entries it is to hold.
func (s *segment) size() int {
	if s.changed {
		return len(s.next)
	}
	return len(s.old.Entries)
}

// replace makes an edit of the entry that is looked at.
func (s *segment) replace(with []ruled) {
	if n := len(s.edits); n > 0 && s.edits[n-1].last == s.at && len(with) == 0 && len(s.edits[n-1].with) == 0 {
		s.edits[n-1].last++
	} else {
		s.edits = append(s.edits, edit{s.at, s.at + 1, with})
	}
	if s.onlyEqual {
		s.at = len(s.old.Entries)
	}
}

func (s *segment) isEdited() bool { return len(s.edits) > 0 }

// editedRules returns the rules of the entries that go, or that others replace.
func (s *segment) editedRules() map[int32]bool {
	out := make(map[int32]bool)
	for _, e := range s.edits {
		for _, rule := range s.rules[e.first:e.last] {
			out[rule] = true
		}
	}
	return out
}

// entries returns what it is to hold.
func (s *segment) entries() []ruled {
	if s.changed {
		return s.next
	}
	out := make([]ruled, len(s.old.Entries))
	for i, e := range s.old.Entries {
		out[i] = ruled{e, s.rules[i]}
	}
	return out
}

// hold has it hold something else.
func (s *segment) hold(entries []ruled) { s.next, s.changed = entries, true }

// apply makes the edits. Edits come in the order of the entries.
func (s *segment) apply() {
	if len(s.edits) == 0 {
		return
	}
	size := len(s.old.Entries)
	for _, e := range s.edits {
		size += len(e.with) - (e.last - e.first)
	}
	next := make([]ruled, 0, size)
	from := 0
	copyTo := func(to int) {
		for ; from < to; from++ {
			next = append(next, ruled{s.old.Entries[from], s.rules[from]})
		}
	}
	for _, e := range s.edits {
		copyTo(e.first)
		next = append(next, e.with...)
		from = e.last
	}
	copyTo(len(s.old.Entries))
	s.hold(next)
}

// piece returns the content of its ACL.
func (s *segment) piece() entries.Piece {
	if !s.changed {
		p := s.old
		p.Rules = s.rules
		return p
	}
	list, rules := make([]entries.Entry, len(s.next)), make([]int32, len(s.next))
	for i, e := range s.next {
		list[i], rules[i] = e.Entry, e.rule
	}
	return entries.NewPiece(list, rules)
}

// group holds a block: segments from the oldest to the youngest.
type group struct {
	max         Sizes
	colds       []*segment
	warm, young *segment
	onlyEqual   bool // nothing is to change; to be compared until something would
}

func (g *group) segments() []*segment { return append(slices.Clone(g.colds), g.warm, g.young) }

// fit has the segments hold what the classes have: the same addresses, whatever the
// prefixes. What is missing goes to the young ones. It is false when there is no
// room. With quiet it is the time to make room.
func (g *group) fit(classes []class, quiet bool) bool {
	missing := g.compare(classes)
	if g.onlyEqual && (len(missing) > 0 || slices.ContainsFunc(g.segments(), (*segment).isEdited)) {
		return false
	}
	for _, s := range g.segments() {
		s.apply()
	}
	g.warmUp()
	if len(missing) > 0 && !g.add(missing) {
		return false
	}
	if quiet && g.isDue() {
		return g.age(nil)
	}
	return true
}

// warmUp moves what a cold segment still holds of a rule to the warm segment when some of it
// leaves, if there is room. When one address of a set leaves, others are likely to follow, as in a
// rolling update, and every change of a cold segment costs a VPP what replacing the table costs.
func (g *group) warmUp() {
	for _, s := range g.colds {
		leaving := s.editedRules()
		if len(leaving) == 0 {
			continue
		}
		var moved, rest []ruled
		for _, e := range s.next {
			if leaving[e.rule] {
				moved = append(moved, e)
			} else {
				rest = append(rest, e)
			}
		}
		if n := len(moved); n > 0 && n <= g.max.Warm/2 && g.warm.size()+n <= g.max.Warm {
			s.hold(rest)
			g.warm.hold(merge(append(g.warm.entries(), moved...)))
		}
	}
}

// isDue reports whether a quiet moment is to be used to make room.
func (g *group) isDue() bool { return g.young.size() > g.max.Young/2 }

// add puts new entries where the young ones are, or further to the front when
// there is no room.
func (g *group) add(entries []ruled) bool {
	switch {
	case g.young.size()+len(entries) <= g.max.Young:
		g.young.hold(merge(append(g.young.entries(), entries...)))
		return true
	case len(entries) > g.max.Young:
		return g.age(entries)
	case !g.age(nil):
		return false
	}
	g.young.hold(merge(entries))
	return true
}

// age moves what is young, and more, to the warm ones, and these to the cold ones
// when they are too many.
func (g *group) age(more []ruled) bool {
	all := more
	if g.warm.size()+g.young.size() > 0 {
		all = slices.Concat(g.warm.entries(), g.young.entries(), more)
	}
	all = merge(all)
	if g.young.size() > 0 {
		g.young.hold(nil)
	}
	if len(all) <= g.max.Warm {
		g.warm.hold(all)
		return true
	}
	for _, c := range slices.Backward(g.colds) {
		if c.size()+len(all) <= g.max.Most {
			c.hold(merge(append(c.entries(), all...)))
			if g.warm.size() > 0 {
				g.warm.hold(nil)
			}
			return true
		}
	}
	return false
}

// compare looks at all entries of the segments: it notes which of them have to go,
// and returns what none of them has.
func (g *group) compare(classes []class) (missing []ruled) {
	segments := g.segments()
	for i := range classes {
		c := &classes[i]
		f := coverage{class: c, covered: make([]bool, len(c.members))}
		for _, s := range segments {
			f.compare(s)
		}
		if missing = f.missing(missing); g.onlyEqual && (len(missing) > 0 || slices.ContainsFunc(segments, (*segment).isEdited)) {
			return missing
		}
	}
	for _, s := range segments {
		for ; s.at < len(s.old.Entries); s.at++ {
			s.replace(nil)
		}
	}
	return missing
}
