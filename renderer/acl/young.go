package acl

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// part is what one of the slots of the global table is to hold: what lists permit
// before they deny anything, in the order of segments, then the rest of the lists. A
// packet has a source, and the lists are of different sources, so the order of lists
// means nothing. What was permitted last stands in the young slot instead, in front of
// all parts.
//
// Segments compare entries by their source. What varies here is the destination, so
// the entries that are permitted are flipped, with both sides exchanged, as long as
// they are compared.
type part struct {
	slot    *slot
	permits entries.List // flipped
	rest    entries.List

	old   entries.Piece // what the slot holds
	split int           // where the rest begins in it
	older *segment
	young *segment

	isKept bool // it has several ACLs and did not change: nothing can be added to it
}

// add adds a list.
func (p *part) add(x entries.List) {
	n := 0
	for n < len(x.Entries) && x.Entries[n].Verdict != entries.Deny {
		p.permits.Entries = append(p.permits.Entries, x.Entries[n].Flip())
		n++
	}
	p.permits.Rules = append(p.permits.Rules, x.Rules[:n]...)
	p.rest.Entries = append(p.rest.Entries, x.Entries[n:]...)
	p.rest.Rules = append(p.rest.Rules, x.Rules[n:]...)
}

// open looks at what the slot holds, and takes its entries from the young ones.
func (p *part) open(m *mirror, young *segment, mine []int) {
	var flipped []entries.Entry
	var rules []int32
	p.split = 0
	if len(p.slot.indexes) == 1 {
		p.old = m.acls[p.slot.indexes[0]].piece
		for p.split < len(p.old.Entries) && p.old.Entries[p.split].Verdict != entries.Deny {
			flipped = append(flipped, p.old.Entries[p.split].Flip())
			p.split++
		}
		if len(p.slot.want) == 1 && len(p.slot.want[0].Rules) == len(p.old.Entries) {
			rules = p.slot.want[0].Rules[:p.split]
		}
	}
	p.older = newSegment(entries.Piece{Entries: flipped}, rules)
	p.young = newSegment(entries.Piece{}, nil)
	for _, n := range mine {
		p.young.old.Entries = append(p.young.old.Entries, young.old.Entries[n])
		p.young.rules = append(p.young.rules, young.rules[n])
	}
	if !entries.IsInOrder(flipped) {
		p.older = newSegment(entries.Piece{}, nil)
		p.older.hold(nil)
	}
}

// fit decides which of the two has what is missing: an ACL that changes in any case
// takes it, else it is young.
func (p *part) fit(classes []class) {
	g := group{warm: p.older, young: p.young}
	missing := g.compare(classes)
	p.older.apply()
	p.young.apply()
	if len(missing) == 0 {
		return
	}
	s := p.young
	if p.older.changed || p.restChanges() || len(p.slot.indexes) != 1 {
		s = p.older
	}
	s.hold(merge(append(s.entries(), missing...)))
}

func (p *part) restChanges() bool { return !slices.Equal(p.old.Entries[p.split:], p.rest.Entries) }

// keepRest has the slot go on holding what it holds beside what is young.
func (p *part) keepRest() {
	if p.isKept = len(p.slot.indexes) != 1; !p.isKept {
		p.rest = entries.List{Entries: p.old.Entries[p.split:], Rules: p.slot.want[0].Rules[p.split:]}
	}
}

// age moves what is young to the rest of the part.
func (p *part) age() {
	if p.young.size() > 0 && !p.isKept {
		p.older.hold(merge(append(p.older.entries(), p.young.entries()...)))
		p.young.hold(nil)
	}
}

// pieces returns what the ACLs of the slot are to hold.
func (p *part) pieces() []entries.Piece {
	permits := p.older.entries()
	x := entries.List{Entries: make([]entries.Entry, 0, len(permits)+len(p.rest.Entries)), Rules: make([]int32, 0, len(permits)+len(p.rest.Entries))}
	for _, e := range permits {
		x.Entries, x.Rules = append(x.Entries, e.Flip()), append(x.Rules, e.rule)
	}
	x.Entries, x.Rules = append(x.Entries, p.rest.Entries...), append(x.Rules, p.rest.Rules...)
	if len(p.slot.indexes) == 1 && !p.older.changed && !p.restChanges() {
		old := p.old
		old.Rules = x.Rules
		return []entries.Piece{old}
	}
	return entries.Cut(x)
}

// prepareYoung says what the parts that may have changed must hold, and the young slot.
func (w *wanted) prepareYoung(changed []part) {
	s := w.r.slot(youngSlot)
	w.live[s] = true
	if len(changed) == 0 && s.want != nil && w.how != quietly {
		return
	}
	held := w.heldYoung(s)
	classes, owners := ownersOf(changed, s.parts)
	mine := make(map[*slot][]int)
	for n, e := range held.old.Entries {
		e.Src = netip.Prefix{}
		mine[owners[e]] = append(mine[owners[e]], n)
	}
	delete(mine, nil) // of no list any more
	var young []ruled
	for i := range changed {
		p := &changed[i]
		p.open(w.m, held, mine[p.slot])
		p.fit(classes[i])
		delete(mine, p.slot)
		young = append(young, p.young.entries()...)
	}
	for n := range parts {
		of := w.r.slot(partOf(n))
		if kept := mine[of]; len(kept) > 0 {
			p := part{slot: of}
			p.open(w.m, held, kept)
			p.keepRest()
			changed = append(changed, p)
			young = append(young, p.young.entries()...)
		}
	}
	if z := w.m.sizes.peers; len(young) > z || w.how == quietly && len(young) > z/2 {
		young = young[:0]
		for i := range changed {
			changed[i].age()
			young = append(young, changed[i].young.entries()...)
		}
	}
	s.hold(merge(young), owners)
	for i := range changed {
		if p := &changed[i]; !p.isKept {
			p.slot.want = p.pieces()
		}
	}
}

// heldYoung returns what the young slot holds, flipped.
func (w *wanted) heldYoung(s *slot) *segment {
	if len(s.indexes) != 1 {
		return newSegment(entries.Piece{}, nil)
	}
	old := w.m.acls[s.indexes[0]].piece
	flipped := make([]entries.Entry, len(old.Entries))
	for i, e := range old.Entries {
		flipped[i] = e.Flip()
	}
	var rules []int32
	if len(s.want) == 1 {
		rules = s.want[0].Rules
	}
	if !entries.IsInOrder(flipped) {
		flipped = nil
	}
	return newSegment(entries.Piece{Entries: flipped}, rules)
}

// ownersOf returns the classes of the parts that may have changed, and of which part
// every class is; others are of the parts that they were of.
func ownersOf(changed []part, before map[entries.Entry]*slot) ([][]class, map[entries.Entry]*slot) {
	owners := make(map[entries.Entry]*slot, len(before))
	maps.Copy(owners, before)
	classes := make([][]class, len(changed))
	for i, p := range changed {
		classes[i] = classesOf(p.permits, block{0, len(p.permits.Entries)})
		for _, c := range classes[i] {
			owners[c.of] = p.slot
		}
	}
	return classes, owners
}

// hold says what the young slot must hold.
func (s *slot) hold(young []ruled, owners map[entries.Entry]*slot) {
	x := entries.List{Entries: make([]entries.Entry, len(young)), Rules: make([]int32, len(young))}
	s.parts = make(map[entries.Entry]*slot)
	for i, e := range young {
		x.Entries[i], x.Rules[i] = e.Flip(), e.rule
		of := e.Entry
		of.Src = netip.Prefix{}
		s.parts[of] = owners[of]
	}
	s.want = []entries.Piece{entries.NewPiece(x.Entries, x.Rules)}
}
