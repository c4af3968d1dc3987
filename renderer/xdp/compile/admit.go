package compile

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/internal/capacity"
)

// Closed denies everything. It takes the place of lists that the image has no room for.
var Closed = renderer.NewRuleList([]api.ContivRule{{}}, nil)

// Limits bound the memory and the work of an image. A list that they close takes no rows, and if it
// is because of addresses it names none. What they close is a function of the endpoints, their lists
// and the members of sets. Owners of endpoints are the namespaces of package capacity.
type Limits struct {
	Addresses Bounds // that lists name: an address of many lists counts as a part for each
	Rows      Bounds // of lists, in lines; see program.costOf
}

// Bounds are limits of one resource. 0 is no limit.
type Bounds struct{ List, Namespace, Total int }

// least returns the smallest bound.
func (b Bounds) least() int {
	least := math.MaxInt
	for _, n := range []int{b.List, b.Namespace, b.Total} {
		if n > 0 {
			least = min(least, n)
		}
	}
	return least
}

// Refusal is a direction of an endpoint that is blocked, because its list is closed.
type Refusal struct {
	ID    uint32
	Dir   Direction
	Owner string
	Reason
}

// Reason is which limit closes a list.
type Reason struct {
	Of  Resource
	One bool // the list is too large alone; else its owner has too many
	Max int  // of what the list or the owner may take
}

// Resource is one of those that Limits bound.
type Resource uint8

// The resources. No list is closed because of NoResource.
const (
	NoResource Resource = iota
	Addresses
	Rows
)

// admission is whether a list may be in the policy map.
type admission struct {
	exempt bool // it denies everything, and is never closed
	wanted bool // its nets are in the tries
	closed Reason
	cost   int  // of its rows: exact up to Bounds.List; above it only that it is above
	stale  bool // it is not in the policy map, and the cost must be counted again
	ahead  ahead
}

// ahead is how much more a list in the policy map costs if the classes that are being added get rows.
type ahead struct {
	cost int
	rows map[class]aheadRow // of those classes that its rules distinguish from the class around them
	sums map[sum]bool
}

type aheadRow struct {
	sum   sum
	rules int
}

func (x *admission) isAdmitted() bool { return x.exempt || x.wanted && x.closed.Of == NoResource }

// linesOfRow is the most that a row takes whatever its rules are: its own line, and a page of its
// table, because rows of one list may be as far from each other as classes are.
const linesOfRow = 1 + pageLines

// costOf returns how many lines the row of a class takes at most whose addresses so many rules
// match. Each rule changes the function of a place at two ports, and a change takes no more than a
// line of a cell, parts of nodes included. Rows with equal parts take less. The time to write a row
// grows as its lines do.
func (p *program) costOf(rules int) int { return linesOfRow + 2*rules*p.sources }

// setWanted records whether the list's nets must be in the tries.
func (p *program) setWanted(wanted bool) {
	if p.wanted == wanted {
		return
	}
	by := -1
	if p.wanted = wanted; wanted {
		by, p.stale = 1, true
	}
	for _, a := range p.atoms {
		p.writer.nets.want(a, by)
	}
}

// addresses returns how many addresses the list names, each divided among the lists that name it.
func (p *program) addresses() (n int) {
	for _, a := range p.atoms {
		n += p.writer.nets.size(a) / p.writer.nets.users[a]
	}
	return n
}

// admitAddresses decides which lists may have their addresses in the tries, from the sizes of sets
// alone.
func (m *Image) admitAddresses() {
	if n := m.nets; n.resized {
		n.resized = false
		var refused map[*program]capacity.Refusal
		if n.total > m.limits.Addresses.least() {
			refused = m.refused(m.limits.Addresses, func(*program) bool { return true }, (*program).addresses)
		}
		for _, p := range m.lists.programs {
			if p.exempt {
				continue
			}
			r, no := refused[p]
			if p.setWanted(!no); no {
				m.close(p, Addresses, r)
			}
		}
	}
	m.nets.settle()
}

// admitLists decides which lists may have rows, before any row is written. all returns all classes,
// ancestors first.
func (m *Image) admitLists(all func() []class) {
	sum, most := 0, 0
	cost := func(p *program) int { return p.cost + p.ahead.cost }
	for _, p := range m.lists.programs {
		if p.exempt || !p.wanted {
			continue
		}
		if !p.written && p.stale {
			p.cost, p.stale = m.lists.count(p, all(), m.limits.Rows.List), false
		}
		sum, most = sum+cost(p), max(most, cost(p))
	}
	var refused map[*program]capacity.Refusal
	if b := m.limits.Rows; b.List > 0 && most > b.List || sum > (Bounds{Namespace: b.Namespace, Total: b.Total}).least() {
		refused = m.refused(b, func(p *program) bool { return p.wanted }, cost)
	}
	var closed [2]bool
	for _, p := range m.lists.programs {
		if r, no := refused[p]; no {
			m.close(p, Rows, r)
		} else if p.wanted && p.closed.Of != NoResource {
			p.closed = Reason{}
			m.endpoints.relist(p)
		}
		p.ahead = ahead{}
		closed[p.side] = closed[p.side] || !p.isAdmitted()
	}
	for side, is := range closed {
		switch p := m.lists.closed[side]; {
		case is && p == nil:
			m.lists.closed[side] = m.lists.hold(Closed, Direction(side))
		case !is && p != nil:
			m.lists.closed[side] = nil
			m.lists.letGo(p)
		}
	}
}

// refused returns which of some lists must be closed so that the others are within bounds.
func (m *Image) refused(b Bounds, among func(*program) bool, cost func(*program) int) map[*program]capacity.Refusal {
	at := map[*program]int{}
	var lists []capacity.List[*program]
	for _, e := range m.endpoints.all {
		for _, p := range e.programs {
			if p == nil || p.exempt || !among(p) {
				continue
			}
			i, known := at[p]
			if !known {
				i = len(lists)
				at[p], lists = i, append(lists, capacity.List[*program]{Key: p, Cost: cost(p)})
			}
			if x := &lists[i]; !slices.Contains(x.Namespaces, e.Owner) {
				x.Namespaces = append(x.Namespaces, e.Owner)
			}
		}
	}
	return capacity.Refused(lists, capacity.Limits(b), comparePrograms)
}

// close takes a list out of the policy map, and keeps it out.
func (m *Image) close(p *program, of Resource, r capacity.Refusal) {
	if p.written {
		cost := p.cost + p.ahead.cost
		m.lists.erase(p)
		p.cost = cost
		m.endpoints.relist(p)
	}
	p.closed = Reason{Of: of, One: r.Limit == capacity.OneList, Max: r.Most}
}

// foresee counts the rows that lists in the policy map need for new classes, ancestors first, and
// marks the closed lists whose cost changes. It stops at a limit. All dead classes are unused by now.
func (l *ruleLists) foresee(added, dead []class, limit int) {
	if len(added)+len(dead) == 0 {
		return
	}
	isNew := make(map[class]bool, len(added))
	for _, c := range added {
		isNew[c] = true
	}
	each := func(c class, f func(p *program, around class)) {
		around := l.writer.nets.divide(c)
		for _, p := range l.programs {
			if p.diff.there {
				f(p, around)
				p.diff.clear()
			}
		}
	}
	closed := false
	for _, p := range l.programs {
		p.diff.active = !p.written && !p.stale
		closed = closed || p.diff.active
	}
	if closed {
		for _, c := range dead {
			each(c, func(p *program, _ class) { p.stale = true })
		}
	}
	for _, p := range l.programs {
		p.diff.active = !p.stale
	}
	for _, c := range added {
		each(c, func(p *program, around class) {
			if !p.written {
				p.stale, p.diff.active = true, false
				return
			}
			if limit == 0 || p.cost+p.ahead.cost <= limit {
				p.foresee(c, around, isNew)
			}
		})
	}
	for _, p := range l.programs {
		p.diff.active = false
	}
}

// foresee counts the row of a new class.
func (p *program) foresee(c, around class, isNew map[class]bool) {
	x := &p.ahead
	if x.rows == nil {
		x.rows, x.sums = map[class]aheadRow{}, map[sum]bool{}
	}
	r, known := x.rows[around]
	for !known && isNew[around] {
		around = p.writer.classes.around(around)
		r, known = x.rows[around]
	}
	if !known {
		of := p.table.rowOf(around)
		r = aheadRow{of.sum, of.rules}
	}
	r = aheadRow{r.sum.plus(p.diff.sum), r.rules + len(p.diff.rules)}
	x.rows[c] = r
	if of := p.rows[r.sum]; (of == nil || of.named == 0) && !x.sums[r.sum] {
		x.sums[r.sum] = true
		x.cost += p.costOf(r.rules)
	}
}

// count returns the cost of the rows that a list would have in the policy map, or any number above
// a limit if it is more. all has all classes, ancestors first.
func (l *ruleLists) count(p *program, all []class, limit int) (cost int) {
	classes, nets, s := l.writer.classes, l.writer.nets, &l.scratch
	s.rules = slices.Grow(s.rules[:0], len(nets.net))[:len(nets.net)]
	s.rows = slices.Grow(s.rows[:0], classes.count())[:classes.count()]
	clear(s.rules)
	for _, a := range p.atoms {
		s.rules[a] = len(nets.rules(a, &p.diff))
	}
	limit = cmp.Or(limit, math.MaxInt)
	seen := map[sum]bool{}
	for _, c := range all {
		def := &classes.all[c]
		row := aheadRow{rules: len(p.always)}
		if c != 0 {
			row = s.rows[def.parent]
		}
		for _, a := range classes.owns.sets[def.own].atoms {
			if n := s.rules[a]; n > 0 {
				row.sum = row.sum.plus(classes.owns.sums[a])
				row.rules += n
			}
		}
		if s.rows[c] = row; def.used && c != infraClass && !seen[row.sum] {
			seen[row.sum] = true
			if cost += p.costOf(row.rules); cost > limit {
				break
			}
		}
	}
	return cost
}

// scratch is memory of count.
type scratch struct {
	rules []int      // of the list that name an atom, by atom
	rows  []aheadRow // by class
}

// Refused returns the endpoints that are blocked because their lists are closed, sorted.
func (m *Image) Refused() (out []Refusal) {
	for _, id := range m.endpoints.sorted() {
		e := m.endpoints.all[id]
		for d, p := range e.programs {
			if p != nil && !p.isAdmitted() {
				out = append(out, Refusal{id, Direction(d), e.Owner, p.closed})
			}
		}
	}
	return out
}

// Usage returns what counts what the lists that are not closed take of rows, and the number of
// addresses that lists name. It may be called while the image changes.
func (m *Image) Usage() (rows func() capacity.Use, addresses int) {
	type held struct {
		of    *program
		owner string
		cost  int
	}
	all := make([]held, 0, 2*len(m.endpoints.all))
	for _, e := range m.endpoints.all {
		for _, p := range e.programs {
			if p != nil && !p.exempt && p.isAdmitted() {
				all = append(all, held{p, e.Owner, p.cost})
			}
		}
	}
	return func() capacity.Use {
		at, lists := map[*program]int{}, []capacity.List[*program]{}
		for _, x := range all {
			i, known := at[x.of]
			if !known {
				i = len(lists)
				at[x.of], lists = i, append(lists, capacity.List[*program]{Key: x.of, Cost: x.cost})
			}
			if l := &lists[i]; !slices.Contains(l.Namespaces, x.owner) {
				l.Namespaces = append(l.Namespaces, x.owner)
			}
		}
		return capacity.UseOf(lists, nil)
	}, m.nets.total
}
