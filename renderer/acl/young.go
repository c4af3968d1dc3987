package acl

import (
	"maps"
	"net/netip"
	"slices"
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
	permits expansion // flipped
	rest    expansion

	old   piece // what the slot holds
	split int   // where the rest begins in it
	older *segment
	young *segment

	isKept bool // it has several ACLs and did not change: nothing can be added to it
}

// flip exchanges the sides of an entry.
func (e entry) flip() entry {
	e.src, e.dst = e.dst, e.src
	return e
}

// add adds a list.
func (p *part) add(x expansion) {
	n := 0
	for n < len(x.entries) && x.entries[n].verdict != deny {
		p.permits.entries = append(p.permits.entries, x.entries[n].flip())
		n++
	}
	p.permits.rules = append(p.permits.rules, x.rules[:n]...)
	p.rest.entries = append(p.rest.entries, x.entries[n:]...)
	p.rest.rules = append(p.rest.rules, x.rules[n:]...)
}

// open looks at what the slot holds, and takes its entries from the young ones.
func (p *part) open(m *mirror, young *segment, mine []int) {
	var flipped []entry
	var rules []int32
	p.split = 0
	if len(p.slot.indexes) == 1 {
		p.old = m.acls[p.slot.indexes[0]].piece
		for p.split < len(p.old.entries) && p.old.entries[p.split].verdict != deny {
			flipped = append(flipped, p.old.entries[p.split].flip())
			p.split++
		}
		if len(p.slot.want) == 1 && len(p.slot.want[0].rules) == len(p.old.entries) {
			rules = p.slot.want[0].rules[:p.split]
		}
	}
	p.older = newSegment(piece{entries: flipped}, rules)
	p.young = newSegment(piece{}, nil)
	for _, n := range mine {
		p.young.old.entries = append(p.young.old.entries, young.old.entries[n])
		p.young.rules = append(p.young.rules, young.rules[n])
	}
	if !isInOrder(flipped) {
		p.older = newSegment(piece{}, nil)
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

func (p *part) restChanges() bool { return !slices.Equal(p.old.entries[p.split:], p.rest.entries) }

// keepRest has the slot go on holding what it holds beside what is young.
func (p *part) keepRest() {
	if p.isKept = len(p.slot.indexes) != 1; !p.isKept {
		p.rest = expansion{p.old.entries[p.split:], p.slot.want[0].rules[p.split:]}
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
func (p *part) pieces() []piece {
	permits := p.older.entries()
	x := expansion{make([]entry, 0, len(permits)+len(p.rest.entries)), make([]int32, 0, len(permits)+len(p.rest.entries))}
	for _, e := range permits {
		x.entries, x.rules = append(x.entries, e.flip()), append(x.rules, e.rule)
	}
	x.entries, x.rules = append(x.entries, p.rest.entries...), append(x.rules, p.rest.rules...)
	if len(p.slot.indexes) == 1 && !p.older.changed && !p.restChanges() {
		old := p.old
		old.rules = x.rules
		return []piece{old}
	}
	return cut(x)
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
	for n, e := range held.old.entries {
		e.src = netip.Prefix{}
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
		return newSegment(piece{}, nil)
	}
	old := w.m.acls[s.indexes[0]].piece
	flipped := make([]entry, len(old.entries))
	for i, e := range old.entries {
		flipped[i] = e.flip()
	}
	var rules []int32
	if len(s.want) == 1 {
		rules = s.want[0].rules
	}
	if !isInOrder(flipped) {
		flipped = nil
	}
	return newSegment(piece{entries: flipped}, rules)
}

func isInOrder(entries []entry) bool {
	return slices.IsSortedFunc(entries, func(a, b entry) int { return compareEntries(&a, &b) })
}

// ownersOf returns the classes of the parts that may have changed, and of which part
// every class is; others are of the parts that they were of.
func ownersOf(changed []part, before map[entry]*slot) ([][]class, map[entry]*slot) {
	owners := make(map[entry]*slot, len(before))
	maps.Copy(owners, before)
	classes := make([][]class, len(changed))
	for i, p := range changed {
		classes[i] = classesOf(p.permits, block{0, len(p.permits.entries)})
		for _, c := range classes[i] {
			owners[c.of] = p.slot
		}
	}
	return classes, owners
}

// hold says what the young slot must hold.
func (s *slot) hold(young []ruled, owners map[entry]*slot) {
	x := expansion{make([]entry, len(young)), make([]int32, len(young))}
	s.parts = make(map[entry]*slot)
	for i, e := range young {
		x.entries[i], x.rules[i] = e.flip(), e.rule
		of := e.entry
		of.src = netip.Prefix{}
		s.parts[of] = owners[of]
	}
	s.want = []piece{newPiece(x.entries, x.rules)}
}
