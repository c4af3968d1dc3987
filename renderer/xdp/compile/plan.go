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
func (m *Image) Plan(again bool) Plan {
	m.admitAddresses()
	m.nets.flush()
	changed := m.addresses.changed()
	if again { // before they are built, because an earlier plan may have made the old ones visible
		m.addresses.move()
	}
	p := Plan{Roots: m.addresses.build()}
	m.writeLists()
	if again || changed && m.endpoints.altered { // no packet may see new addresses with old lists
		if !again {
			m.addresses.move()
		}
		m.endpoints.touchAll()
		p.Roots = nil
	}
	p.Gone = slices.Clone(m.endpoints.gone)
	for _, id := range slices.Sorted(maps.Keys(m.endpoints.dirty)) {
		e := m.endpoints.all[id]
		e.write(m.arena, m.addresses, m.lists)
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

// writeLists brings the rows of lists to the classes that addresses have now.
func (m *Image) writeLists() {
	added, dead := m.classes.settle()
	m.lists.retire(dead)
	m.lists.foresee(added, dead, m.limits.Rows.List)
	m.classes.bury(dead)
	m.nets.reuse()
	var living []class
	all := func() []class {
		if living == nil {
			living = m.classes.living()
		}
		return living
	}
	m.admitLists(all)
	for _, p := range m.lists.write(added, all) {
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
	m.classes.release(r.classes)
	m.lists.release(r.classes)
	for _, s := range r.slots {
		m.lists.slots.give(s.Line, int(s.Lines))
	}
}
