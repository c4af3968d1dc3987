package layout

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// Parts is the number of ACLs that hold the lists of the global table. It is
// constant, so that uplinks keep their ACLs when lists come and go: VPP forgets
// established flows of an interface whose ACLs change.
const Parts = 16

// Global is what the ACLs of the global table hold, or are to hold.
type Global struct {
	Young  []entries.Piece        // what was permitted last; one, or none before there is an ACL
	Owners map[entries.Entry]int  // of which part the classes of young entries are
	Parts  [Parts][]entries.Piece // with their rules, as far as they are known
}

// Part is what one part of the global table is to hold: what lists permit
// before they deny anything, in the order of segments, then the rest of the lists. A
// packet has a source, and the lists are of different sources, so the order of lists
// means nothing. What was permitted last stands in the young ACL instead, in front of
// all parts.
//
// Segments compare entries by their source. What varies here is the destination, so
// the entries that are permitted are flipped, with both sides exchanged, as long as
// they are compared.
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

// partFit is a part beside what its ACLs hold.
type partFit struct {
	Part
	held  []entries.Piece
	old   entries.Piece // what it holds, when that is one ACL
	split int           // where the rest begins in it
	older *segment
	young *segment

	isKept bool // it has several ACLs and did not change: nothing can be added to it
}

// openPart looks at what a part holds, and takes its entries from the young ones.
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

// fit decides which of the two has what is missing: an ACL that changes in any case
// takes it, else it is young.
func (f *partFit) fit(classes []class) {
	g := group{warm: f.older, young: f.young}
	missing := g.compare(classes)
	f.older.apply()
	f.young.apply()
	if len(missing) == 0 {
		return
	}
	s := f.young
	if f.older.changed || f.restChanges() || len(f.held) != 1 {
		s = f.older
	}
	s.hold(merge(append(s.entries(), missing...)))
}

func (f *partFit) restChanges() bool { return !slices.Equal(f.old.Entries[f.split:], f.rest.Entries) }

// keepRest has the part go on holding what it holds beside what is young.
func (f *partFit) keepRest() {
	if f.isKept = len(f.held) != 1; !f.isKept {
		f.rest = entries.List{Entries: f.old.Entries[f.split:], Rules: f.old.Rules[f.split:]}
	}
}

// age moves what is young to the rest of the part.
func (f *partFit) age() {
	if f.young.size() > 0 && !f.isKept {
		f.older.hold(merge(append(f.older.entries(), f.young.entries()...)))
		f.young.hold(nil)
	}
}

// pieces returns what the ACLs of the part are to hold.
func (f *partFit) pieces() []entries.Piece {
	permits := f.older.entries()
	x := entries.List{Entries: make([]entries.Entry, 0, len(permits)+len(f.rest.Entries)), Rules: make([]int32, 0, len(permits)+len(f.rest.Entries))}
	for _, e := range permits {
		x.Entries, x.Rules = append(x.Entries, e.Flip()), append(x.Rules, e.rule)
	}
	x.Entries, x.Rules = append(x.Entries, f.rest.Entries...), append(x.Rules, f.rest.Rules...)
	if len(f.held) == 1 && !f.older.changed && !f.restChanges() {
		old := f.old
		old.Rules = x.Rules
		return []entries.Piece{old}
	}
	return entries.Cut(x)
}

// RefitGlobal returns what the ACLs of the global table are to hold, some parts of which may have
// changed. Parts that stay as they are it leaves out.
func (z Sizes) RefitGlobal(held Global, changed []Part, how How) (want Global) {
	young := youngOf(held.Young)
	classes, owners := ownersOf(changed, held.Owners)
	var mine [Parts][]int
	for n, e := range young.old.Entries {
		e.Src = netip.Prefix{}
		if of, known := owners[e]; known { // else it is of no list any more
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

// youngOf returns what the young ACL holds, flipped.
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

// ownersOf returns the classes of the parts that may have changed, and of which part
// every class is; others are of the parts that they were of.
func ownersOf(changed []Part, before map[entries.Entry]int) ([][]class, map[entries.Entry]int) {
	owners := make(map[entries.Entry]int, len(before))
	maps.Copy(owners, before)
	classes := make([][]class, len(changed))
	for i, p := range changed {
		classes[i] = classesOf(p.permits, block{0, len(p.permits.Entries)})
		for _, c := range classes[i] {
			owners[c.of] = p.Number
		}
	}
	return classes, owners
}

// holdYoung says what the young ACL must hold.
func (g *Global) holdYoung(young []ruled, owners map[entries.Entry]int) {
	x := entries.List{Entries: make([]entries.Entry, len(young)), Rules: make([]int32, len(young))}
	g.Owners = make(map[entries.Entry]int)
	for i, e := range young {
		x.Entries[i], x.Rules[i] = e.Flip(), e.rule
		of := e.Entry
		of.Src = netip.Prefix{}
		g.Owners[of] = owners[of]
	}
	g.Young = []entries.Piece{entries.NewPiece(x.Entries, x.Rules)}
}
