package vswitch

import (
	"net/netip"
	"slices"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/internal/vswitch/internal/wire"
)

// macip is a list of sources. Packets have no Ethernet addresses here: only those of IP count.
type macip struct {
	tag   string
	rules []acl_types.MacipACLRule
}

// permits reports what the first rule says that is about a source; without one, as VPP, no.
func (m *macip) permits(src netip.Addr) bool {
	i := slices.IndexFunc(m.rules, func(r acl_types.MacipACLRule) bool {
		p, ok := wire.ReadPrefix(r.SrcPrefix)
		return ok && p.Contains(src)
	})
	return i >= 0 && m.rules[i].IsPermit == acl_types.ACL_ACTION_API_PERMIT
}

// macipHandlers answer the requests of the ACL plugin about lists of sources.
type macipHandlers struct{ sw *Switch }

func (h macipHandlers) messages() []*message {
	return []*message{
		request(h.add), reply(new(acl.MacipACLAddReply)),
		request(h.del), reply(new(acl.MacipACLDelReply)),
		request(h.dump), reply(new(acl.MacipACLDetails)),
		request(h.interfaceAddDel), reply(new(acl.MacipACLInterfaceAddDelReply)),
		request(h.interfaceListDump), reply(new(acl.MacipACLInterfaceListDetails)),
	}
}

func (h macipHandlers) add(m *acl.MacipACLAdd, reply func(govpp.Message)) {
	s := h.sw
	s.mu.Lock()
	defer s.mu.Unlock()
	index := s.macips.Next()
	s.macips.Put(&macip{tag: m.Tag, rules: m.R})
	reply(&acl.MacipACLAddReply{ACLIndex: index})
}

// del takes the list from the interfaces that have it, as VPP does.
func (h macipHandlers) del(m *acl.MacipACLDel, reply func(govpp.Message)) {
	s := h.sw
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.macips.Get(m.ACLIndex)
	if gone == nil {
		reply(&acl.MacipACLDelReply{Retval: int32(govpp.NO_SUCH_ENTRY)})
		return
	}
	for index, p := range s.ports.All() {
		if p.sources == gone {
			s.changePort(index, func(p *port) { p.sources = nil })
		}
	}
	s.macips.Remove(m.ACLIndex)
	reply(&acl.MacipACLDelReply{})
}

func (h macipHandlers) dump(m *acl.MacipACLDump, reply func(govpp.Message)) {
	h.sw.mu.Lock()
	defer h.sw.mu.Unlock()
	for index, l := range h.sw.macips.All() {
		if m.ACLIndex == newACLIndex || m.ACLIndex == index {
			reply(&acl.MacipACLDetails{ACLIndex: index, Tag: l.tag, Count: uint32(len(l.rules)), R: l.rules})
		}
	}
}

func (h macipHandlers) interfaceAddDel(m *acl.MacipACLInterfaceAddDel, reply func(govpp.Message)) {
	s := h.sw
	s.mu.Lock()
	defer s.mu.Unlock()
	l, p := s.macips.Get(m.ACLIndex), s.ports.Get(uint32(m.SwIfIndex))
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

func (h macipHandlers) interfaceListDump(m *acl.MacipACLInterfaceListDump, reply func(govpp.Message)) {
	h.sw.mu.Lock()
	defer h.sw.mu.Unlock()
	for index, l := range h.sw.macips.All() {
		for at, p := range h.sw.ports.All() {
			if p.sources == l && (uint32(m.SwIfIndex) == allPorts || uint32(m.SwIfIndex) == at) {
				reply(&acl.MacipACLInterfaceListDetails{SwIfIndex: interface_types.InterfaceIndex(at), Count: 1, Acls: []uint32{index}})
			}
		}
	}
}
