// Package hoststack implements the session layer of the vswitch: application namespaces, and the
// session rules that determine which connections their applications may have.
package hoststack

import (
	"slices"
	"sync"

	"github.com/sluice-net/sluice/internal/vswitch/internal/pool"
)

// Stack is the configuration of the session layer: applications of a namespace connect and listen
// in it, and session rules determine with which peers. It is safe for concurrent use.
//
// With quirks it behaves like VPP 25.10:
//
//   - The scope of a rule is read in the wrong byte order, so that every documented value
//     means "global", and 0x02000000 and 0x03000000 mean "local" and "both".
//   - Ports of rules are stored in host byte order and compared with ports in
//     network byte order: a rule for port 80 matches port 20480.
//   - The tags of IPv6 rules are not dumped; if an IPv4 rule has the same index, its tag
//     is dumped instead. The old tag of a rule whose tag changes stays in use.
type Stack struct {
	quirks   bool
	portName func(swIfIndex uint32) (name string, ok bool)

	mu         sync.Mutex // guards the fields below
	enabled    bool
	ruleTables bool // rules are enabled
	namespaces pool.Pool[appNamespace]
	global     [2]map[uint32]*ruleGroup // by family and routing table
	order      []*ruleGroup             // order of dumps
}

// none means that a namespace has no interface or no routing table.
const none = ^uint32(0)

// New returns a stack that is not enabled. portName returns the name of an interface; ok is false
// if the interface does not exist.
func New(quirks bool, portName func(swIfIndex uint32) (name string, ok bool)) *Stack {
	return &Stack{quirks: quirks, portName: portName}
}

// appNamespace is an application namespace, to which applications attach.
type appNamespace struct {
	id     string
	index  uint32
	secret uint64
	port   uint32    // sw_if_index, or none
	fibs   [2]uint32 // routing tables of IPv4 and IPv6, or none
	sock   string
	local  *ruleGroup
}

// enable enables or disables the session layer. An enabled one keeps its mode.
func (s *Stack) enable(on, rules bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on == s.enabled {
		return
	}
	s.enabled, s.ruleTables = on, on && rules
	s.namespaces, s.global, s.order = pool.Pool[appNamespace]{}, [2]map[uint32]*ruleGroup{{}, {}}, nil
	if on {
		s.addNamespace(&appNamespace{id: "default", port: none})
	}
}

// Restart removes all rules. Namespaces stay, because the embedder would create them again.
func (s *Stack) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.global, s.order = [2]map[uint32]*ruleGroup{{}, {}}, nil
	for _, n := range s.namespaces.All() {
		n.local = &ruleGroup{local: true, namespaces: []uint32{n.index}}
		s.order = append(s.order, n.local)
		s.enter(n)
	}
}

// addNamespace adds a namespace, or replaces the one with its name; the lock is held.
func (s *Stack) addNamespace(n *appNamespace) uint32 {
	if old := s.namespace(n.id); old != nil {
		n.index, n.local, n.sock = old.index, old.local, old.sock
		s.leave(old)
		*old = *n
		s.enter(old)
		return old.index
	}
	n.index = s.namespaces.Next()
	n.local = &ruleGroup{local: true, namespaces: []uint32{n.index}}
	s.order = append(s.order, n.local)
	s.namespaces.Put(n)
	s.enter(n)
	return n.index
}

// namespace returns a namespace by name, or nil; the lock is held.
func (s *Stack) namespace(id string) *appNamespace {
	for _, n := range s.namespaces.All() {
		if n.id == id {
			return n
		}
	}
	return nil
}

// enter adds a namespace to its routing tables.
func (s *Stack) enter(n *appNamespace) {
	for v6, fib := range n.fibs {
		if fib == none {
			continue
		}
		g := s.global[v6][fib]
		if g == nil {
			g = &ruleGroup{v6: v6}
			s.global[v6][fib] = g
			s.order = append(s.order, g)
		}
		g.namespaces = append(g.namespaces, n.index)
	}
}

// leave removes a namespace from its routing tables, and tables without namespaces.
func (s *Stack) leave(n *appNamespace) {
	for v6, fib := range n.fibs {
		g := s.global[v6][fib]
		if g == nil {
			continue
		}
		g.namespaces = slices.DeleteFunc(g.namespaces, func(i uint32) bool { return i == n.index })
		if len(g.namespaces) == 0 {
			delete(s.global[v6], fib)
			s.order = slices.DeleteFunc(s.order, func(o *ruleGroup) bool { return o == g })
		}
	}
}

// removeNamespace removes a namespace with its local rules; the lock is held.
func (s *Stack) removeNamespace(id string) bool {
	n := s.namespace(id)
	if n == nil {
		return false
	}
	s.leave(n)
	s.order = slices.DeleteFunc(s.order, func(g *ruleGroup) bool { return g == n.local })
	s.namespaces.Remove(n.index)
	return true
}

// AddNamespace adds an application namespace that is bound to routing table 0 of both families, as
// a CNI plugin does for a pod whose applications use the host stack. It enables the session layer,
// with rules, if it is disabled.
func (s *Stack) AddNamespace(id string) (index uint32) {
	s.enable(true, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addNamespace(&appNamespace{id: id, port: none})
}

// RemoveNamespace removes an application namespace with its rules.
func (s *Stack) RemoveNamespace(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removeNamespace(id)
}
