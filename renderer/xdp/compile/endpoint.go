package compile

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer"
)

// ErrAddresses is returned for an endpoint with more than MaxAddresses of a family.
var ErrAddresses = errors.New("too many addresses")

// Endpoint is an interface that connects a pod.
type Endpoint struct {
	ID  uint32       // not zero, unique among endpoints
	IPs []netip.Addr // of the pod, which may use no other source addresses

	// The rule lists for traffic to and from the pod; nil for no list.
	ToPod, FromPod *renderer.RuleList

	Flags uint32 // FlagLearn, FlagKeep
	Owner string // the namespace that pays for its lists, see Limits
}

// List returns the list of a direction, nil for none.
func (e Endpoint) List(d Direction) *renderer.RuleList {
	if d == ToPod {
		return e.ToPod
	}
	return e.FromPod
}

// check returns an error if a record cannot hold an endpoint.
func (e Endpoint) check() error {
	n4 := 0
	for _, ip := range e.IPs {
		if ip.Unmap().Is4() {
			n4++
		}
	}
	if n4 > MaxAddresses || len(e.IPs)-n4 > MaxAddresses {
		return fmt.Errorf("%w: endpoint %d has %d of IPv4 and %d of IPv6, of each there can be %d", ErrAddresses, e.ID, n4, len(e.IPs)-n4, MaxAddresses)
	}
	return nil
}

// endpoint is an endpoint with its programs and its record.
type endpoint struct {
	Endpoint
	programs [2]*program // of its lists, by Direction, nil for no list
	record   uint32
	known    bool // the kernel has or may have a record of it
}

// endpoints has all endpoints, and their differences to the kernel.
type endpoints struct {
	all     map[uint32]*endpoint
	dirty   map[uint32]bool // endpoints whose record must be written
	gone    []uint32
	altered bool // the lists of a known endpoint changed
}

func newEndpoints() endpoints {
	return endpoints{all: map[uint32]*endpoint{}, dirty: map[uint32]bool{}}
}

// sorted returns the IDs of all endpoints, sorted.
func (s *endpoints) sorted() []uint32 { return slices.Sorted(maps.Keys(s.all)) }

// replace adds or replaces an endpoint, and returns the old one.
func (s *endpoints) replace(now *endpoint) (old *endpoint) {
	if i := slices.Index(s.gone, now.ID); i >= 0 {
		s.gone = slices.Delete(s.gone, i, i+1)
		s.altered, now.known = true, true // the kernel still has the old record
	}
	if old = s.all[now.ID]; old != nil {
		now.record, now.known = old.record, old.known
		s.altered = s.altered || now.programs != old.programs
	}
	s.all[now.ID] = now
	s.dirty[now.ID] = true
	return old
}

// remove removes an endpoint.
func (s *endpoints) remove(e *endpoint) {
	delete(s.all, e.ID)
	delete(s.dirty, e.ID)
	if e.record != 0 || e.known {
		s.gone = append(s.gone, e.ID)
	}
}

// touch records that the endpoints with a program need new records.
func (s *endpoints) touch(p *program) {
	for id, e := range s.all {
		if e.programs[p.side] == p {
			s.dirty[id] = true
		}
	}
}

// relist records that the endpoints with a program meet another list than before.
func (s *endpoints) relist(p *program) {
	for id, e := range s.all {
		if e.programs[p.side] == p {
			s.dirty[id] = true
			s.altered = s.altered || e.known
		}
	}
}

// touchAll records that all endpoints need new records.
func (s *endpoints) touchAll() {
	for id := range s.all {
		s.dirty[id] = true
	}
}

// done records that the kernel has the current state of all endpoints.
func (s *endpoints) done() {
	for id := range s.dirty {
		s.all[id].known = true
	}
	clear(s.dirty)
	s.gone, s.altered = nil, false
}

// write writes the record of an endpoint to new lines.
func (e *endpoint) write(a *arena, roots *addresses, lists *ruleLists) {
	a.drop(e.record, recordLines)
	e.record = a.allocate(recordLines)
	w := e.record * LineWords
	flags := e.Flags & (FlagLearn | FlagKeep)
	for d := range e.programs {
		p := lists.inForce(e.programs[d])
		if p == nil {
			continue
		}
		flags |= FlagToPod << d
		if p.ports {
			flags |= FlagPortsTo << d
		}
		a.setWord(w+RecordTable+uint32(d), p.table.line)
		a.setWord(w+RecordClasses+uint32(d), uint32(p.table.capacity*pageClasses))
		a.setWord(w+RecordSlot+uint32(d), p.slot)
		a.setWord(w+RecordPage+uint32(d), p.table.pages[0].line)
	}
	a.setWord(w+RecordID, e.ID)
	a.setWord(w+RecordFlags, flags)
	a.setWord(w+RecordRoot4, roots.root4)
	a.setWord(w+RecordRoot6, roots.root6)
	e.writeAddresses(a)
}

func (e *endpoint) writeAddresses(a *arena) {
	w := e.record * LineWords
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
