package layout

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// Sizes are the size limits of ACLs, in entries.
type Sizes struct {
	Whole int // of a table that is one ACL, and of an ACL between groups
	Young int // of the segment that changes with every address that joins
	Peers int // of the global table's ACL of recent entries: few interfaces have it, and many entries are behind it
	Warm  int // of the segment of older recent entries
	Full  int // of any other ACL of a new slot, which leaves room for more
	Most  int // of any ACL
}

// DefaultSizes returns the sizes for VPP. The pause for a change grows with the number of entries
// behind the changed ACL in interface lists, and with the size of the message. Therefore the
// segment of recent entries is small and the last of its block, and the cold segments come first.
// docs/reference/performance-appendix.md explains how they were chosen.
func DefaultSizes() Sizes {
	return Sizes{Whole: 256, Young: 128, Peers: 256, Warm: 2048, Full: 12_000, Most: entries.MaxEntries}
}

// segment is one of the ACLs that hold a block.
type segment struct {
	old   entries.Piece // with entries, sorted as in segments
	rules []int32
	own   bool // rules differ from those of old

	at      int // entries before at have been compared
	edits   []edit
	leaving map[int32]bool // rules of the entries that edits replaced or deleted
	next    []ruled        // new content, when it changes other than by edits
	changed bool

	onlyEqual bool // stop at the first edit: only whether there is one matters
}

// edit replaces the entries first..last-1 of a segment; it may delete them.
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

// attribute records the rule of an entry.
func (s *segment) attribute(n int, rule int32) {
	if s.rules[n] == rule {
		return
	}
	if !s.own {
		s.rules, s.own = slices.Clone(s.rules), true
	}
	s.rules[n] = rule
}

// size returns the number of entries of the new content.
func (s *segment) size() int {
	if s.changed {
		return len(s.next)
	}
	return len(s.old.Entries)
}

// replace replaces the current entry.
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

// entries returns the new content.
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

// hold replaces the whole content.
func (s *segment) hold(entries []ruled) { s.next, s.changed = entries, true }

// editions are what edits made of pieces: the same edit follows in other tables, and for other
// groups of interfaces.
var editions entries.Computed[entries.Piece]

// apply applies the edits, which are in the order of the entries.
func (s *segment) apply() {
	if len(s.edits) == 0 {
		return
	}
	s.leaving = make(map[int32]bool)
	var with entries.List
	for _, e := range s.edits {
		for _, rule := range s.rules[e.first:e.last] {
			s.leaving[rule] = true
		}
		for _, r := range e.with {
			with.Add(r.rule, r.Entry)
		}
	}
	s.old, s.rules, s.own = s.edition(with.Entries), splice(s.rules, s.edits, with.Rules), true
	s.edits = nil
}

// edition returns the piece with the edits, without rules. with is what they insert.
func (s *segment) edition(with []entries.Entry) entries.Piece {
	if s.old.Digest == (entries.Digest{}) { // a part of an ACL
		return entries.Piece{Entries: splice(s.old.Entries, s.edits, with)}
	}
	key := slices.Clone(s.old.Digest[:])
	for _, e := range s.edits {
		for _, n := range []int{e.first, e.last, len(e.with)} {
			key = binary.BigEndian.AppendUint32(key, uint32(n))
		}
	}
	of := entries.DigestOf(with)
	sum := sha256.Sum256(append(key, of[:]...))
	digest := entries.Digest(sum[:len(of)])
	if known := editions.Get(digest); known != nil {
		return *known
	}
	p := entries.Share(entries.NewPiece(splice(s.old.Entries, s.edits, with), nil))
	editions.Put(digest, &p)
	return p
}

// isChanged reports whether the new content differs from the old one.
func (s *segment) isChanged() bool { return s.changed || s.leaving != nil }

// splice returns a copy of a list with the edits. with is what they insert.
func splice[T any](list []T, edits []edit, with []T) []T {
	size := len(list) + len(with)
	for _, e := range edits {
		size -= e.last - e.first
	}
	out, from := make([]T, 0, size), 0
	for _, e := range edits {
		out = append(append(out, list[from:e.first]...), with[:len(e.with)]...)
		from, with = e.last, with[len(e.with):]
	}
	return append(out, list[from:]...)
}

// piece returns the new content of the segment's ACL.
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
	return entries.Share(entries.NewPiece(list, rules))
}

// group holds a block in segments, from the oldest to the youngest.
type group struct {
	max         Sizes
	colds       []*segment
	warm, young *segment
	onlyEqual   bool // compare only until a change is needed
}

func (g *group) segments() []*segment { return append(slices.Clone(g.colds), g.warm, g.young) }

// fit changes the segments so that they hold the same addresses as the classes; the prefixes may
// differ. Missing addresses go to the segment of recent entries. With compact it also compacts. It
// returns false when the entries do not fit.
func (g *group) fit(classes []class, compact bool) bool {
	return g.settle(g.compare(classes), compact)
}

// settle is fit after the comparison.
func (g *group) settle(missing []ruled, compact bool) bool {
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
	if compact && g.isDue() {
		return g.age(nil)
	}
	return true
}

// warmUp moves the remaining entries of a rule from a cold to the warm segment when one of them
// leaves the cold segment, if there is room. Other addresses of the same set are likely to follow,
// as in a rolling update, and every change of a cold segment is as expensive for VPP as replacing
// the table.
func (g *group) warmUp() {
	for _, s := range g.colds {
		if len(s.leaving) == 0 {
			continue
		}
		n := 0
		for _, rule := range s.rules {
			if s.leaving[rule] {
				n++
			}
		}
		if n == 0 || n > g.max.Warm/2 || g.warm.size()+n > g.max.Warm {
			continue
		}
		moved, rest := make([]ruled, 0, n), make([]ruled, 0, s.size()-n)
		for _, e := range s.entries() {
			if s.leaving[e.rule] {
				moved = append(moved, e)
			} else {
				rest = append(rest, e)
			}
		}
		s.hold(rest)
		g.warm.hold(merge(append(g.warm.entries(), moved...)))
	}
}

// isDue reports whether idle compaction has work to do.
func (g *group) isDue() bool { return g.young.size() > g.max.Young/2 }

// add adds new entries to the segment of recent entries, or to older segments when that is full.
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

// age moves the recent entries, and more, to the warm segment, and the warm entries to cold
// segments when there are too many.
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

// compare compares all entries of the segments with the classes. It marks entries that must go, and
// returns what is missing.
func (g *group) compare(classes []class) (missing []ruled) {
	segments := g.segments()
	for i := range classes {
		c := &classes[i]
		f := coverage{class: c, covered: make([]bool, len(c.members))}
		for _, s := range segments {
			f.compare(s)
		}
		if missing = f.missing(missing, !g.onlyEqual); g.onlyEqual && (len(missing) > 0 || slices.ContainsFunc(segments, (*segment).isEdited)) {
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
