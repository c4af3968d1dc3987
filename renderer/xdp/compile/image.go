package compile

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// ErrAddresses is returned for an endpoint with more than MaxAddresses of a family.
var ErrAddresses = errors.New("too many addresses")

// Endpoint is an interface that connects a pod.
type Endpoint struct {
	ID  uint32       // not zero, unique among endpoints
	IPs []netip.Addr // of the pod, which may send from no others

	// The lists of traffic to and from the pod; nil for no list.
	ToPod, FromPod *renderer.RuleList

	Flags uint32 // FlagLearn, FlagKeep
	Owner string // whose share of the Budget its lists take
}

// List returns the list of a direction, nil for none.
func (e Endpoint) List(d Direction) *renderer.RuleList {
	if d == ToPod {
		return e.ToPod
	}
	return e.FromPod
}

// Image is memory for any number of endpoints and what led to it.
type Image struct {
	arena    arena
	cells    cells
	classes  *classes
	nets     nets
	v4, v6   *trie
	programs map[programKey]*program
	fresh    map[*program]bool       // not in memory yet
	rejected map[programKey]*program // lists that are refused

	ends    map[uint32]*endpoint
	dirty   map[uint32]bool // endpoints whose record must be written
	gone    []uint32
	altered bool // an endpoint that there is has other lists than before

	root4, root6 uint32 // line of the cells, number of the word
	stores       []Store
	unread       bool // what is written is in lines that nothing leads to yet

	budget budget
	again  map[string]bool // owners of whom something became different
	all    bool            // every owner is to be looked at again

	slots      buddy
	freedSlots []Span
}

type programKey struct {
	digest renderer.Digest
	side   Direction
}

// endpoint is an endpoint and where its record is.
type endpoint struct {
	Endpoint
	programs [2]*program // by Direction, nil for no list
	rejected [2]*program // of a list that is refused, while the program is that of another
	share    int         // of its owner, when something was refused
	record   uint32
	known    bool // to the kernel, or it may be
}

// Options of an Image.
type Options struct {
	Infra []netip.Prefix // what may talk with every pod, both ways
	Lines int            // of memory to begin with
	// Members of address sets, if whoever calls Update keeps them: it has changed them then, and
	// says exactly what changed. Nil: the image keeps its own.
	Members map[api.SetID]map[netip.Prefix]struct{}
	Budget  Budget
}

// NewImage returns an image without endpoints.
func NewImage(o Options) *Image {
	m := &Image{
		arena: *newArena(max(o.Lines, 4*rootLines)), classes: newClasses(), programs: map[programKey]*program{}, fresh: map[*program]bool{}, rejected: map[programKey]*program{},
		ends: map[uint32]*endpoint{}, dirty: map[uint32]bool{},
	}
	m.slots.grow(1)
	m.slots.take(2) // SlotNone, SlotInfra
	m.cells, m.budget, m.again = newCells(&m.arena), budget{Budget: o.Budget}, map[string]bool{}
	m.v4, m.v6 = newTrie(&m.arena, m.classes, digits4), newTrie(&m.arena, m.classes, digits6)
	m.nets = newNets(m, o.Members)
	m.root4, m.root6 = m.arena.take(rootLines), m.arena.take(1)*LineWords
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
	n4 := 0
	for _, ip := range e.IPs {
		if ip.Unmap().Is4() {
			n4++
		}
	}
	if n4 > MaxAddresses || len(e.IPs)-n4 > MaxAddresses {
		return fmt.Errorf("%w: endpoint %d has %d of IPv4 and %d of IPv6, of each there can be %d", ErrAddresses, e.ID, n4, len(e.IPs)-n4, MaxAddresses)
	}
	again := false
	if i := slices.Index(m.gone, e.ID); i >= 0 {
		m.gone = slices.Delete(m.gone, i, i+1)
		m.altered, again = true, true // the kernel still has what it was
	}
	old := m.ends[e.ID]
	m.again[e.Owner] = true
	now := &endpoint{Endpoint: e, known: again}
	for d := range now.programs {
		m.want(now, Direction(d))
	}
	if old != nil {
		now.record, now.known = old.record, old.known
		m.altered = m.altered || now.programs != old.programs
		m.letGo(old)
	}
	m.ends[e.ID] = now
	m.dirty[e.ID] = true
	return nil
}

// Remove takes an endpoint away. An unknown one is not there already.
func (m *Image) Remove(id uint32) {
	e := m.ends[id]
	if e == nil {
		return
	}
	m.letGo(e)
	m.again[e.Owner] = true
	delete(m.ends, id)
	delete(m.dirty, id)
	if e.record != 0 {
		m.arena.drop(e.record, recordLines)
		m.gone = append(m.gone, id)
	}
}

// want gives an endpoint the program of its list; of one that is refused already, what is kept of it,
// until it is known whether that may be otherwise.
func (m *Image) want(e *endpoint, d Direction) {
	l := e.List(d)
	if l == nil {
		return
	}
	if g := m.rejected[programKey{l.Digest(), d}]; g != nil {
		e.rejected[d], e.programs[d], e.share = g, m.hold(Closed, d), m.budget.share
		g.users++
		return
	}
	e.programs[d] = m.hold(l, d)
}

// hold returns the program of a list, for one more endpoint.
func (m *Image) hold(l *renderer.RuleList, side Direction) *program {
	if l == nil {
		return nil
	}
	key := programKey{l.Digest(), side}
	p := m.programs[key]
	if p == nil {
		p = m.newProgram(l, side)
		m.programs[key] = p
		m.fresh[p] = true
	}
	p.users++
	return p
}

func (m *Image) letGo(e *endpoint) {
	for d, p := range e.programs {
		m.letGoOf(p)
		m.letGoOfRejected(e.rejected[d])
	}
}

// letGoOf takes a program back from an endpoint; nil is none.
func (m *Image) letGoOf(p *program) {
	if p == nil {
		return
	}
	if p.users--; p.users > 0 {
		return
	}
	delete(m.programs, programKey{p.list.Digest(), p.side})
	delete(m.fresh, p)
	p.drop()
}

// store changes a word, which is a step of its own unless nothing leads to it.
func (m *Image) store(word, value uint32) {
	m.arena.setWord(word, value)
	if m.unread {
		return
	}
	m.stores = append(m.stores, Store{word, value})
}

// writeRecord writes what the kernel must know about an endpoint.
func (m *Image) writeRecord(e *endpoint) {
	a := &m.arena
	a.drop(e.record, recordLines)
	e.record = a.take(recordLines)
	w := e.record * LineWords
	flags := e.Flags & (FlagLearn | FlagKeep)
	for d, p := range e.programs {
		if p == nil {
			continue
		}
		flags |= FlagToPod << d
		if p.ports {
			flags |= FlagPortsTo << d
		}
		a.setWord(w+RecordTable+uint32(d), p.line)
		a.setWord(w+RecordClasses+uint32(d), uint32(p.capacity*pageClasses))
		a.setWord(w+RecordSlot+uint32(d), p.slot)
		a.setWord(w+RecordPage+uint32(d), p.pages[0].line)
	}
	a.setWord(w+RecordID, e.ID)
	a.setWord(w+RecordFlags, flags)
	a.setWord(w+RecordRoot4, m.root4)
	a.setWord(w+RecordRoot6, m.root6)
	m.writeAddresses(e)
}

func (m *Image) writeAddresses(e *endpoint) {
	a, w := &m.arena, e.record*LineWords
	var n4, n6 uint32
	for _, ip := range e.IPs {
		if ip = ip.Unmap(); ip.Is4() {
			a.setWord(w+recordAddr4*LineWords+n4, be32(ip.AsSlice()))
			n4++
			continue
		}
		b := ip.As16()
		for i := range uint32(4) {
			a.setWord(w+recordAddr6*LineWords+4*n6+i, be32(b[4*i:]))
		}
		n6++
	}
	a.setWord(w+RecordCount4, n4)
	a.setWord(w+RecordCount6, n6)
}

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// Endpoints returns the endpoints by their IDs.
func (m *Image) Endpoints() []Endpoint {
	out := make([]Endpoint, 0, len(m.ends))
	for _, id := range slices.Sorted(maps.Keys(m.ends)) {
		out = append(out, m.ends[id].Endpoint)
	}
	return out
}

// Slot returns the counter of the first rule of an endpoint's list, and that list; the others
// follow it. Equal lists have the same.
func (m *Image) Slot(id uint32, dir Direction) (first uint32, list *renderer.RuleList, ok bool) {
	e := m.ends[id]
	if e == nil || e.programs[dir] == nil {
		return 0, nil, false
	}
	if e.rejected[dir] != nil {
		return e.programs[dir].slot, Closed, true
	}
	return e.programs[dir].slot, e.List(dir), true
}

// Slots is how many counters there must be.
func (m *Image) Slots() int { return m.slots.size() }
