package compile

import (
	"maps"
	"slices"
)

// Plan says in which order to make what an image has become visible. Every step may be
// repeated. What is in one field may be done in any order.
type Plan struct {
	Lines  int      // that the memory must have
	Slots  int      // counters that there must be
	Fresh  []Span   // first: lines that nothing leads to yet
	Stores []Store  // then: words that no packet reads yet
	Gone   []uint32 // then: endpoints that are no more
	Flips  []Flip   // then: endpoints that are different
	Roots  []Store  // then: addresses that have another class
	Joins  []Flip   // last: endpoints that are new
}

// Flip is an endpoint that has another record.
type Flip struct{ ID, Record uint32 }

// Empty reports whether nothing has to be done.
func (p *Plan) Empty() bool {
	return len(p.Stores)+len(p.Gone)+len(p.Flips)+len(p.Roots)+len(p.Joins) == 0
}

// Retired is what nothing leads to any more once a plan has been carried out. It may be
// released when no packet is on its way that began before.
type Retired struct {
	spans   []Span
	slots   []Span
	classes []class
}

// Empty reports whether there is nothing to release.
func (r Retired) Empty() bool { return len(r.spans)+len(r.slots)+len(r.classes) == 0 }

// Slots returns the counters that nothing leads to any more.
func (r Retired) Slots() []Span { return r.slots }

// Plan writes what changed, and returns how to make it visible. After it was carried out,
// call Done. If it was not, the next plan must be made with again: it leads from wherever
// the endpoints are.
func (m *Image) Plan(again bool) Plan {
	refusedBefore, all := m.refusedBefore(), m.all
	clear(m.again)
	m.all = false
	var r rootChanges
	if all {
		m.retry(refusedBefore)
		refusedBefore = nil
	}
	m.build(again, &r)
	if fitting := m.fitting(refusedBefore); len(fitting) > 0 {
		m.retry(fitting)
		m.build(again, &r)
	}
	if again || r.apart {
		m.ends.touchAll()
	}
	p := Plan{Gone: slices.Clone(m.ends.gone), Roots: r.stores}
	for _, id := range slices.Sorted(maps.Keys(m.ends.dirty)) {
		e := m.ends.all[id]
		e.write(m.arena, m.addresses)
		if e.known {
			p.Flips = append(p.Flips, Flip{id, e.record})
		} else {
			p.Joins = append(p.Joins, Flip{id, e.record})
		}
	}
	m.arena.shrink(4 * rootLines)
	p.Lines, p.Slots = m.arena.buddy.size(), m.lists.slots.size()
	p.Fresh, p.Stores = slices.Clone(m.arena.fresh), slices.Clone(m.arena.stores)
	return p
}

// rootChanges is what a plan does with the roots of addresses.
type rootChanges struct {
	changed bool // an address may have another class
	apart   bool // they are written elsewhere
	stores  []Store
}

// build writes what is wanted and the budget permits.
func (m *Image) build(again bool, r *rootChanges) {
	m.budget.begun = false
	m.estimate()
	m.nets.flush()
	r.changed = r.changed || again || m.addresses.changed()
	m.setApart(again, r)
	r.stores = append(r.stores, m.addresses.build(r.apart)...)
	m.publishClasses()
	if m.refuse() {
		m.setApart(again, r)
		m.publishClasses()
	}
}

// setApart has the roots written elsewhere, once, if endpoints and addresses change together.
func (m *Image) setApart(again bool, r *rootChanges) {
	if (m.ends.altered || again) && r.changed && !r.apart {
		r.apart, r.stores = true, nil
		m.addresses.move()
	}
}

// publishClasses gives lists the rows of classes that are new to them.
func (m *Image) publishClasses() {
	if m.classes.isOverfull() {
		m.sweep()
	}
	added := m.classes.added
	m.classes.added = nil
	if m.budget.isSet() && (len(added) > 0 || m.lists.anyFresh()) {
		m.countLists()
		m.budget.sweep(2)
	}
	for _, p := range m.lists.addClasses(added) {
		m.ends.touch(p)
	}
}

// Done says that the last plan has been carried out. What it returns is to be released
// later.
func (m *Image) Done() Retired {
	r := Retired{spans: m.arena.freed, slots: m.lists.freed, classes: m.classes.freed}
	m.arena.freed, m.arena.fresh, m.arena.stores, m.lists.freed, m.classes.freed = nil, nil, nil, nil, nil
	m.ends.done()
	return r
}

// Release makes memory available again that nothing leads to and no packet reads.
func (m *Image) Release(r Retired) {
	m.arena.release(r.spans)
	m.classes.free = append(m.classes.free, r.classes...)
	for _, s := range r.slots {
		m.lists.slots.give(s.Line, int(s.Lines))
	}
}
