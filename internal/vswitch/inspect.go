package vswitch

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
)

// Interface describes an interface.
type Interface struct {
	Index   uint32   `json:"index"`
	Name    string   `json:"name"`
	Tag     string   `json:"tag,omitempty"`
	Kind    string   `json:"kind"` // the device type
	Up      bool     `json:"up"`
	Inputs  []uint32 `json:"inputs,omitempty"`  // indices of the ACLs on ingress, in order
	Outputs []uint32 `json:"outputs,omitempty"` // of those on egress
}

// Interfaces returns all interfaces by index.
func (t *portTable) Interfaces() []Interface {
	var list []Interface
	for _, p := range t.matching(allPorts) {
		list = append(list, Interface{
			Index: p.index, Name: p.name, Tag: p.tag, Kind: p.kind, Up: p.up,
			Inputs: p.bindings[api.Ingress].indices(), Outputs: p.bindings[api.Egress].indices(),
		})
	}
	return list
}

// Route is one entry of the routing table.
type Route struct {
	Prefix    string `json:"prefix"`
	SwIfIndex uint32 `json:"swIfIndex"`
}

// Routes returns the routing table in the order of its prefixes, IPv4 first.
func (t *portTable) Routes() []Route {
	var list []Route
	for prefix, index := range t.view.Load().routes.AllSorted() {
		list = append(list, Route{Prefix: prefix.String(), SwIfIndex: index})
	}
	return list
}

// ACL describes an ACL without its rules.
type ACL struct {
	Index   uint32   `json:"index"`
	Tag     string   `json:"tag"`
	Rules   int      `json:"rules"`
	Inputs  []uint32 `json:"inputs,omitempty"`  // interfaces with it on ingress, sorted
	Outputs []uint32 `json:"outputs,omitempty"` // on egress
}

// Changes returns how many calls have changed ACLs, or what interfaces have of them.
func (t *aclTable) Changes() uint64 { return t.changes.Load() }

// ACLs returns all ACLs by index.
func (t *aclTable) ACLs() []ACL {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	var list []ACL
	for i, a := range t.lists.All() {
		x := ACL{Index: i, Tag: a.tag, Rules: len(a.rules)}
		for u := range t.ports.uses[i] {
			if u.dir == api.Ingress {
				x.Inputs = append(x.Inputs, u.port)
			} else {
				x.Outputs = append(x.Outputs, u.port)
			}
		}
		slices.Sort(x.Inputs)
		slices.Sort(x.Outputs)
		list = append(list, x)
	}
	return list
}

// Rules returns the rules of an ACL in order. ok is false if the ACL does not exist.
func (t *aclTable) Rules(aclIndex uint32) (rules []Rule, ok bool) {
	a := t.get(aclIndex)
	if a == nil {
		return nil, false
	}
	for i := range a.rules {
		rules = append(rules, a.rule(i))
	}
	return rules, true
}

// Counters returns for each rule of an ACL how many packets it decided since the ACL was created or
// replaced, over all interfaces. Packets of a session count only when they create it. ok is false
// if the ACL does not exist.
func (t *aclTable) Counters(aclIndex uint32) (hits []uint64, ok bool) {
	a := t.get(aclIndex)
	if a == nil {
		return nil, false
	}
	hits = make([]uint64, len(a.hits))
	for i := range a.hits {
		hits[i] = a.hits[i].Load()
	}
	return hits, true
}

// Session describes one session of an interface.
type Session struct {
	SwIfIndex uint32        `json:"swIfIndex"`
	Interface string        `json:"interface"`
	Owner     api.Direction `json:"owner"` // direction of the packet that created it
	First     Packet        `json:"first"` // that packet
	State     string        `json:"state"`
	ACLIndex  uint32        `json:"aclIndex"` // what created it
	Rule      int           `json:"rule"`
	LastUsed  time.Time     `json:"lastUsed"`
	Expires   time.Time     `json:"expires"`
}

// Sessions returns the sessions that have not expired, by interface and flow.
func (s *Switch) Sessions() []Session {
	now := s.clock()
	var list []Session
	for _, p := range s.portTable.matching(allPorts) {
		start := len(list)
		list = s.sessions.appendPort(list, p, now)
		slices.SortFunc(list[start:], func(a, b Session) int { return a.First.compare(b.First) })
	}
	return list
}

func (st *sessionTable) appendPort(list []Session, p *port, now time.Time) []Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, s := range p.sessions.sessions {
		if st.expired(s, now) {
			continue
		}
		t := s.key.tuple(s.owner, s.flags)
		list = append(list, Session{
			SwIfIndex: p.index, Interface: p.name, Owner: s.owner, First: packetOf(t), State: s.state.String(),
			ACLIndex: s.acl.index, Rule: int(s.rule), LastUsed: s.last, Expires: s.last.Add(st.timeouts[s.state]),
		})
	}
	return list
}

// packetOf is the inverse of Packet.tuple.
func packetOf(t tuple) Packet {
	p := Packet{Src: t.Src, Dst: t.Dst, Protocol: t.Protocol, TCPFlags: t.Flags, NonFirstFragment: t.Fragment}
	if t.Protocol == api.ICMP || t.Protocol == api.ICMPv6 {
		p.ICMPType, p.ICMPCode = uint8(t.SrcPort), uint8(t.DstPort)
	} else {
		p.SrcPort, p.DstPort = t.SrcPort, t.DstPort
	}
	return p
}

func (p Packet) compare(o Packet) int {
	return cmp.Or(p.Src.Compare(o.Src), p.Dst.Compare(o.Dst), cmp.Compare(p.Protocol, o.Protocol),
		cmp.Compare(p.SrcPort, o.SrcPort), cmp.Compare(p.DstPort, o.DstPort),
		cmp.Compare(p.ICMPType, o.ICMPType), cmp.Compare(p.ICMPCode, o.ICMPCode))
}

// ClearSessions removes all sessions.
func (s *Switch) ClearSessions() { s.sessions.clear() }
