package compile

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Image is memory for any number of endpoints and what led to it.
type Image struct {
	*writer
	addresses     *addresses
	lists         *ruleLists
	endpoints     endpoints
	budget        *budget
	changedOwners map[string]bool // owners of whom something became different: what is refused of them is looked at
	reconsiderAll bool            // every owner is to be looked at again
}

// Options of an Image.
type Options struct {
	Infra []netip.Prefix // what may talk with every pod, both ways
	// Members of address sets, if whoever calls Update keeps them: it has changed them then, and
	// says exactly what changed. Nil: the image keeps its own.
	Members map[api.SetID]map[netip.Prefix]struct{}
	Budget  Budget
}

// NewImage returns an image without endpoints.
func NewImage(o Options) *Image {
	a, c := newArena(4*rootLines), newClasses()
	m := &Image{writer: &writer{arena: a, cells: newCells(a), classes: c}, endpoints: newEndpoints(), changedOwners: map[string]bool{}}
	m.addresses = newAddresses(a, c)
	m.nets = newNets(c, m.addresses, o.Members)
	m.budget = &budget{Budget: o.Budget, accounts: map[*account]bool{}, free: m.sweep}
	m.lists = newLists(m.writer, m.budget)
	for _, p := range o.Infra {
		m.nets.put(infraAtom, p, true)
	}
	return m
}

// Update changes the members of an address set.
func (m *Image) Update(id api.SetID, added, removed []netip.Prefix) {
	m.nets.update(id, added, removed)
}

// Set adds an endpoint, or replaces what was said of it.
func (m *Image) Set(e Endpoint) error {
	if err := e.check(); err != nil {
		return err
	}
	m.changedOwners[e.Owner] = true
	now := &endpoint{Endpoint: e}
	for d := range now.programs {
		m.want(now, Direction(d))
	}
	if old := m.endpoints.put(now); old != nil {
		m.letGo(old)
	}
	return nil
}

// Remove takes an endpoint away. An unknown one is not there already.
func (m *Image) Remove(id uint32) {
	e := m.endpoints.all[id]
	if e == nil {
		return
	}
	m.letGo(e)
	m.changedOwners[e.Owner] = true
	m.endpoints.remove(e)
	m.arena.drop(e.record, recordLines)
}

// want gives an endpoint the program of its list; of one that is refused already, what is kept of
// it, until it is known whether that may be otherwise.
func (m *Image) want(e *endpoint, d Direction) {
	l := e.List(d)
	if l == nil {
		return
	}
	if g := m.lists.refused[programKey{l.Digest(), d}]; g != nil {
		e.refused[d], e.programs[d], e.share = g, m.lists.hold(Closed, d), m.budget.share
		g.users++
		return
	}
	e.programs[d] = m.lists.hold(l, d)
}

// letGo takes the lists of an endpoint back.
func (m *Image) letGo(e *endpoint) {
	for d, p := range e.programs {
		m.lists.letGo(p)
		m.lists.letGoRefused(e.refused[d])
	}
}

// sweep frees the classes that no address has.
func (m *Image) sweep() { m.lists.sweep(m.addresses.marked(m.classes.count())) }

// Slot returns the counter of the first rule of an endpoint's list, and that list; the others
// follow it. Equal lists have the same.
func (m *Image) Slot(id uint32, dir Direction) (first uint32, list *renderer.RuleList, ok bool) {
	e := m.endpoints.all[id]
	if e == nil || e.programs[dir] == nil {
		return 0, nil, false
	}
	if e.refused[dir] != nil {
		return e.programs[dir].slot, Closed, true
	}
	return e.programs[dir].slot, e.List(dir), true
}

// Parts calls f with the words of some lines, in order, until it returns an error. The caller must
// not change them. Lines that were never used are left out.
func (m *Image) Parts(s Span, f func(line uint32, content []Line) error) error {
	return m.arena.parts(s, f)
}

// Words reads the shadow.
func (m *Image) Words() Words { return m.arena.word }

// Record returns the line of the record of an endpoint, 0 for none.
func (m *Image) Record(id uint32) uint32 {
	if e := m.endpoints.all[id]; e != nil {
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
		Lines: m.arena.buddy.used, Capacity: m.arena.buddy.size(), Slots: m.lists.slots.used, Programs: len(m.lists.programs), Endpoints: len(m.endpoints.all),
		Classes: m.classes.live,
	}
	for _, p := range m.lists.programs {
		u.Rows += len(p.rows)
	}
	return u
}
