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

// AddRoute sends packets to destinations in the prefix out of an interface; the
// longest prefix that holds a destination wins. A route of the same prefix is
// replaced. Host bits are ignored.
func (s *Switch) AddRoute(prefix netip.Prefix, swIfIndex uint32) error {
	if !prefix.IsValid() {
		return fmt.Errorf("%q is not a prefix that can be routed", prefix)
	}
	prefix = prefix.Masked()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports.Get(swIfIndex) == nil {
		return fmt.Errorf("route %s to interface %d: %w", prefix, swIfIndex, ErrNoInterface)
	}
	v := *s.view.Load()
	if old, ok := v.routes.Get(prefix); ok {
		delete(s.portRoutes[old], prefix)
	}
	v.routes = v.routes.InsertPersist(prefix, swIfIndex)
	set := s.portRoutes[swIfIndex]
	if set == nil {
		set = make(routeSet)
		s.portRoutes[swIfIndex] = set
	}
	set[prefix] = struct{}{}
	s.view.Store(&v)
	return nil
}

// RemoveRoute removes the route of a prefix; it is false when there is none.
func (s *Switch) RemoveRoute(prefix netip.Prefix) bool {
	if !prefix.IsValid() {
		return false
	}
	prefix = prefix.Masked()
	s.mu.Lock()
	defer s.mu.Unlock()
	v := *s.view.Load()
	index, ok := v.routes.Get(prefix)
	if !ok {
		return false
	}
	v.routes = v.routes.DeletePersist(prefix)
	delete(s.portRoutes[index], prefix)
	s.view.Store(&v)
	return true
}

// removeRoutesTo removes the routes to an interface; the lock is held.
func (s *Switch) removeRoutesTo(index uint32) {
	v := *s.view.Load()
	table := v.routes
	for prefix := range s.portRoutes[index] {
		table = table.DeletePersist(prefix)
	}
	delete(s.portRoutes, index)
	v.routes = table
	s.view.Store(&v)
}
