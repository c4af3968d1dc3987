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
	addresses *addresses
	lists     *ruleLists
	endpoints endpoints
	limits    Limits
}

// Options of an Image.
type Options struct {
	Infra []netip.Prefix // addresses that may talk to every pod, in both directions
	// Members of address sets, if the caller of Update maintains them: the caller changes them
	// before Update, and passes exactly the difference. Nil: the image maintains its own.
	Members map[api.SetID]map[netip.Prefix]struct{}
	Limits  Limits
}

// NewImage returns an image without endpoints.
func NewImage(o Options) *Image {
	a, c := newArena(4*rootLines), newClasses()
	m := &Image{writer: &writer{arena: a, cells: newCells(a), classes: c}, endpoints: newEndpoints(), limits: o.Limits}
	m.addresses = newAddresses(a, c)
	m.nets = newNets(c, m.addresses, o.Members)
	m.lists = newLists(m.writer)
	for _, p := range o.Infra {
		m.nets.recordMember(infraAtom, p, true)
	}
	return m
}

// Update changes the members of an address set.
func (m *Image) Update(id api.SetID, added, removed []netip.Prefix) {
	m.nets.update(id, added, removed)
}

// Set adds or replaces an endpoint.
func (m *Image) Set(e Endpoint) error {
	if err := e.check(); err != nil {
		return err
	}
	now := &endpoint{Endpoint: e}
	for d := range now.programs {
		if l := e.List(Direction(d)); l != nil {
			now.programs[d] = m.lists.hold(l, Direction(d))
		}
	}
	if old := m.endpoints.replace(now); old != nil {
		m.letGo(old)
	}
	m.nets.resized = true // another namespace may pay for a list
	return nil
}

// Remove removes an endpoint. It ignores an unknown one.
func (m *Image) Remove(id uint32) {
	e := m.endpoints.all[id]
	if e == nil {
		return
	}
	m.letGo(e)
	m.nets.resized = true
	m.endpoints.remove(e)
	m.arena.drop(e.record, recordLines)
}

// letGo releases the programs of an endpoint.
func (m *Image) letGo(e *endpoint) {
	for _, p := range e.programs {
		m.lists.letGo(p)
	}
}

// Slot returns the list of an endpoint that is in force and the counter of its first rule; those of
// the other rules follow. Equal lists share counters.
func (m *Image) Slot(id uint32, dir Direction) (first uint32, list *renderer.RuleList, ok bool) {
	e := m.endpoints.all[id]
	if e == nil {
		return 0, nil, false
	}
	p := m.lists.inForce(e.programs[dir])
	switch p {
	case nil:
		return 0, nil, false
	case e.programs[dir]:
		return p.slot, e.List(dir), true // of equal lists the one with the current origins
	}
	return p.slot, p.list, true
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
