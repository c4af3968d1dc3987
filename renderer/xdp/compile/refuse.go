package compile

import (
	"slices"
)

// Refusal is a direction of an endpoint that is closed, because its list is one of those that make
// its owner take more than its share.
type Refusal struct {
	ID    uint32
	Dir   Direction
	Owner string
	Share int // lines that the owner may take
}

// countLists takes down whose lists there are, and what they name.
func (m *Image) countLists() {
	m.budget.begin()
	for _, e := range m.endpoints.all {
		for d := range e.programs {
			if a := e.wanted(d); a != nil {
				m.budget.own(e.Owner, a)
			}
		}
	}
	m.lists.countReach()
}

// estimate refuses lists that would take too much by the addresses alone that they name, before
// anything is built.
func (m *Image) estimate() {
	if m.budget.isSet() && (len(m.nets.pending) > 0 || m.lists.anyFresh()) {
		m.countLists()
		m.budget.swept, m.budget.early = true, true
		m.refuse()
		m.budget.early = false
	}
}

// refuse closes what is refused, and returns whether anything is that was not.
func (m *Image) refuse() (any bool) {
	if m.budget.isSet() && !m.budget.begun && len(m.lists.refused) > 0 {
		m.countLists()
	}
	if !m.budget.begun {
		return false
	}
	m.budget.sweep(1)
	m.budget.settle()
	for _, id := range m.endpoints.sorted() {
		e := m.endpoints.all[id]
		for d, p := range e.programs {
			if p == nil || e.refused[d] != nil || !m.budget.refuses(m.budget.owners[e.Owner], &p.account) {
				continue
			}
			e.refused[d] = m.lists.refuse(p)
			e.programs[d] = m.lists.hold(Closed, Direction(d))
			m.lists.letGo(p)
			any = true
			e.share = m.budget.share
			m.endpoints.relisted(e)
		}
	}
	return any
}

// refusedSide is a direction of an endpoint that is closed.
type refusedSide struct {
	id  uint32
	dir Direction
}

// refusedBefore returns what is refused of owners of which something became different.
func (m *Image) refusedBefore() (out []refusedSide) {
	if len(m.lists.refused) == 0 {
		return nil
	}
	for _, id := range m.endpoints.sorted() {
		e := m.endpoints.all[id]
		for d, g := range e.refused {
			if g != nil && (m.reconsiderAll || m.changedOwners[e.Owner]) {
				out = append(out, refusedSide{id, Direction(d)})
			}
		}
	}
	return out
}

// retry wants lists again that were refused.
func (m *Image) retry(lists []refusedSide) {
	for _, x := range lists {
		e := m.endpoints.all[x.id]
		m.lists.letGo(e.programs[x.dir])
		m.lists.letGoRefused(e.refused[x.dir])
		e.programs[x.dir], e.refused[x.dir] = m.lists.hold(e.List(x.dir), x.dir), nil
		m.endpoints.relisted(e)
	}
}

// fitting returns those of the lists that may not be too much: of what is refused it is known how
// large it is at least.
func (m *Image) fitting(lists []refusedSide) []refusedSide {
	return slices.DeleteFunc(lists, func(x refusedSide) bool {
		e := m.endpoints.all[x.id]
		return m.budget.refuses(m.budget.owners[e.Owner], &e.refused[x.dir].account)
	})
}

// Reconsider has the next plan look at everything that was refused.
func (m *Image) Reconsider() { m.reconsiderAll = true }

// Refused returns what is refused, by endpoint.
func (m *Image) Refused() (out []Refusal) {
	for _, id := range m.endpoints.sorted() {
		e := m.endpoints.all[id]
		for d, g := range e.refused {
			if g != nil {
				out = append(out, Refusal{id, Direction(d), e.Owner, e.share})
			}
		}
	}
	return out
}
