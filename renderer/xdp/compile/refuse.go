package compile

import (
	"slices"
)

// Refusal is a direction of an endpoint that is blocked, because its list is one of those by which
// its owner exceeds its share.
type Refusal struct {
	ID    uint32
	Dir   Direction
	Owner string
	Share int // limit of the owner, in lines
}

// countLists assigns lists to owners, and counts the addresses that they name.
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

// estimate refuses, before anything is built, lists that exceed their limit by the addresses that
// they name alone.
func (m *Image) estimate() {
	if m.budget.isSet() && (len(m.nets.pending) > 0 || m.lists.anyFresh()) {
		m.countLists()
		m.budget.swept, m.budget.early = true, true
		m.refuse()
		m.budget.early = false
	}
}

// refuse blocks the endpoints of refused lists. It reports whether a list is newly refused.
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

// refusedSide is a direction of an endpoint that is blocked.
type refusedSide struct {
	id  uint32
	dir Direction
}

// refusedBefore returns the refused lists of changed owners, or of all owners if everything is
// reconsidered.
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

// retry gives endpoints their refused lists again.
func (m *Image) retry(lists []refusedSide) {
	for _, x := range lists {
		e := m.endpoints.all[x.id]
		m.lists.letGo(e.programs[x.dir])
		m.lists.letGoRefused(e.refused[x.dir])
		e.programs[x.dir], e.refused[x.dir] = m.lists.hold(e.List(x.dir), x.dir), nil
		m.endpoints.relisted(e)
	}
}

// fitting returns the lists that may fit now, by the smallest size that they are known to have.
func (m *Image) fitting(lists []refusedSide) []refusedSide {
	return slices.DeleteFunc(lists, func(x refusedSide) bool {
		e := m.endpoints.all[x.id]
		return m.budget.refuses(m.budget.owners[e.Owner], &e.refused[x.dir].account)
	})
}

// Reconsider makes the next plan evaluate all refused lists again.
func (m *Image) Reconsider() { m.reconsiderAll = true }

// Refused returns the refused lists, sorted by endpoint.
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
