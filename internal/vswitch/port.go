package vswitch

import (
	"fmt"

	govpp "go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/api"
)

// port is the configuration of one interface. It is immutable: a change makes a
// copy. sessions is the part that all copies share.
type port struct {
	index    uint32
	name     string
	tag      string
	kind     string // the device type that VPP would show
	up       bool
	bindings [2]binding          // by direction
	etypes   [2][]uint16         // ethertype whitelists by direction; stored, not applied: there is no L2 path
	features map[string][]string // of other plugins that are on, by arc; they do nothing
	sources  *macip              // nil: all
	sessions *portSessions
}

// binding is the ordered list of ACLs of one direction of an interface. Without
// ACLs the direction is open.
type binding struct {
	acls []*accessList
	gen  uint64 // of the last change that sessions must notice
}

const kindLoopback = "Loopback"

// AddInterface adds an interface that is up and returns its index. If there is
// an interface of that name already, it gets the tag and its index is returned.
// Messages of the binary API have room for the first 63 bytes of names and tags
// only; here they are kept and compared whole.
func (s *Switch) AddInterface(name, tag string) (swIfIndex uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.portNames[name]; ok {
		s.changePort(i, func(p *port) { p.tag = tag })
		return i
	}
	p := &port{name: name, tag: tag, kind: "sluice", up: true}
	s.addPort(p)
	s.notify(p.index, true, false)
	return p.index
}

// RemoveInterface removes an interface, its bindings, its sessions and the
// routes to it. It is false when there is none; local0 cannot be removed.
func (s *Switch) RemoveInterface(swIfIndex uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removePort(swIfIndex)
}

// addPort gives a new port its index; the lock is held.
func (s *Switch) addPort(p *port) {
	p.index = s.ports.Next()
	s.generation++
	p.bindings = [2]binding{{gen: s.generation}, {gen: s.generation}}
	p.sessions = newPortSessions()
	s.ports.Put(p)
	s.portNames[p.name] = p.index
	s.publish()
}

func (s *Switch) removePort(index uint32) bool {
	p := s.ports.Get(index)
	if p == nil || index == 0 {
		return false
	}
	for _, dir := range []api.Direction{api.Ingress, api.Egress} {
		for _, a := range p.bindings[dir].acls {
			delete(s.uses[a.index], use{index, dir})
		}
	}
	s.ports.Remove(index)
	delete(s.portNames, p.name)
	s.removeRoutesTo(index)
	s.publish()
	s.sessions.removePort(p.sessions)
	s.notify(index, false, true)
	return true
}

// changePort replaces a port by a changed copy; the lock is held.
func (s *Switch) changePort(index uint32, change func(*port)) {
	p := *s.ports.Get(index)
	change(&p)
	s.ports.Set(index, &p)
	s.publish()
}

func (s *Switch) setPortUp(index uint32, up bool) govpp.VPPApiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports.Get(index)
	if p == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	if p.up != up {
		s.changePort(index, func(p *port) { p.up = up })
		s.notify(index, up, false)
	}
	return 0
}

func (s *Switch) setPortTag(index uint32, tag string) govpp.VPPApiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports.Get(index) == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	s.changePort(index, func(p *port) { p.tag = tag })
	return 0
}

// addLoopback creates an interface loopN that is down, as VPP does. instance is
// negative for the lowest that is free.
func (s *Switch) addLoopback(instance int64) (uint32, govpp.VPPApiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := max(instance, 0)
	_, taken := s.portNames[loopbackName(n)]
	for taken && instance < 0 {
		n++
		_, taken = s.portNames[loopbackName(n)]
	}
	if taken {
		return ^uint32(0), govpp.INVALID_REGISTRATION
	}
	p := &port{name: loopbackName(n), kind: kindLoopback}
	s.addPort(p)
	return p.index, 0
}

func loopbackName(instance int64) string { return fmt.Sprintf("loop%d", instance) }

func (s *Switch) deleteLoopback(index uint32) govpp.VPPApiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.ports.Get(index); p == nil || p.kind != kindLoopback {
		return govpp.INVALID_SW_IF_INDEX
	}
	s.removePort(index)
	return 0
}

// notify tells the clients that want interface events; the lock is held.
func (s *Switch) notify(index uint32, up, deleted bool) {
	s.server.notify(func(pid uint32) govpp.Message {
		return &interfaces.SwInterfaceEvent{
			PID: pid, SwIfIndex: interface_types.InterfaceIndex(index), Flags: statusFlags(up), Deleted: deleted,
		}
	})
}

func statusFlags(up bool) interface_types.IfStatusFlags {
	if !up {
		return 0
	}
	return interface_types.IF_STATUS_API_FLAG_ADMIN_UP | interface_types.IF_STATUS_API_FLAG_LINK_UP
}
