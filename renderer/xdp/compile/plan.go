package compile

import (
	"maps"
	"slices"
)

// Plan has the steps, in order, that make the changes of an image visible to packets. The steps of
// one field may be done in any order. All steps are idempotent.
type Plan struct {
	Lines  int      // size of the policy map
	Slots  int      // number of counters
	Fresh  []Span   // first: lines that packets cannot reach yet
	Stores []Store  // then: words that no packet reads yet
	Gone   []uint32 // then: endpoints that are removed
	Flips  []Flip   // then: changed endpoints
	Roots  []Store  // then: changed classes of addresses
	Joins  []Flip   // last: new endpoints
}

// Flip is a new record of an endpoint.
type Flip struct{ ID, Record uint32 }

// Empty reports whether a plan has no steps.
func (p *Plan) Empty() bool {
	return len(p.Fresh)+len(p.Stores)+len(p.Gone)+len(p.Flips)+len(p.Roots)+len(p.Joins) == 0
}

// Retired is memory that packets cannot reach any more once a plan has been carried out. It may be
// released after a grace period.
type Retired struct {
	spans   []Span
	slots   []Span
	classes []class
}

// Empty reports whether there is nothing to release.
func (r Retired) Empty() bool { return len(r.spans)+len(r.slots)+len(r.classes) == 0 }

// Slots returns the counters that are not used any more.
func (r Retired) Slots() []Span { return r.slots }

// Plan writes the changes to the shadow, and returns the steps that make them visible. The caller
// must call Done after it carried out the plan. If that failed, the next plan must be made with
// again, which works from any intermediate state.
func (m *Image) Plan(again bool) Plan { return m.PlanTurn(again, nil) }

// PlanTurn is Plan for what is done in a Turn. Endpoints whose lists are not written when the turn
// is over keep the lists that are in force; new ones are blocked. The next plan continues; see
// Unfinished.
func (m *Image) PlanTurn(again bool, t Turn) Plan {
	m.arena.plan++
	var r rootChanges
	lookAgain(m)
	if t == nil {
		dropReplaced(m)
	}
	m.build(again, t, &r)
	if fitting := fitting(m); len(fitting) > 0 {
		m.retry(fitting)
		m.build(again, t, &r)
	}
	if len(m.endpoints.waiting) > 0 && await(m) {
		m.setApart(again, &r)
		m.lists.write(func(bool) bool { return true }) // Closed, if it is new
	}
	if again || r.apart {
		m.endpoints.touchAll()
	}
	p := Plan{Gone: slices.Clone(m.endpoints.gone), Roots: r.stores}
	for _, id := range slices.Sorted(maps.Keys(m.endpoints.dirty)) {
		e := m.endpoints.all[id]
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

// rootChanges are the changes of the roots of addresses in a plan.
type rootChanges struct {
	changed bool // the class of an address may change
	apart   bool // the roots are written to new lines
	stores  []Store
}

// build writes the desired lists as far as the budget permits.
func (m *Image) build(again bool, t Turn, r *rootChanges) {
	m.budget.begun = false
	m.estimate()
	m.lists.addAtoms(t)
	m.nets.flush()
	r.changed = r.changed || again || m.addresses.changed()
	m.setApart(again, r)
	r.stores = append(r.stores, m.addresses.build(r.apart)...)
	m.publishClasses(t)
	if m.refuse() {
		m.setApart(again, r)
		m.publishClasses(t)
	}
}

// setApart moves the roots to new lines, once, if endpoints and addresses change together.
func (m *Image) setApart(again bool, r *rootChanges) {
	if (m.endpoints.altered || again) && r.changed && !r.apart {
		r.apart, r.stores = true, nil
		m.addresses.move()
	}
}

// publishClasses gives lists the rows of new classes, and writes new lists.
func (m *Image) publishClasses(t Turn) {
	if m.classes.isOverfull() {
		m.sweep()
	}
	added := m.classes.added
	m.classes.added = nil
	if m.budget.isSet() && (len(added) > 0 || m.lists.anyFresh()) {
		m.countLists()
		m.budget.sweep(2)
	}
	for _, p := range m.lists.addClasses(added, t) {
		m.endpoints.touch(p)
	}
}

// Done records that the last plan has been carried out. The caller must release what it returns
// after a grace period.
func (m *Image) Done() Retired {
	r := Retired{spans: m.arena.freed, slots: m.lists.freed, classes: m.classes.freed}
	m.arena.freed, m.arena.fresh, m.arena.stores, m.lists.freed, m.classes.freed = nil, nil, nil, nil, nil
	m.endpoints.done()
	return r
}

// Release frees retired memory.
func (m *Image) Release(r Retired) {
	m.arena.release(r.spans)
	m.classes.free = append(m.classes.free, r.classes...)
	for _, s := range r.slots {
		m.lists.slots.give(s.Line, int(s.Lines))
	}
}
