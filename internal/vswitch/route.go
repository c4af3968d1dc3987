package vswitch

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrNoInterface is returned when an index names no interface.
var ErrNoInterface = errors.New("no such interface")

// routeSet holds the prefixes that are routed to one interface.
type routeSet map[netip.Prefix]struct{}

// AddRoute routes packets with destinations in the prefix to an interface; the longest matching
// prefix wins. It replaces a route of the same prefix. Host bits are ignored.
func (t *portTable) AddRoute(prefix netip.Prefix, swIfIndex uint32) error {
	if !prefix.IsValid() {
		return fmt.Errorf("%q is not a prefix that can be routed", prefix)
	}
	prefix = prefix.Masked()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table.Get(swIfIndex) == nil {
		return fmt.Errorf("route %s to interface %d: %w", prefix, swIfIndex, ErrNoInterface)
	}
	v := *t.view.Load()
	if old, ok := v.routes.Get(prefix); ok {
		delete(t.routes[old], prefix)
	}
	v.routes = v.routes.InsertPersist(prefix, swIfIndex)
	set := t.routes[swIfIndex]
	if set == nil {
		set = make(routeSet)
		t.routes[swIfIndex] = set
	}
	set[prefix] = struct{}{}
	t.view.Store(&v)
	return nil
}

// RemoveRoute removes the route of a prefix; it returns false if there is none.
func (t *portTable) RemoveRoute(prefix netip.Prefix) bool {
	if !prefix.IsValid() {
		return false
	}
	prefix = prefix.Masked()
	t.mu.Lock()
	defer t.mu.Unlock()
	v := *t.view.Load()
	index, ok := v.routes.Get(prefix)
	if !ok {
		return false
	}
	v.routes = v.routes.DeletePersist(prefix)
	delete(t.routes[index], prefix)
	t.view.Store(&v)
	return true
}

// removeRoutesTo removes the routes to an interface; the lock is held.
func (t *portTable) removeRoutesTo(index uint32) {
	v := *t.view.Load()
	table := v.routes
	for prefix := range t.routes[index] {
		table = table.DeletePersist(prefix)
	}
	delete(t.routes, index)
	v.routes = table
	t.view.Store(&v)
}
