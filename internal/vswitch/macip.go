package vswitch

import (
	"net/netip"
	"slices"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
)

// macip is a list of sources. Packets have no Ethernet addresses here: only those of IP count.
type macip struct {
	tag   string
	rules []acl_types.MacipACLRule
}

// permits reports what the first rule says that is about a source; without one, as VPP, no.
func (m *macip) permits(src netip.Addr) bool {
	i := slices.IndexFunc(m.rules, func(r acl_types.MacipACLRule) bool {
		p, ok := prefixFromWire(r.SrcPrefix)
		return ok && p.Contains(src)
	})
	return i >= 0 && m.rules[i].IsPermit == acl_types.ACL_ACTION_API_PERMIT
}

func macipMessages() []*message {
	return []*message{
		request((*client).macipAdd), reply(new(acl.MacipACLAddReply)),
		request((*client).macipDel), reply(new(acl.MacipACLDelReply)),
		request((*client).macipDump), reply(new(acl.MacipACLDetails)),
		request((*client).macipInterfaceAddDel), reply(new(acl.MacipACLInterfaceAddDelReply)),
		request((*client).macipInterfaceListDump), reply(new(acl.MacipACLInterfaceListDetails)),
	}
}

func (c *client) macipAdd(m *acl.MacipACLAdd, reply func(govpp.Message)) {
	s := c.sw
	s.mu.Lock()
	defer s.mu.Unlock()
	index := s.macips.next()
	s.macips.put(&macip{tag: m.Tag, rules: m.R})
	reply(&acl.MacipACLAddReply{ACLIndex: index})
}

// macipDel takes the list from the interfaces that have it, as VPP does.
func (c *client) macipDel(m *acl.MacipACLDel, reply func(govpp.Message)) {
	s := c.sw
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.macips.get(m.ACLIndex)
	if gone == nil {
		reply(&acl.MacipACLDelReply{Retval: int32(govpp.NO_SUCH_ENTRY)})
		return
	}
	for index, p := range s.ports.all() {
		if p.sources == gone {
			s.changePort(index, func(p *port) { p.sources = nil })
		}
	}
	s.macips.remove(m.ACLIndex)
	reply(&acl.MacipACLDelReply{})
}

func (c *client) macipDump(m *acl.MacipACLDump, reply func(govpp.Message)) {
	c.sw.mu.Lock()
	defer c.sw.mu.Unlock()
	for index, l := range c.sw.macips.all() {
		if m.ACLIndex == newACLIndex || m.ACLIndex == index {
			reply(&acl.MacipACLDetails{ACLIndex: index, Tag: l.tag, Count: uint32(len(l.rules)), R: l.rules})
		}
	}
}

func (c *client) macipInterfaceAddDel(m *acl.MacipACLInterfaceAddDel, reply func(govpp.Message)) {
	s := c.sw
	s.mu.Lock()
	defer s.mu.Unlock()
	l, p := s.macips.get(m.ACLIndex), s.ports.get(uint32(m.SwIfIndex))
	switch {
	case p == nil:
		reply(&acl.MacipACLInterfaceAddDelReply{Retval: int32(govpp.INVALID_SW_IF_INDEX)})
		return
	case l == nil:
		reply(&acl.MacipACLInterfaceAddDelReply{Retval: int32(govpp.NO_SUCH_ENTRY)})
		return
	case !m.IsAdd:
		l = nil
	}
	s.changePort(p.index, func(p *port) { p.sources = l })
	reply(&acl.MacipACLInterfaceAddDelReply{})
}

func (c *client) macipInterfaceListDump(m *acl.MacipACLInterfaceListDump, reply func(govpp.Message)) {
	c.sw.mu.Lock()
	defer c.sw.mu.Unlock()
	for index, l := range c.sw.macips.all() {
		for at, p := range c.sw.ports.all() {
			if p.sources == l && (uint32(m.SwIfIndex) == allPorts || uint32(m.SwIfIndex) == at) {
				reply(&acl.MacipACLInterfaceListDetails{SwIfIndex: interface_types.InterfaceIndex(at), Count: 1, Acls: []uint32{index}})
			}
		}
	}
}
