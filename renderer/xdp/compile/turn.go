package compile

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/renderer"
)

// Turn bounds the work of one plan, except rows of new classes in lists that packets read. It
// reports whether the time for a plan is over, or the first half of it. nil means no bound.
type Turn func(half bool) bool

func never() bool { return false }

// turnPrefixes is how many prefixes of new lists one plan of a Turn adds to the tries.
const turnPrefixes = 1 << 13

// fewRules is up to how many rules a new list comes before larger ones, however long these wait.
const fewRules = 512

// queue returns the lists that are not written yet in the order in which a turn works on them: the
// large ones that have waited longest, then small ones, then other large ones by age.
func (l *ruleLists) queue() [][]*program {
	if !l.anyFresh() {
		return nil
	}
	small, large := map[uint64][]*program{}, map[uint64][]*program{}
	for _, p := range l.sorted() {
		if !p.fresh {
			continue
		}
		p.begun = cmp.Or(p.begun, l.writer.arena.plan)
		if of := large; p.list.Len() > fewRules {
			of[p.begun] = append(of[p.begun], p)
		} else {
			small[p.begun] = append(small[p.begun], p)
		}
	}
	groups := byAge(large)
	return slices.Insert(groups, min(1, len(groups)), byAge(small)...)
}

func byAge(groups map[uint64][]*program) (out [][]*program) {
	for _, age := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, groups[age])
	}
	return out
}

// halves returns when the work on each group ends. The first has half of a turn.
func (t Turn) halves(groups [][]*program) []func() bool {
	out := make([]func() bool, len(groups))
	for i := range groups {
		out[i] = func() bool { return t != nil && t(i == 0 && len(groups) > 1) }
	}
	return out
}

// addAtoms adds the prefixes of new lists to the tries.
func (l *ruleLists) addAtoms(t Turn) {
	nets, groups := l.writer.nets, l.queue()
	for i, group := range groups {
		for _, p := range group {
			for p.atomsIn < len(p.atoms) {
				if n := len(nets.pending); t != nil && (n > turnPrefixes || n > turnPrefixes/2 && i == 0 && len(groups) > 1) {
					break
				}
				nets.write(p.atoms[p.atomsIn])
				p.atomsIn++
			}
		}
	}
}

// write writes the rows of new lists until the turn is over, and those of Closed in any case.
func (l *ruleLists) write(t Turn) {
	groups := l.queue()
	if len(groups) == 0 {
		return
	}
	order := l.writer.classes.byDepth(l.writer.classes.inUse())
	l.writeClosed(order)
	ends := t.halves(groups)
	for i, group := range groups {
		l.writeGroup(slices.DeleteFunc(group, func(p *program) bool { return !p.fresh || p.atomsIn < len(p.atoms) }), order, ends[i])
	}
}

func (l *ruleLists) writeClosed(order []class) {
	for side := range Direction(2) {
		if p := l.programs[programKey{Closed.Digest(), side}]; p != nil && p.fresh {
			p.begun = cmp.Or(p.begun, l.writer.arena.plan)
			l.writeGroup([]*program{p}, order, never)
		}
	}
}

func (l *ruleLists) writeGroup(group []*program, order []class, over func() bool) {
	if l.begin(group, over) && l.addRows(group, order, nil, over) {
		finish(group)
	}
}

func finish(programs []*program) {
	for _, p := range programs {
		p.writing = writing{}
	}
}

// begin makes room for all classes in the tables of new lists. It returns false if over ended it.
func (l *ruleLists) begin(group []*program, over func() bool) bool {
	for _, p := range group {
		begun := p.base != nil
		if p.begin(); !begun && over() {
			return false
		}
	}
	return true
}

// dropReplaced removes the lists that will be replaced in this plan, whatever takes how long.
func dropReplaced(m *Image) {
	for id := range m.endpoints.waiting {
		e := m.endpoints.all[id]
		for d := range e.next {
			if e.next[d] != nil {
				m.lists.letGo(e.programs[d])
				e.programs[d], e.open[d] = nil, true
			}
		}
	}
}

// await decides what packets meet while lists are not written: what was in force, or for a new
// endpoint Closed. It returns whether a list in force changed.
func await(m *Image) (changed bool) {
	for _, id := range slices.Sorted(maps.Keys(m.endpoints.waiting)) {
		e := m.endpoints.all[id]
		for d := range e.next {
			if e.next[d] != nil {
				changed = awaitSide(m, e, Direction(d)) || changed
			}
		}
		if e.next == [2]*program{} {
			delete(m.endpoints.waiting, id)
		}
	}
	return changed
}

// awaitSide does the work of await for one direction.
func awaitSide(m *Image, e *endpoint, d Direction) (changed bool) {
	if p := e.next[d]; !p.fresh {
		m.lists.letGo(e.programs[d])
		e.programs[d], e.next[d], e.open[d], e.retried[d] = p, nil, false, false
		if desired := e.List(d); desired.Digest() != p.list.Digest() {
			e.next[d], e.since[d] = m.lists.hold(desired, d), m.arena.plan // for the next plan
		}
		m.endpoints.relisted(e)
		return true
	}
	if before := e.programs[d]; before == nil && e.open[d] || before != nil && !before.forgot() {
		return false
	}
	m.lists.letGo(e.programs[d])
	e.programs[d], e.open[d] = m.lists.hold(Closed, d), false
	m.endpoints.relisted(e)
	return true
}

// forgot reports whether a list denies members of a set that has lost all of them, as a set does
// that no policy names any more: the list would permit what it denied.
func (p *program) forgot() bool {
	for _, a := range p.atoms {
		if !p.writer.nets.emptied[a] {
			continue
		}
		if slices.ContainsFunc(p.writer.nets.rules(a, &p.diff), func(i int) bool { return p.verdict(i)&Allow == 0 }) {
			return true
		}
	}
	return false
}

// Unfinished reports whether the next plan continues with lists of endpoints.
func (m *Image) Unfinished() bool { return len(m.endpoints.waiting) > 0 || len(m.toRetry) > 0 }

// Waiting returns the endpoints with lists that are not in force yet, sorted.
func (m *Image) Waiting() []uint32 { return slices.Sorted(maps.Keys(m.endpoints.waiting)) }

// InForce returns the list of a direction that is in force once the last plan has been carried out;
// nil for none.
func (m *Image) InForce(id uint32, d Direction) *renderer.RuleList {
	e := m.endpoints.all[id]
	switch {
	case e == nil || e.programs[d] == nil:
		return nil
	case e.next[d] == nil && e.refused[d] == nil:
		return e.List(d) // of equal lists the one with the current origins
	}
	return e.programs[d].list
}
