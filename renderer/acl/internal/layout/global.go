package layout

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// Parts is the number of ACLs that hold the lists of the global table. It is constant, so that
// uplinks keep their ACLs when lists come and go: VPP drops the established flows of an interface
// whose ACLs change.
const Parts = 16

// Global is the current or desired content of the ACLs of the global table.
type Global struct {
	Young  []entries.Piece        // the latest permits; one piece, or none before there is an ACL
	Owners map[entries.Entry]int  // part to which each class of recent entries belongs
	Parts  [Parts][]entries.Piece // with rules, where known
}

// Part is the desired content of one part of the global table: what its lists permit before they
// deny anything, sorted as in segments, then the rest of the lists. The lists have different
// sources, so their order does not matter. The recent permits are in an ACL of their own
// instead, in front of all parts.
//
// Segments compare entries by source. In the global table the destination varies, so permits are
// flipped for comparison: source and destination are exchanged.
type Part struct {
	Number  int
	permits entries.List // flipped
	rest    entries.List
}

// Add adds a list.
func (p *Part) Add(x entries.List) {
	n := 0
	for n < len(x.Entries) && x.Entries[n].Verdict != entries.Deny {
		p.permits.Entries = append(p.permits.Entries, x.Entries[n].Flip())
		n++
	}
	p.permits.Rules = append(p.permits.Rules, x.Rules[:n]...)
	p.rest.Entries = append(p.rest.Entries, x.Entries[n:]...)
	p.rest.Rules = append(p.rest.Rules, x.Rules[n:]...)
}

// partFit compares a part with the content of its ACLs.
type partFit struct {
	Part
	held  []entries.Piece
	old   entries.Piece // held content, if it is one ACL
	split int           // start of the rest in it
	older *segment
	young *segment

	isKept bool // it has several ACLs and did not change: nothing can be added to it
}

// openPart compares a part with its current content, and takes over its recent entries.
func openPart(p Part, held []entries.Piece, young *segment, mine []int) *partFit {
	f := &partFit{Part: p, held: held}
	var flipped []entries.Entry
	var rules []int32
	if len(held) == 1 {
		f.old = held[0]
		for f.split < len(f.old.Entries) && f.old.Entries[f.split].Verdict != entries.Deny {
			flipped = append(flipped, f.old.Entries[f.split].Flip())
			f.split++
		}
		if len(f.old.Rules) == len(f.old.Entries) {
			rules = f.old.Rules[:f.split]
		}
	}
	f.older = newSegment(entries.Piece{Entries: flipped}, rules)
	f.young = newSegment(entries.Piece{}, nil)
	for _, n := range mine {
		f.young.old.Entries = append(f.young.old.Entries, young.old.Entries[n])
		f.young.rules = append(f.young.rules, young.rules[n])
	}
	if !entries.IsInOrder(flipped) {
		f.older = newSegment(entries.Piece{}, nil)
		f.older.hold(nil)
	}
	return f
}

// fit decides where missing entries go: to the part's ACL if that changes anyway, otherwise to the
// ACL of recent entries.
func (f *partFit) fit(classes []class) {
	g := group{warm: f.older, young: f.young}
	missing := g.compare(classes)
	f.older.apply()
	f.young.apply()
	if len(missing) == 0 {
		return
	}
	s := f.young
	if f.older.isChanged() || f.restChanges() || len(f.held) != 1 {
		s = f.older
	}
	s.hold(merge(append(s.entries(), missing...)))
}

func (f *partFit) restChanges() bool { return !slices.Equal(f.old.Entries[f.split:], f.rest.Entries) }

// keepRest keeps the current content of the part, except for recent entries.
func (f *partFit) keepRest() {
	if f.isKept = len(f.held) != 1; !f.isKept {
		f.rest = entries.List{Entries: f.old.Entries[f.split:], Rules: f.old.Rules[f.split:]}
	}
}

// age moves the part's recent entries to the part.
func (f *partFit) age() {
	if f.young.size() > 0 && !f.isKept {
		f.older.hold(merge(append(f.older.entries(), f.young.entries()...)))
		f.young.hold(nil)
	}
}

// pieces returns the desired content of the ACLs of the part.
func (f *partFit) pieces() []entries.Piece {
	permits := f.older.entries()
	x := entries.List{Entries: make([]entries.Entry, 0, len(permits)+len(f.rest.Entries)), Rules: make([]int32, 0, len(permits)+len(f.rest.Entries))}
	for _, e := range permits {
		x.Entries, x.Rules = append(x.Entries, e.Flip()), append(x.Rules, e.rule)
	}
	x.Entries, x.Rules = append(x.Entries, f.rest.Entries...), append(x.Rules, f.rest.Rules...)
	if len(f.held) == 1 && !f.older.isChanged() && !f.restChanges() {
		old := f.old
		old.Rules = x.Rules
		return []entries.Piece{old}
	}
	return entries.Cut(x)
}

// RefitGlobal returns the new content of the ACLs of the global table after some parts may have
// changed. It omits unchanged parts.
func (z Sizes) RefitGlobal(held Global, changed []Part, how How) (want Global) {
	young := youngOf(held.Young)
	classes, owners := ownersOf(changed, held.Owners)
	var mine [Parts][]int
	for n, e := range young.old.Entries {
		e.Src = entries.Net{}
		if of, known := owners[e]; known { // else its list no longer exists
			mine[of] = append(mine[of], n)
		}
	}
	var fits []*partFit
	for i, p := range changed {
		f := openPart(p, held.Parts[p.Number], young, mine[p.Number])
		f.fit(classes[i])
		fits = append(fits, f)
		mine[p.Number] = nil
	}
	for n, kept := range mine {
		if len(kept) > 0 {
			f := openPart(Part{Number: n}, held.Parts[n], young, kept)
			f.keepRest()
			fits = append(fits, f)
		}
	}
	next := youngEntries(fits)
	if len(next) > z.Peers || how == Compacting && len(next) > z.Peers/2 {
		for _, f := range fits {
			f.age()
		}
		next = youngEntries(fits)
	}
	want.holdYoung(merge(next), owners)
	for _, f := range fits {
		if !f.isKept {
			want.Parts[f.Number] = f.pieces()
		}
	}
	return want
}

func youngEntries(fits []*partFit) (out []ruled) {
	for _, f := range fits {
		out = append(out, f.young.entries()...)
	}
	return out
}

// youngOf returns the current content of the ACL of recent entries, flipped.
func youngOf(held []entries.Piece) *segment {
	if len(held) != 1 {
		return newSegment(entries.Piece{}, nil)
	}
	flipped := make([]entries.Entry, len(held[0].Entries))
	for i, e := range held[0].Entries {
		flipped[i] = e.Flip()
	}
	if !entries.IsInOrder(flipped) {
		flipped = nil
	}
	return newSegment(entries.Piece{Entries: flipped}, held[0].Rules)
}

// ownersOf returns the classes of the parts that may have changed, and the part of every class; the
// other classes keep their part.
func ownersOf(changed []Part, before map[entries.Entry]int) ([][]class, map[entries.Entry]int) {
	owners := make(map[entries.Entry]int, len(before))
	maps.Copy(owners, before)
	classes := make([][]class, len(changed))
	for i, p := range changed {
		classes[i] = classesOf(p.permits, block{last: len(p.permits.Entries)})
		for _, c := range classes[i] {
			owners[c.of] = p.Number
		}
	}
	return classes, owners
}

// holdYoung sets the desired content of the ACL of recent entries.
func (g *Global) holdYoung(young []ruled, owners map[entries.Entry]int) {
	x := entries.List{Entries: make([]entries.Entry, len(young)), Rules: make([]int32, len(young))}
	g.Owners = make(map[entries.Entry]int)
	for i, e := range young {
		x.Entries[i], x.Rules[i] = e.Flip(), e.rule
		of := e.Entry
		of.Src = entries.Net{}
		g.Owners[of] = owners[of]
	}
	g.Young = []entries.Piece{entries.NewPiece(x.Entries, x.Rules)}
}
