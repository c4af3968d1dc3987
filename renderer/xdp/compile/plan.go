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

// Store is a word that changes in one step.
type Store struct{ Word, Value uint32 }

// Flip is an endpoint that has another record.
type Flip struct{ ID, Record uint32 }

// Empty says whether nothing has to be done.
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

// Empty says whether there is nothing to release.
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
	var r roots
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
		for id := range m.ends {
			m.dirty[id] = true
		}
	}
	p := Plan{Gone: slices.Clone(m.gone), Roots: r.stores}
	for _, id := range slices.Sorted(maps.Keys(m.dirty)) {
		e := m.ends[id]
		m.writeRecord(e)
		if e.known {
			p.Flips = append(p.Flips, Flip{id, e.record})
		} else {
			p.Joins = append(p.Joins, Flip{id, e.record})
		}
	}
	m.arena.shrink(4 * rootLines)
	p.Lines, p.Slots = m.arena.buddy.size(), m.slots.size()
	p.Fresh, p.Stores = slices.Clone(m.arena.fresh), slices.Clone(m.stores)
	return p
}

// roots is what a plan does with the roots of addresses.
type roots struct {
	changed bool // an address may have another class
	apart   bool // they are written elsewhere
	stores  []Store
}

// build writes what is wanted and the budget permits.
func (m *Image) build(again bool, r *roots) {
	m.budget.begun = false
	m.estimate()
	m.nets.flush()
	r.changed = r.changed || again || m.changed()
	m.setApart(again, r)
	r.stores = append(r.stores, m.buildRoots(r.apart)...)
	m.tellClasses()
	if m.refuse() {
		m.setApart(again, r)
		m.tellClasses()
	}
}

// setApart has the roots written elsewhere, once, if endpoints and addresses change together.
func (m *Image) setApart(again bool, r *roots) {
	if (m.altered || again) && r.changed && !r.apart {
		r.apart, r.stores = true, nil
		m.moveRoots()
	}
}

// changed says whether an address may have another class.
func (m *Image) changed() bool {
	return m.v4.top.dirty || m.v6.top.dirty || !m.v4.top.built
}

// moveRoots has the roots of addresses written elsewhere, for the next records.
func (m *Image) moveRoots() {
	a := &m.arena
	old := m.root4
	m.root4 = a.take(rootLines)
	for i := range uint32(rootLines) {
		*a.line(m.root4 + i) = *a.line(old + i)
	}
	a.drop(old, rootLines)
	first := a.word(m.root6)
	a.drop(m.root6/LineWords, 1)
	m.root6 = a.take(1) * LineWords
	a.setWord(m.root6, first)
}

// buildRoots writes the classes of addresses. If the roots are in use it returns the
// changes of their words.
func (m *Image) buildRoots(apart bool) (stores []Store) {
	tell := func(word, value uint32) {
		if !apart {
			stores = append(stores, Store{word, value})
		}
	}
	m.v4.roots(m.root4, tell)
	if first := m.v6.lead(&m.v6.top, 0, 0) &^ nextNode; first != m.arena.word(m.root6) {
		m.arena.setWord(m.root6, first)
		tell(m.root6, first)
	}
	return stores
}

// tellClasses gives programs the rows of classes that are new to them.
func (m *Image) tellClasses() {
	if m.classes.crowded() {
		m.sweep()
	}
	added, programs := m.classes.added, m.sortedPrograms()
	m.classes.added = nil
	if m.budget.isSet() && len(m.fresh)+len(added) > 0 {
		m.budget.begin(m)
		m.budget.sweep(m, 2)
	}
	for _, p := range programs {
		if p.begin() && !m.fresh[p] {
			m.touch(p)
		}
	}
	isNew := make(map[class]bool, len(added))
	for _, c := range added {
		isNew[c] = true
	}
	order := added
	if len(m.fresh) > 0 {
		order = m.classes.inUse()
	}
	fresh := slices.DeleteFunc(slices.Clone(programs), func(p *program) bool { return !m.fresh[p] })
	for _, c := range m.classes.byDepth(order) {
		if !m.classes.all[c].used {
			continue // it was swept meanwhile
		}
		to := fresh
		if isNew[c] {
			to = programs
		}
		around := m.divide(c, isNew[c])
		for _, p := range to {
			m.unread = m.fresh[p]
			p.tell(c, around)
			m.budget.check(m, 4, false)
		}
		m.unread = false
		m.budget.check(m, 64, true)
	}
	m.unread = false
	clear(m.fresh)
}

// divide tells programs what a class has more than the next one around it that addresses have, which
// they know. Only who has to know it, needs to.
func (m *Image) divide(c class, all bool) (around class) {
	classes := m.classes
	for at := c; at != 0; at = classes.all[at].parent {
		if at != c && classes.all[at].used {
			return at
		}
		for _, a := range classes.owns.sets[classes.all[at].own].atoms {
			for _, x := range m.nets.named[a] {
				if p := x.by; all || m.fresh[p] {
					p.part.there = true
					p.part.sum = p.part.sum.plus(classes.owns.sums[a])
					p.part.rules = append(p.part.rules, x.rules...)
				}
			}
		}
	}
	return 0
}

// touch notes that the endpoints that have a program need other records.
func (m *Image) touch(p *program) {
	for id, e := range m.ends {
		if e.programs[ToPod] == p || e.programs[FromPod] == p {
			m.dirty[id] = true
		}
	}
}

// Done says that the last plan has been carried out. What it returns is to be released
// later.
func (m *Image) Done() Retired {
	r := Retired{spans: m.arena.freed, slots: m.freedSlots, classes: m.classes.freed}
	m.arena.freed, m.arena.fresh, m.freedSlots, m.classes.freed = nil, nil, nil, nil
	m.stores, m.gone, m.altered = nil, nil, false
	for id := range m.dirty {
		m.ends[id].known = true
	}
	clear(m.dirty)
	return r
}

// Release makes memory available again that nothing leads to and no packet reads.
func (m *Image) Release(r Retired) {
	m.arena.release(r.spans)
	m.classes.free = append(m.classes.free, r.classes...)
	for _, s := range r.slots {
		m.slots.give(s.Line, int(s.Lines))
	}
}

// sweep frees the classes that no address has.
func (m *Image) sweep() {
	marked := make([]bool, m.classes.count())
	for _, t := range []*trie{m.v4, m.v6} {
		t.mark(marked)
	}
	r := Reader{m.Words()}
	for key := range uint32(rootKeys) {
		r.eachClass(r.Word(m.root4*LineWords+key), marked)
	}
	r.eachClass(nextNode|r.Word(m.root6), marked)
	dead := m.classes.sweep(marked)
	for _, p := range m.sortedPrograms() {
		for _, c := range dead {
			p.forget(c)
		}
		m.arena.charge(&p.spent, func() { p.prune(m, p.dropUnused) })
	}
	m.nets.reuse()
}

// mark marks the classes of prefixes, and of what is written.
func (t *trie) mark(marked []bool) {
	t.top.mark(marked)
	for _, c := range t.covers {
		marked[c] = true
	}
}

func (d *digit) mark(marked []bool) {
	d.wide.mark(marked)
	marked[d.cover] = marked[d.cover] || d.built
	marked[d.headCover] = marked[d.headCover] || d.node != 0
	for _, b := range d.fine {
		if b != nil {
			b.mark(marked)
			marked[b.cover] = marked[b.cover] || b.built
		}
	}
}

func (c *content) mark(marked []bool) {
	for _, k := range c.kids {
		k.to.mark(marked)
	}
}

// Parts calls f with the words of some lines, in order, until it returns an error. The caller must
// not change them. Lines that were never used are left out.
func (m *Image) Parts(s Span, f func(line uint32, content []Line) error) error {
	return m.arena.parts(s, f)
}

// Words reads the shadow.
func (m *Image) Words() Words { return func(i uint32) uint32 { return m.arena.word(i) } }

// Record returns the line of the record of an endpoint, 0 for none.
func (m *Image) Record(id uint32) uint32 {
	if e := m.ends[id]; e != nil {
		return e.record
	}
	return 0
}

// Use is how much of everything is in use.
type Use struct {
	Lines, Capacity int // of memory
	Classes         int
	Slots           int
	Programs, Rows  int
	Endpoints       int
}

// Use counts. What is retired and not released counts as used.
func (m *Image) Use() Use {
	u := Use{
		Lines: m.arena.buddy.used, Capacity: m.arena.buddy.size(), Slots: m.slots.used, Programs: len(m.programs), Endpoints: len(m.ends),
		Classes: m.classes.live,
	}
	for _, p := range m.programs {
		u.Rows += len(p.rows)
	}
	return u
}
