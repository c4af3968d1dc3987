package compile

import (
	"bytes"
	"cmp"
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
	programs map[programKey]*program
	closed   [2]*program // of Closed, while a list of that direction is closed
	slots    buddy
	freed    []Span // slots that are unused once the last plan has been carried out
	scratch  scratch
}

func newLists(w *writer) *ruleLists {
	l := &ruleLists{writer: w, programs: map[programKey]*program{}}
	l.slots.grow(1)
	l.slots.allocate(2) // SlotNone, SlotInfra
	return l
}

// hold returns the program of a list, and adds a user.
func (l *ruleLists) hold(list *renderer.RuleList, side Direction) *program {
	key := programKey{list.Digest(), side}
	p := l.programs[key]
	if p == nil {
		p = newProgram(l.writer, list, side)
		l.programs[key] = p
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
	l.erase(p)
	p.drop()
}

// erase removes a list from the policy map.
func (l *ruleLists) erase(p *program) {
	if p.written {
		l.freed = append(l.freed, Span{p.slot, uint32(p.list.Len())})
		p.clear()
	}
}

// inForce returns what packets meet for a list: the program itself, or that of Closed.
func (l *ruleLists) inForce(p *program) *program {
	if p != nil && !p.written {
		return l.closed[p.side]
	}
	return p
}

// sorted returns the programs in a deterministic order.
func (l *ruleLists) sorted() []*program {
	return slices.SortedFunc(maps.Values(l.programs), comparePrograms)
}

func comparePrograms(a, b *program) int {
	x, y := a.list.Digest(), b.list.Digest()
	return cmp.Or(bytes.Compare(x[:], y[:]), cmp.Compare(a.side, b.side))
}

// retire forgets the rows of classes that no prefix has any more.
func (l *ruleLists) retire(dead []class) {
	if len(dead) == 0 {
		return
	}
	for _, p := range l.programs {
		if !p.written {
			continue
		}
		for _, c := range dead {
			p.forget(c)
		}
	}
}

// release gives back the pages of classes that no packet can have any more. Before, the word of a
// page must not change.
func (l *ruleLists) release(free []class) {
	for i, c := range free {
		page := c / pageClasses
		if i > 0 && page == free[i-1]/pageClasses || !l.writer.classes.areFree(page*pageClasses, pageClasses) {
			continue
		}
		for _, p := range l.programs {
			if p.written {
				p.table.prune(l.writer.arena, page, p.dropUnused)
			}
		}
	}
}

// write gives the lists in the policy map the rows of new classes, and writes the admitted ones that
// are not there yet. all returns all classes, ancestors first. write returns the programs whose table
// moved.
func (l *ruleLists) write(added []class, all func() []class) (moved []*program) {
	var programs []*program
	order, isNew, fresh := added, map[class]bool(nil), false
	for _, p := range l.programs {
		fresh = fresh || !p.written && p.isAdmitted()
	}
	if !fresh && len(added) == 0 {
		return nil
	}
	for _, p := range l.sorted() {
		switch {
		case p.written:
			if programs = append(programs, p); p.begin() {
				moved = append(moved, p)
			}
		case p.isAdmitted():
			programs = append(programs, p)
			p.slot, p.cost = l.slots.allocate(p.list.Len()), 0
			p.begin()
		}
	}
	if fresh {
		order, isNew = all(), make(map[class]bool, len(added))
		for _, c := range added {
			isNew[c] = true
		}
	}
	l.addRows(programs, order, func(c class) bool { return isNew == nil || isNew[c] })
	for _, p := range programs {
		p.written = true
	}
	return moved
}

// addRows gives programs the rows of classes, whose ancestors come first: lists in the policy map
// those of new classes, other lists all.
func (l *ruleLists) addRows(programs []*program, order []class, isNew func(class) bool) {
	w := l.writer
	for _, c := range order {
		if !w.classes.all[c].used {
			continue
		}
		for _, p := range programs {
			p.diff.active = !p.written || isNew(c)
		}
		around := w.nets.divide(c)
		for _, p := range programs {
			if p.diff.active {
				w.arena.unreachable = !p.written
				p.add(c, around)
			}
		}
		w.arena.unreachable = false
	}
	for _, p := range programs {
		p.diff.active = false
	}
}
