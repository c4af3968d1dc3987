package compile

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/renderer"
)

// programKey identifies equal lists.
type programKey struct {
	digest renderer.Digest
	side   Direction
}

// ruleLists has the distinct lists of endpoints, and their counters.
type ruleLists struct {
	writer   *writer
	budget   *budget
	programs map[programKey]*program
	refused  map[programKey]*refusedList
	slots    buddy
	freed    []Span // slots that are unused once the last plan has been carried out
}

// refusedList is the account of a refused list: the smallest cost that it is known to have.
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

// hold returns the program of a list, and adds a user.
func (l *ruleLists) hold(list *renderer.RuleList, side Direction) *program {
	key := programKey{list.Digest(), side}
	p := l.programs[key]
	if p == nil {
		p = newProgram(l.writer, list, side, l.slots.take(list.Len()))
		l.programs[key] = p
		l.budget.accounts[&p.account] = true
	}
	p.users++
	return p
}

// letGo removes a user of a program, which may be nil.
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
	l.freed = append(l.freed, Span{p.slot, uint32(p.list.Len())})
}

// refuse returns the account of a refused list, and adds a user.
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

// letGoRefused removes a user of a refused list, which may be nil.
func (l *ruleLists) letGoRefused(g *refusedList) {
	if g == nil {
		return
	}
	if g.users--; g.users == 0 {
		delete(l.refused, g.key)
		delete(l.budget.accounts, &g.account)
	}
}

// sorted returns the programs in a deterministic order.
func (l *ruleLists) sorted() []*program {
	return slices.SortedFunc(maps.Values(l.programs), func(a, b *program) int { return int(a.slot) - int(b.slot) })
}

// anyFresh reports whether a program is not written yet.
func (l *ruleLists) anyFresh() bool {
	for _, p := range l.programs {
		if p.fresh {
			return true
		}
	}
	return false
}

// countReach counts the addresses that each list names, divided among the lists that name them and
// are not to be replaced.
func (l *ruleLists) countReach() {
	nets, others := l.writer.nets, map[atom]int{}
	for _, p := range l.programs {
		if p.replaced {
			for _, a := range p.atoms {
				others[a]++
			}
		}
	}
	for _, p := range l.programs {
		if p.replaced {
			continue
		}
		for _, a := range p.atoms {
			p.reach += nets.size(a) / (nets.users[a] - others[a])
		}
	}
}

// addClasses gives the lists that packets read the rows of new classes, and new lists the rows of
// all classes until the turn is over. It returns the programs whose table moved.
func (l *ruleLists) addClasses(added []class, t Turn) (moved []*program) {
	read := slices.DeleteFunc(l.sorted(), func(p *program) bool { return p.fresh })
	for _, p := range read {
		if p.begin() {
			moved = append(moved, p)
		}
	}
	if t != nil || !l.anyFresh() {
		l.addRows(read, l.writer.classes.byDepth(added), func(class) bool { return true }, never)
		l.write(t)
		return moved
	}
	isNew := make(map[class]bool, len(added))
	for _, c := range added {
		isNew[c] = true
	}
	all := slices.Concat(append([][]*program{read}, l.queue()...)...)
	l.begin(all, never)
	l.addRows(all, l.writer.classes.byDepth(l.writer.classes.inUse()), func(c class) bool { return isNew[c] }, never)
	finish(all)
	return moved
}

// addRows gives programs the rows of classes, whose ancestors come first: lists that packets read
// those of new classes, other lists those that they lack. It returns false if over ended it.
func (l *ruleLists) addRows(programs []*program, order []class, isNew func(class) bool, over func() bool) bool {
	w := l.writer
	defer func() {
		w.arena.unreachable = false
		for _, p := range programs {
			p.diff.active = false
			p.diff.clear()
		}
	}()
	for _, c := range order {
		if !w.classes.all[c].used {
			continue // it was swept by check
		}
		any := false
		for _, p := range programs {
			p.diff.active = p.fresh && !p.hasRow(c) || !p.fresh && isNew(c)
			any = any || p.diff.active
		}
		if !any {
			continue
		}
		around := w.nets.divide(c)
		for _, p := range programs {
			if !p.diff.active {
				continue
			}
			if p.fresh {
				p.has[c] = true
			}
			w.arena.unreachable = p.fresh && p.begun == w.arena.plan
			l.budget.taken += p.add(c, around)
			l.budget.check(4, false)
			if over() {
				return false
			}
		}
		w.arena.unreachable = false
		l.budget.check(64, true)
	}
	return true
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
