package compile

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Image is the policy map of any number of endpoints, with the lists and sets that it was built
// from.
type Image struct {
	*writer
	addresses     *addresses
	lists         *ruleLists
	endpoints     endpoints
	budget        *budget
	changedOwners map[string]bool // owners with changes, whose refused lists the next plan evaluates again
	reconsiderAll bool            // the next plan evaluates all refused lists again
	toRetry       map[refusedSide]bool
}

// Options of an Image.
type Options struct {
	Infra []netip.Prefix // addresses that may talk to every pod, in both directions
	// Members of address sets, if the caller of Update maintains them: the caller changes them
	// before Update, and passes exactly the difference. Nil: the image maintains its own.
	Members map[api.SetID]map[netip.Prefix]struct{}
	Budget  Budget
}

// NewImage returns an image without endpoints.
func NewImage(o Options) *Image {
	a, c := newArena(4*rootLines), newClasses()
	m := &Image{writer: &writer{arena: a, cells: newCells(a), classes: c}, endpoints: newEndpoints(), changedOwners: map[string]bool{}, toRetry: map[refusedSide]bool{}}
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

// Set adds or replaces an endpoint. An endpoint that is another pod's than before must be removed
// first, else it may keep the lists of the other for some time; see PlanTurn.
func (m *Image) Set(e Endpoint) error {
	if err := e.check(); err != nil {
		return err
	}
	m.changedOwners[e.Owner] = true
	now, old := &endpoint{Endpoint: e}, m.endpoints.all[e.ID]
	for d := range now.programs {
		m.want(now, old, Direction(d))
	}
	if m.endpoints.put(now); old != nil {
		m.letGo(old)
	}
	return nil
}

// Remove removes an endpoint. It ignores an unknown one.
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

// want gives an endpoint the program of its list. If the list is refused already, the endpoint gets
// the program of Closed until the list is evaluated again.
func (m *Image) want(e, old *endpoint, d Direction) {
	l := e.List(d)
	if l == nil {
		return
	}
	if g := m.lists.refused[programKey{l.Digest(), d}]; g != nil {
		e.refused[d], e.programs[d], e.share = g, m.lists.hold(Closed, d), m.budget.share
		g.users++
		return
	}
	if p := m.lists.hold(l, d); p.fresh {
		replace(m, e, old, d, p)
	} else {
		e.programs[d] = p
	}
}

// patience is for how many plans a list that changes before it was written is replaced by the new
// one. Afterwards the one that was begun is finished, else it might never be in force.
const patience = 40

// replace makes a list that is not written yet the next one of an endpoint, which keeps its own.
func replace(m *Image, e, old *endpoint, d Direction, p *program) {
	e.next[d], e.since[d] = p, m.arena.plan
	if old == nil {
		return
	}
	if e.programs[d] = old.programs[d]; old.programs[d] != nil {
		old.programs[d].users++
	}
	next := old.next[d]
	if e.open[d] = old.open[d] || old.programs[d] == nil && next == nil; next == nil {
		return
	}
	e.since[d] = old.since[d]
	if m.arena.plan-e.since[d] >= patience && next.fresh && next.begun != 0 {
		m.lists.letGo(p)
		e.next[d] = next
		next.users++
	}
}

// letGo releases the programs of an endpoint.
func (m *Image) letGo(e *endpoint) {
	for d, p := range e.programs {
		m.lists.letGo(p)
		m.lists.letGo(e.next[d])
		m.lists.letGoRefused(e.refused[d])
	}
}

// sweep frees the classes that no address has.
func (m *Image) sweep() { m.lists.sweep(m.addresses.marked(m.classes.count())) }

// Slot returns the list of an endpoint that is in force and the counter of its first rule; those of
// the other rules follow. Equal lists share counters.
func (m *Image) Slot(id uint32, dir Direction) (first uint32, list *renderer.RuleList, ok bool) {
	e := m.endpoints.all[id]
	if e == nil || e.programs[dir] == nil {
		return 0, nil, false
	}
	return e.programs[dir].slot, m.InForce(id, dir), true
}

// Parts calls f with the content of some lines, in order, until it returns an error. The caller
// must not change the content. Parts skips lines that were never used.
func (m *Image) Parts(s Span, f func(line uint32, content []Line) error) error {
	return m.arena.parts(s, f)
}

// Words returns a function that reads the shadow.
func (m *Image) Words() Words { return m.arena.word }

// Record returns the line of the record of an endpoint, 0 for none.
func (m *Image) Record(id uint32) uint32 {
	if e := m.endpoints.all[id]; e != nil {
		return e.record
	}
	return 0
}

// Use is how much an image uses.
type Use struct {
	Lines, Capacity int // of memory
	Classes         int
	Slots           int
	Programs, Rows  int
	Endpoints       int
}

// Use returns how much the image uses. Retired lines count until they are released.
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
