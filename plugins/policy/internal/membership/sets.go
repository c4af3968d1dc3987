package membership

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// Sets holds the active selectors and their sets.
type Sets struct {
	state State
	newID func(string) api.SetID // api.NewSetID

	namespaces map[string]intent.Labels
	scopes     scopes
	selectors  map[key]*Selector // active; one for equal ones, which is what policies count
	byID       setIndex
	links      *links
	journal    journal

	moved   []*Selector // whose numbers may have changed
	idle    []*Selector // may have lost their last user
	flipped []*Selector // see TakeFlipped

	addrBuf []netip.Addr // of one group
	setBuf  []*Set       // of one group
}

// New returns the sets of an empty cluster. newID derives the ID of a set from its canonical text.
func New(state State, newID func(string) api.SetID) *Sets {
	links := &links{}
	return &Sets{
		state: state, newID: newID, namespaces: map[string]intent.Labels{}, scopes: newScopes(),
		selectors: map[key]*Selector{}, byID: setIndex{},
		links: links, journal: journal{state: state, links: links, shared: map[netip.Addr]struct{}{}},
	}
}

// Labels returns the labels of a namespace, or nil if it is not known.
func (x *Sets) Labels(namespace string) intent.Labels { return x.namespaces[namespace] }

// Namespaces returns the number of known namespaces.
func (x *Sets) Namespaces() int { return len(x.namespaces) }

// Shared returns the addresses that two pods have, or had since the last TakeUpdates. The caller
// must not modify the map.
func (x *Sets) Shared() map[netip.Addr]struct{} { return x.journal.shared }

// Group returns the common properties of the pods of a group.
func (x *Sets) Group(id intent.GroupID) *intent.Group { return x.links.groups[id].def }

// record records that the addresses of a group join a set or leave it.
func (x *Sets) record(set *Set, id intent.GroupID, d int) {
	if set.Refused {
		return
	}
	x.addrBuf = x.state.AppendAddresses(x.addrBuf[:0], id)
	x.journal.record(set, x.addrBuf, d)
}

// countNodes adds the nodes of a selector to its set, or removes them.
func (x *Sets) countNodes(set *Set, d int) {
	x.journal.touch(set)
	for n := range x.state.MatchNodes(set.sel.pods) {
		if d > 0 {
			set.changeNode(nil, n.Addresses)
		} else {
			set.changeNode(n.Addresses, nil)
		}
	}
}

// link adds a group to the sets of a selector, with its addresses.
func (x *Sets) link(s *Selector, id intent.GroupID) {
	for _, set := range x.setsFor(s, x.links.groups[id].def) {
		x.links.enter(set, id)
		if s.key.presence {
			x.noteGroup(s, +1)
		}
		x.record(set, id, +1)
	}
}

// unlink removes a group and its addresses from the sets of a selector.
func (x *Sets) unlink(s *Selector, id intent.GroupID) {
	for _, set := range s.sets {
		if !x.links.exit(set, id) {
			continue
		}
		x.groupLeft(set)
		x.record(set, id, -1)
	}
}

// groupLeft handles the departure of a group from a set.
func (x *Sets) groupLeft(set *Set) {
	switch {
	case set.sel.key.presence:
		x.noteGroup(set.sel, -1)
	case set.groups == 0:
		x.move(set.sel)
	}
}

// noteGroup records that a presence selector has one more group, or one less.
func (x *Sets) noteGroup(s *Selector, d int) {
	if s.grow(d); s.members == 0 || s.members == d {
		x.flipped = append(x.flipped, s)
	}
}

// move records that the numbers of the selector's named port may have changed since it was
// resolved.
func (x *Sets) move(s *Selector) {
	if s.PerPort() && !s.moved {
		s.moved = true
		x.moved = append(x.moved, s)
	}
}

// makeSet creates a set and derives its ID.
func (x *Sets) makeSet(s *Selector, number uint16) *Set {
	set := &Set{ID: x.newID(s.key.canonical(number)), sel: s, Number: number}
	if s.key.scope.nodes {
		counted := newCountedSet()
		set.nodes = &counted
	}
	x.byID.register(set)
	return set
}

// setIndex holds sets by ID.
type setIndex map[api.SetID]*Set

// register gives a set its ID. If another set has it, the set has no members.
func (x setIndex) register(set *Set) {
	switch other := x[set.ID]; {
	case set.Refused:
	case other != nil && other != set, set.ID == api.NodeSet:
		set.Refused = true
	default:
		x[set.ID] = set
	}
}

// setsFor returns the sets of a selector for a matching group; it creates sets for new numbers of a
// named port. The result is valid until the next call.
func (x *Sets) setsFor(s *Selector, g *intent.Group) []*Set {
	if !s.PerPort() {
		return s.sets
	}
	x.setBuf = x.setBuf[:0]
	for _, port := range g.NamedPorts {
		if port.PortName != s.key.port {
			continue
		}
		i, ok := s.find(port.Number)
		if !ok {
			s.sets = slices.Insert(s.sets, i, x.makeSet(s, port.Number))
			x.move(s)
		}
		x.setBuf = append(x.setBuf, s.sets[i])
	}
	return x.setBuf
}
