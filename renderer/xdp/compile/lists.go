package compile

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/renderer"
)

// programKey is what equal lists have in common.
type programKey struct {
	digest renderer.Digest
	side   Direction
}

// ruleLists are the lists that endpoints have, one of equal ones, and their counters.
type ruleLists struct {
	writer   *writer
	budget   *budget
	programs map[programKey]*program
	refused  map[programKey]*refusedList
	slots    buddy
	freed    []Span // slots, not counted any more once the last plan has been carried out
}

// refusedList is what is kept of a list that is refused: what it takes at least.
type refusedList struct {
	key   programKey
	users int // endpoints
	account
}

func newLists(w *writer, b *budget) *ruleLists {
	l := &ruleLists{writer: w, budget: b, programs: map[programKey]*program{}, refused: map[programKey]*refusedList{}}
	l.slots.grow(1)
	l.slots.take(2) // SlotNone, SlotInfra
	return l
}

// hold returns the program of a list, for one more endpoint.
func (l *ruleLists) hold(list *renderer.RuleList, side Direction) *program {
	key := programKey{list.Digest(), side}
	p := l.programs[key]
	if p == nil {
		p = newProgram(l.writer, list, side, l.slots.take(len(list.Rules())))
		l.programs[key] = p
		l.budget.accounts[&p.account] = true
	}
	p.users++
	return p
}

// letGo takes a program back from an endpoint; nil is none.
func (l *ruleLists) letGo(p *program) {
	if p == nil {
		return
	}
	if p.users--; p.users > 0 {
		return
	}
	delete(l.programs, programKey{p.list.Digest(), p.side})
	delete(l.budget.accounts, &p.account)
	p.drop()
	l.freed = append(l.freed, Span{p.slot, uint32(len(p.list.Rules()))})
}

// refuse returns what is kept of a list that is refused, for one more endpoint.
func (l *ruleLists) refuse(p *program) *refusedList {
	key := programKey{p.list.Digest(), p.side}
	g := l.refused[key]
	if g == nil {
		g = &refusedList{key: key}
		l.refused[key] = g
		l.budget.accounts[&g.account] = true
	}
	g.before = max(g.before, p.cost(l.budget.early))
	g.users++
	return g
}

// letGoRefused takes it back from an endpoint; nil is none.
func (l *ruleLists) letGoRefused(g *refusedList) {
	if g == nil {
		return
	}
	if g.users--; g.users == 0 {
		delete(l.refused, g.key)
		delete(l.budget.accounts, &g.account)
	}
}

// sorted returns the programs in an order that depends on nothing but them.
func (l *ruleLists) sorted() []*program {
	return slices.SortedFunc(maps.Values(l.programs), func(a, b *program) int { return int(a.slot) - int(b.slot) })
}

// notWritten returns those of some programs that are not in memory yet.
func notWritten(programs []*program) (out []*program) {
	for _, p := range programs {
		if p.diff.fresh {
			out = append(out, p)
		}
	}
	return out
}

// anyFresh reports whether a program is not in memory yet.
func (l *ruleLists) anyFresh() bool {
	for _, p := range l.programs {
		if p.diff.fresh {
			return true
		}
	}
	return false
}

// countReach counts how many addresses lists name, as far as others do not.
func (l *ruleLists) countReach() {
	nets := l.writer.nets
	for _, p := range l.programs {
		for _, a := range p.atoms {
			p.reach += nets.size(a) / nets.users[a]
		}
	}
}

// addClasses gives programs the rows of classes that are new to them: those that are added, and all
// for programs that are not in memory yet. It returns the programs whose table moved.
func (l *ruleLists) addClasses(added []class) (moved []*program) {
	w, programs := l.writer, l.sorted()
	for _, p := range programs {
		if p.begin() && !p.diff.fresh {
			moved = append(moved, p)
		}
	}
	isNew := make(map[class]bool, len(added))
	for _, c := range added {
		isNew[c] = true
	}
	order, unwritten := added, notWritten(programs)
	if len(unwritten) > 0 {
		order = w.classes.inUse()
	}
	for _, c := range w.classes.byDepth(order) {
		if !w.classes.all[c].used {
			continue // it was swept meanwhile
		}
		to := unwritten
		if isNew[c] {
			to = programs
		}
		around := w.nets.divide(c, isNew[c])
		for _, p := range to {
			w.arena.unled = p.diff.fresh
			l.budget.taken += p.add(c, around)
			l.budget.check(4, false)
		}
		w.arena.unled = false
		l.budget.check(64, true)
	}
	for _, p := range programs {
		p.diff.fresh = false
	}
	return moved
}

// sweep frees the classes that no address has.
func (l *ruleLists) sweep(marked []bool) {
	dead := l.writer.classes.sweep(marked)
	for _, p := range l.sorted() {
		for _, c := range dead {
			p.forget(c)
		}
		p.prune()
	}
	l.writer.nets.reuse()
}
