package vswitch

import (
	"time"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/api"
)

// The version of the ACL plugin that is emulated.
const (
	aclPluginMajor = 1
	aclPluginMinor = 4
)

// aclHandlers handle the requests of the ACL plugin.
type aclHandlers struct {
	acls  *aclTable
	clock func() time.Time
}

func (h aclHandlers) messages() []*message {
	return []*message{
		request(h.getVersion), reply(new(acl.ACLPluginGetVersionReply)),
		clientRequest(h.controlPing), reply(new(acl.ACLPluginControlPingReply)),
		request(h.connTableMaxEntries), reply(new(acl.ACLPluginGetConnTableMaxEntriesReply)),
		request(h.addReplace), reply(new(acl.ACLAddReplaceReply)),
		request(h.del), reply(new(acl.ACLDelReply)),
		request(h.interfaceAddDel), reply(new(acl.ACLInterfaceAddDelReply)),
		request(h.interfaceSetList), reply(new(acl.ACLInterfaceSetACLListReply)),
		request(h.dump), reply(new(acl.ACLDetails)),
		request(h.interfaceListDump), reply(new(acl.ACLInterfaceListDetails)),
		request(h.setEtypes), reply(new(acl.ACLInterfaceSetEtypeWhitelistReply)),
		request(h.etypesDump), reply(new(acl.ACLInterfaceEtypeWhitelistDetails)),
		request(h.statsEnable), reply(new(acl.ACLStatsIntfCountersEnableReply)),
		request(h.hashLookupSet), reply(new(acl.ACLPluginUseHashLookupSetReply)),
		request(h.hashLookupGet), reply(new(acl.ACLPluginUseHashLookupGetReply)),
	}
}

func (h aclHandlers) getVersion(_ *acl.ACLPluginGetVersion, reply func(govpp.Message)) {
	reply(&acl.ACLPluginGetVersionReply{Major: aclPluginMajor, Minor: aclPluginMinor})
}

func (h aclHandlers) controlPing(c *client, _ *acl.ACLPluginControlPing, reply func(govpp.Message)) {
	reply(&acl.ACLPluginControlPingReply{ClientIndex: c.index, VpePID: pid()})
}

func (h aclHandlers) connTableMaxEntries(_ *acl.ACLPluginGetConnTableMaxEntries, reply func(govpp.Message)) {
	_, _, limit := h.acls.sessions.fill(h.clock())
	reply(&acl.ACLPluginGetConnTableMaxEntriesReply{ConnTableMaxEntries: uint64(limit)})
}

func (h aclHandlers) addReplace(m *acl.ACLAddReplace, reply func(govpp.Message)) {
	h.acls.changes.Add(1)
	index, rv := h.acls.addReplace(m)
	reply(&acl.ACLAddReplaceReply{ACLIndex: index, Retval: int32(rv)})
}

func (h aclHandlers) del(m *acl.ACLDel, reply func(govpp.Message)) {
	h.acls.changes.Add(1)
	reply(&acl.ACLDelReply{Retval: int32(h.acls.deleteACL(m.ACLIndex))})
}

func (h aclHandlers) interfaceAddDel(m *acl.ACLInterfaceAddDel, reply func(govpp.Message)) {
	h.acls.changes.Add(1)
	dir := api.Egress
	if m.IsInput {
		dir = api.Ingress
	}
	change := h.acls.removeBinding
	if m.IsAdd {
		change = h.acls.addBinding
	}
	reply(&acl.ACLInterfaceAddDelReply{Retval: int32(change(use{uint32(m.SwIfIndex), dir}, m.ACLIndex))})
}

func (h aclHandlers) interfaceSetList(m *acl.ACLInterfaceSetACLList, reply func(govpp.Message)) {
	h.acls.changes.Add(1)
	inputs := min(int(m.NInput), len(m.Acls))
	rv := h.acls.setList(uint32(m.SwIfIndex), m.Acls[:inputs], m.Acls[inputs:])
	reply(&acl.ACLInterfaceSetACLListReply{Retval: int32(rv)})
}

// dump returns all ACLs or one; nothing if it does not exist.
func (h aclHandlers) dump(m *acl.ACLDump, reply func(govpp.Message)) {
	for _, a := range h.acls.matching(m.ACLIndex) {
		reply(&acl.ACLDetails{ACLIndex: a.index, Tag: a.tag, Count: uint32(len(a.rules)), R: a.rules})
	}
}

func (h aclHandlers) interfaceListDump(m *acl.ACLInterfaceListDump, reply func(govpp.Message)) {
	for _, p := range h.acls.ports.matching(uint32(m.SwIfIndex)) {
		in, out := p.bindings[api.Ingress].indices(), p.bindings[api.Egress].indices()
		reply(&acl.ACLInterfaceListDetails{
			SwIfIndex: interface_types.InterfaceIndex(p.index),
			Count:     uint8(len(in) + len(out)), NInput: uint8(len(in)), Acls: append(in, out...),
		})
	}
}

func (h aclHandlers) setEtypes(m *acl.ACLInterfaceSetEtypeWhitelist, reply func(govpp.Message)) {
	inputs := min(int(m.NInput), len(m.Whitelist))
	rv := h.acls.ports.update(uint32(m.SwIfIndex), func(p *port) {
		p.etypes = [2][]uint16{api.Ingress: m.Whitelist[:inputs], api.Egress: m.Whitelist[inputs:]}
	})
	reply(&acl.ACLInterfaceSetEtypeWhitelistReply{Retval: int32(rv)})
}

// etypesDump lists the interfaces that have a whitelist.
func (h aclHandlers) etypesDump(m *acl.ACLInterfaceEtypeWhitelistDump, reply func(govpp.Message)) {
	for _, p := range h.acls.ports.matching(uint32(m.SwIfIndex)) {
		in, out := p.etypes[api.Ingress], p.etypes[api.Egress]
		list := append(append([]uint16(nil), in...), out...)
		if len(list) == 0 {
			continue
		}
		reply(&acl.ACLInterfaceEtypeWhitelistDetails{
			SwIfIndex: interface_types.InterfaceIndex(p.index),
			Count:     uint8(len(list)), NInput: uint8(len(in)), Whitelist: list,
		})
	}
}

// statsEnable changes nothing: packets are always counted. Its answer has the right id, while VPP
// uses that of another message.
func (h aclHandlers) statsEnable(_ *acl.ACLStatsIntfCountersEnable, reply func(govpp.Message)) {
	reply(&acl.ACLStatsIntfCountersEnableReply{})
}

// hashLookupSet stores the setting, which has no effect: there is only one kind of lookup here.
func (h aclHandlers) hashLookupSet(m *acl.ACLPluginUseHashLookupSet, reply func(govpp.Message)) {
	h.acls.hashLookup.Store(m.Enable)
	reply(&acl.ACLPluginUseHashLookupSetReply{})
}

func (h aclHandlers) hashLookupGet(_ *acl.ACLPluginUseHashLookupGet, reply func(govpp.Message)) {
	reply(&acl.ACLPluginUseHashLookupGetReply{Enable: h.acls.hashLookup.Load()})
}
