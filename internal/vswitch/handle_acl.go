package vswitch

import (
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/wire"
)

// The version of the ACL plugin whose behaviour is followed.
const (
	aclPluginMajor = 1
	aclPluginMinor = 4
)

// aclHandlers answer the requests of the ACL plugin.
type aclHandlers struct{ sw *Switch }

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
	_, _, limit := h.sw.sessions.fill(h.sw.clock())
	reply(&acl.ACLPluginGetConnTableMaxEntriesReply{ConnTableMaxEntries: uint64(limit)})
}

func (h aclHandlers) addReplace(m *acl.ACLAddReplace, reply func(govpp.Message)) {
	index, rv := h.sw.aclAddReplace(m)
	reply(&acl.ACLAddReplaceReply{ACLIndex: index, Retval: int32(rv)})
}

func (s *Switch) aclAddReplace(m *acl.ACLAddReplace) (uint32, govpp.VPPApiError) {
	if len(m.Tag) > wire.MaxName { // no NUL within the field
		return m.ACLIndex, govpp.INVALID_VALUE
	}
	rules, rv := rulesFromWire(m.R, s.quirks)
	if rv != 0 {
		return m.ACLIndex, rv
	}
	if m.ACLIndex != newACLIndex && s.acl(m.ACLIndex) == nil {
		return m.ACLIndex, govpp.NO_SUCH_ENTRY
	}
	return s.putACL(m.ACLIndex, newACL(m.Tag, rules))
}

func (s *Switch) acl(index uint32) *accessList {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acls.Get(index)
}

func (h aclHandlers) del(m *acl.ACLDel, reply func(govpp.Message)) {
	reply(&acl.ACLDelReply{Retval: int32(h.sw.deleteACL(m.ACLIndex))})
}

func (h aclHandlers) interfaceAddDel(m *acl.ACLInterfaceAddDel, reply func(govpp.Message)) {
	dir := api.Egress
	if m.IsInput {
		dir = api.Ingress
	}
	change := h.sw.removeBinding
	if m.IsAdd {
		change = h.sw.addBinding
	}
	reply(&acl.ACLInterfaceAddDelReply{Retval: int32(change(uint32(m.SwIfIndex), dir, m.ACLIndex))})
}

func (h aclHandlers) interfaceSetList(m *acl.ACLInterfaceSetACLList, reply func(govpp.Message)) {
	inputs := min(int(m.NInput), len(m.Acls))
	rv := h.sw.setACLList(uint32(m.SwIfIndex), m.Acls[:inputs], m.Acls[inputs:])
	reply(&acl.ACLInterfaceSetACLListReply{Retval: int32(rv)})
}

// dump answers with all ACLs or with one; with none if it does not exist.
func (h aclHandlers) dump(m *acl.ACLDump, reply func(govpp.Message)) {
	for _, a := range h.sw.aclsOf(m.ACLIndex) {
		reply(&acl.ACLDetails{ACLIndex: a.index, Tag: a.tag, Count: uint32(len(a.rules)), R: rulesToWire(a.rules)})
	}
}

// aclsOf returns one ACL or, for newACLIndex, all of them.
func (s *Switch) aclsOf(index uint32) []*accessList {
	s.mu.Lock()
	defer s.mu.Unlock()
	if index != newACLIndex {
		if a := s.acls.Get(index); a != nil {
			return []*accessList{a}
		}
		return nil
	}
	var list []*accessList
	for _, a := range s.acls.All() {
		list = append(list, a)
	}
	return list
}

// allPorts stands for all interfaces in dumps.
const allPorts = ^uint32(0)

// portsOf returns one interface or, for allPorts, all of them.
func (s *Switch) portsOf(index uint32) []*port {
	v := s.view.Load()
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

func (h aclHandlers) interfaceListDump(m *acl.ACLInterfaceListDump, reply func(govpp.Message)) {
	for _, p := range h.sw.portsOf(uint32(m.SwIfIndex)) {
		in, out := p.bindings[api.Ingress].indices(), p.bindings[api.Egress].indices()
		reply(&acl.ACLInterfaceListDetails{
			SwIfIndex: interface_types.InterfaceIndex(p.index),
			Count:     uint8(len(in) + len(out)), NInput: uint8(len(in)), Acls: append(in, out...),
		})
	}
}

func (h aclHandlers) setEtypes(m *acl.ACLInterfaceSetEtypeWhitelist, reply func(govpp.Message)) {
	inputs := min(int(m.NInput), len(m.Whitelist))
	rv := h.sw.setEtypes(uint32(m.SwIfIndex), [2][]uint16{
		api.Ingress: m.Whitelist[:inputs], api.Egress: m.Whitelist[inputs:],
	})
	reply(&acl.ACLInterfaceSetEtypeWhitelistReply{Retval: int32(rv)})
}

func (s *Switch) setEtypes(index uint32, etypes [2][]uint16) govpp.VPPApiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports.Get(index) == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	s.changePort(index, func(p *port) { p.etypes = etypes })
	return 0
}

// etypesDump lists the interfaces that have a whitelist.
func (h aclHandlers) etypesDump(m *acl.ACLInterfaceEtypeWhitelistDump, reply func(govpp.Message)) {
	for _, p := range h.sw.portsOf(uint32(m.SwIfIndex)) {
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

// statsEnable has nothing to switch: rules are always counted. The answer has
// its own id, where VPP has that of another message.
func (h aclHandlers) statsEnable(_ *acl.ACLStatsIntfCountersEnable, reply func(govpp.Message)) {
	reply(&acl.ACLStatsIntfCountersEnableReply{})
}

// hashLookupSet remembers the setting; there is only one way to look up here.
func (h aclHandlers) hashLookupSet(m *acl.ACLPluginUseHashLookupSet, reply func(govpp.Message)) {
	h.sw.set(func(s *Switch) { s.hashLookup = m.Enable })
	reply(&acl.ACLPluginUseHashLookupSetReply{})
}

func (h aclHandlers) hashLookupGet(_ *acl.ACLPluginUseHashLookupGet, reply func(govpp.Message)) {
	var on bool
	h.sw.set(func(s *Switch) { on = s.hashLookup })
	reply(&acl.ACLPluginUseHashLookupGetReply{Enable: on})
}

// set reads or changes settings under the lock.
func (s *Switch) set(f func(*Switch)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}
