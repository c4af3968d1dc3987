package compile

import (
	"cmp"
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
	var replaced []*program
	for _, e := range m.endpoints.all {
		for d, p := range e.programs {
			if a := e.wanted(d); a != nil {
				m.budget.own(e.Owner, a)
			}
			if p != nil && e.next[d] != nil {
				replaced = append(replaced, p)
			}
		}
	}
	for _, p := range replaced {
		p.replaced = len(p.owners) == 0
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
		for d := range e.programs {
			p := cmp.Or(e.next[d], e.programs[d])
			if p != nil && e.refused[d] == nil && m.budget.refuses(m.budget.owners[e.Owner], &p.account) {
				closeSide(m, e, Direction(d), p)
				any = true
			}
		}
		m.endpoints.await(e)
	}
	return any
}

// closeSide refuses the list of a direction of an endpoint. If the endpoint is to have another one
// by now, that one is evaluated instead.
func closeSide(m *Image, e *endpoint, d Direction, p *program) {
	if e.List(d).Digest() != p.list.Digest() {
		e.next[d] = m.lists.hold(e.List(d), d)
		m.lists.letGo(p)
		return
	}
	e.refused[d], e.share = m.lists.refuse(p), m.budget.share
	m.lists.letGo(e.programs[d])
	m.lists.letGo(e.next[d])
	e.programs[d], e.next[d], e.open[d], e.retried[d] = m.lists.hold(Closed, d), nil, false, false
	m.endpoints.relisted(e)
}

// refusedSide is a direction of an endpoint that is blocked.
type refusedSide struct {
	id  uint32
	dir Direction
}

// lookAgain collects the refused lists of changed owners, which may fit now. If everything is
// reconsidered, endpoints get all refused lists again.
func lookAgain(m *Image) {
	all := m.reconsiderAll
	if len(m.lists.refused) > 0 && (all || len(m.changedOwners) > 0) {
		for _, id := range m.endpoints.sorted() {
			e := m.endpoints.all[id]
			for d, g := range e.refused {
				if g != nil && (all || m.changedOwners[e.Owner]) {
					m.toRetry[refusedSide{id, Direction(d)}] = true
				}
			}
		}
	}
	if clear(m.changedOwners); all {
		m.reconsiderAll = false
		m.retry(takeRetries(m, nil, func(*endpoint, Direction) bool { return true }))
	}
}

// busy returns the owners with lists that are not written yet: what they take is not known.
func (s *endpoints) busy() map[string]bool {
	busy := map[string]bool{}
	for id := range s.waiting {
		e := s.all[id]
		for _, p := range e.next {
			busy[e.Owner] = busy[e.Owner] || p != nil && p.fresh
		}
	}
	return busy
}

// takeRetries returns those of the collected lists for which fits is true, sorted, and forgets all
// but those of busy owners.
func takeRetries(m *Image, busy map[string]bool, fits func(*endpoint, Direction) bool) (out []refusedSide) {
	for x := range m.toRetry {
		e := m.endpoints.all[x.id]
		switch {
		case e == nil || e.refused[x.dir] == nil:
			delete(m.toRetry, x)
		case !busy[e.Owner]:
			delete(m.toRetry, x)
			if fits(e, x.dir) {
				out = append(out, x)
			}
		}
	}
	slices.SortFunc(out, func(a, b refusedSide) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.dir, b.dir)) })
	return out
}

// retry gives endpoints their refused lists again, as soon as these are written.
func (m *Image) retry(lists []refusedSide) {
	for _, x := range lists {
		e := m.endpoints.all[x.id]
		e.next[x.dir], e.since[x.dir], e.retried[x.dir] = m.lists.hold(e.List(x.dir), x.dir), m.arena.plan, true
		m.lists.letGoRefused(e.refused[x.dir])
		e.refused[x.dir] = nil
		m.endpoints.await(e)
	}
}

// fitting returns the lists that may fit now, by the smallest size that they are known to have.
func fitting(m *Image) []refusedSide {
	if len(m.toRetry) == 0 {
		return nil
	}
	return takeRetries(m, m.endpoints.busy(), func(e *endpoint, d Direction) bool {
		return !m.budget.refuses(m.budget.owners[e.Owner], &e.refused[d].account)
	})
}

// Reconsider makes the next plan evaluate all refused lists again.
func (m *Image) Reconsider() { m.reconsiderAll = true }

// Refused returns the refused lists, sorted by endpoint.
func (m *Image) Refused() (out []Refusal) {
	for _, id := range m.endpoints.sorted() {
		e := m.endpoints.all[id]
		for d, g := range e.refused {
			if g != nil || e.retried[d] {
				out = append(out, Refusal{id, Direction(d), e.Owner, e.share})
			}
		}
	}
	return out
}
