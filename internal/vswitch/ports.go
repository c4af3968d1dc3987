package vswitch

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gaissmai/bart"
	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/pool"
)

// view is the configuration that packets see. It is immutable.
type view struct {
	ports  []*port // by sw_if_index; nil if there is none
	routes *bart.Table[uint32]
}

// port returns an interface, or nil if it does not exist.
func (v *view) port(i uint32) *port {
	if uint64(i) >= uint64(len(v.ports)) {
		return nil
	}
	return v.ports[i]
}

// use is a place where an ACL is bound.
type use struct {
	port uint32
	dir  api.Direction
}

// portTable holds the interfaces with their bindings, and the routes. Packets see each change
// atomically.
type portTable struct {
	sessions *sessionTable
	notify   func(swIfIndex uint32, up, deleted bool) // sends an event to clients
	view     atomic.Pointer[view]

	// guards the fields below, changes of view, and the tables of ACLs
	mu         sync.Mutex
	table      pool.Pool[port]             // the same as view.ports
	names      map[string]uint32           // sw_if_index by name
	routes     map[uint32]routeSet         // by sw_if_index
	uses       map[uint32]map[use]struct{} // bindings by ACL index
	generation uint64                      // of the last change of a binding
}

// newPortTable returns a table with the interface local0 and no routes.
func newPortTable(sessions *sessionTable, notify func(swIfIndex uint32, up, deleted bool)) *portTable {
	t := &portTable{
		sessions: sessions, notify: notify,
		names: make(map[string]uint32), routes: make(map[uint32]routeSet), uses: make(map[uint32]map[use]struct{}),
	}
	t.view.Store(&view{routes: new(bart.Table[uint32])})
	t.add(&port{name: "local0", kind: "local"})
	return t
}

// AddInterface adds an interface that is up and returns its index. If an interface with that name
// exists, it gets the tag and its index is returned. Messages of the binary API have room only for
// the first 63 bytes of names and tags; here they are stored and compared completely.
func (t *portTable) AddInterface(name, tag string) (swIfIndex uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.names[name]; ok {
		t.change(i, func(p *port) { p.tag = tag })
		return i
	}
	p := &port{name: name, tag: tag, kind: "sluice", up: true}
	t.add(p)
	t.notify(p.index, true, false)
	return p.index
}

// update changes an interface if it exists.
func (t *portTable) update(index uint32, change func(*port)) govpp.VPPApiError {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table.Get(index) == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	t.change(index, change)
	return 0
}

// setUp sets an interface up or down.
func (t *portTable) setUp(index uint32, up bool) govpp.VPPApiError {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.table.Get(index)
	if p == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	if p.up != up {
		t.change(index, func(p *port) { p.up = up })
		t.notify(index, up, false)
	}
	return 0
}

// RemoveInterface removes an interface, its bindings, its sessions and the routes to it. It returns
// false if the interface does not exist; local0 cannot be removed.
func (t *portTable) RemoveInterface(swIfIndex uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remove(swIfIndex)
}

// add assigns an index to a new port; the lock is held.
func (t *portTable) add(p *port) {
	p.index = t.table.Next()
	t.generation++
	p.bindings = [2]binding{{gen: t.generation}, {gen: t.generation}}
	p.sessions = newPortSessions()
	t.table.Put(p)
	t.names[p.name] = p.index
	t.publish()
}

// remove removes an interface; the lock is held.
func (t *portTable) remove(index uint32) bool {
	p := t.table.Get(index)
	if p == nil || index == 0 {
		return false
	}
	for _, dir := range []api.Direction{api.Ingress, api.Egress} {
		for _, a := range p.bindings[dir].acls {
			delete(t.uses[a.index], use{index, dir})
		}
	}
	t.table.Remove(index)
	delete(t.names, p.name)
	t.removeRoutesTo(index)
	t.publish()
	t.sessions.removePort(p.sessions)
	t.notify(index, false, true)
	return true
}

// change replaces a port by a changed copy; the lock is held.
func (t *portTable) change(index uint32, change func(*port)) {
	p := *t.table.Get(index)
	change(&p)
	t.table.Set(index, &p)
	t.publish()
}

// bind sets the ACLs of one direction; the lock is held. gen is that of the change.
func (t *portTable) bind(u use, acls []*accessList, gen uint64) {
	for _, a := range t.table.Get(u.port).bindings[u.dir].acls {
		delete(t.uses[a.index], u)
	}
	for _, a := range acls {
		if t.uses[a.index] == nil {
			t.uses[a.index] = make(map[use]struct{})
		}
		t.uses[a.index][u] = struct{}{}
	}
	t.change(u.port, func(p *port) {
		p.bindings[u.dir].acls = acls
		p.bindings[u.dir].changed(gen)
	})
}

// replace replaces an ACL atomically at all its bindings; the lock is held. gen is that of the
// change.
func (t *portTable) replace(old, a *accessList, gen uint64) {
	for u := range t.uses[a.index] {
		p := *t.table.Get(u.port)
		b := &p.bindings[u.dir]
		b.acls = slices.Clone(b.acls)
		b.acls[slices.Index(b.acls, old)] = a
		b.changed(gen)
		t.table.Set(u.port, &p)
	}
	t.publish()
}

// unbindAll removes everything that clients bound to the interfaces; the lock is held, and the
// caller publishes.
func (t *portTable) unbindAll() {
	clear(t.uses)
	t.generation++
	for i, p := range t.table.All() {
		n := *p
		n.bindings = [2]binding{{gen: t.generation}, {gen: t.generation}}
		n.etypes, n.sources = [2][]uint16{}, nil
		t.table.Set(i, &n)
	}
}

// publish makes the configuration visible to packets; the lock is held.
func (t *portTable) publish() {
	v := *t.view.Load()
	v.ports = t.table.Slots()
	t.view.Store(&v)
}

// allPorts means all interfaces in dumps.
const allPorts = ^uint32(0)

// matching returns one interface or, for allPorts, all of them.
func (t *portTable) matching(index uint32) []*port {
	v := t.view.Load()
	if index != allPorts {
		if p := v.port(index); p != nil {
			return []*port{p}
		}
		return nil
	}
	var list []*port
	for _, p := range v.ports {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// named returns an interface by name, or nil if it does not exist.
func (t *portTable) named(name string) *port {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.names[name]; ok {
		return t.table.Get(i)
	}
	return nil
}

// nameOf returns the name of an interface; ok is false if it does not exist.
func (t *portTable) nameOf(index uint32) (name string, ok bool) {
	p := t.view.Load().port(index)
	if p == nil {
		return "", false
	}
	return p.name, true
}
