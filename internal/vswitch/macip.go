package vswitch

import (
	"net/netip"
	"slices"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/internal/vswitch/internal/pool"
	"github.com/sluice-net/sluice/internal/vswitch/internal/wire"
)

// macip is a list of permitted sources. Packets have no Ethernet addresses here, so only IP
// addresses are checked.
type macip struct {
	tag   string
	rules []acl_types.MacipACLRule
}

// permits returns the action of the first rule that matches a source; without a match it denies,
// like VPP.
func (m *macip) permits(src netip.Addr) bool {
	i := slices.IndexFunc(m.rules, func(r acl_types.MacipACLRule) bool {
		p, ok := wire.ReadPrefix(r.SrcPrefix)
		return ok && p.Contains(src)
	})
	return i >= 0 && m.rules[i].IsPermit == acl_types.ACL_ACTION_API_PERMIT
}

// macipTable holds the MACIP ACLs of the ACL plugin, and handles requests about them. The lock of
// ports guards it.
type macipTable struct {
	ports *portTable
	lists pool.Pool[macip]
}

func (t *macipTable) messages() []*message {
	return []*message{
		request(t.add), reply(new(acl.MacipACLAddReply)),
		request(t.del), reply(new(acl.MacipACLDelReply)),
		request(t.dump), reply(new(acl.MacipACLDetails)),
		request(t.interfaceAddDel), reply(new(acl.MacipACLInterfaceAddDelReply)),
		request(t.interfaceListDump), reply(new(acl.MacipACLInterfaceListDetails)),
	}
}

func (t *macipTable) add(m *acl.MacipACLAdd, reply func(govpp.Message)) {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	index := t.lists.Next()
	t.lists.Put(&macip{tag: m.Tag, rules: m.R})
	reply(&acl.MacipACLAddReply{ACLIndex: index})
}

// del also removes the list from its interfaces, as VPP does.
func (t *macipTable) del(m *acl.MacipACLDel, reply func(govpp.Message)) {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	gone := t.lists.Get(m.ACLIndex)
	if gone == nil {
		reply(&acl.MacipACLDelReply{Retval: int32(govpp.NO_SUCH_ENTRY)})
		return
	}
	for index, p := range t.ports.table.All() {
		if p.sources == gone {
			t.ports.change(index, func(p *port) { p.sources = nil })
		}
	}
	t.lists.Remove(m.ACLIndex)
	reply(&acl.MacipACLDelReply{})
}

func (t *macipTable) dump(m *acl.MacipACLDump, reply func(govpp.Message)) {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	for index, l := range t.lists.All() {
		if m.ACLIndex == newACLIndex || m.ACLIndex == index {
			reply(&acl.MacipACLDetails{ACLIndex: index, Tag: l.tag, Count: uint32(len(l.rules)), R: l.rules})
		}
	}
}

func (t *macipTable) interfaceAddDel(m *acl.MacipACLInterfaceAddDel, reply func(govpp.Message)) {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	l, p := t.lists.Get(m.ACLIndex), t.ports.table.Get(uint32(m.SwIfIndex))
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
	t.ports.change(p.index, func(p *port) { p.sources = l })
	reply(&acl.MacipACLInterfaceAddDelReply{})
}

func (t *macipTable) interfaceListDump(m *acl.MacipACLInterfaceListDump, reply func(govpp.Message)) {
	t.ports.mu.Lock()
	defer t.ports.mu.Unlock()
	for index, l := range t.lists.All() {
		for at, p := range t.ports.table.All() {
			if p.sources == l && (uint32(m.SwIfIndex) == allPorts || uint32(m.SwIfIndex) == at) {
				reply(&acl.MacipACLInterfaceListDetails{SwIfIndex: interface_types.InterfaceIndex(at), Count: 1, Acls: []uint32{index}})
			}
		}
	}
}
