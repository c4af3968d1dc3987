package vswitch

import (
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/api"
)

// The version of the ACL plugin whose behaviour is followed.
const (
	aclPluginMajor = 1
	aclPluginMinor = 4
)

func aclMessages() []*message {
	return []*message{
		request((*client).aclGetVersion), reply(new(acl.ACLPluginGetVersionReply)),
		request((*client).aclControlPing), reply(new(acl.ACLPluginControlPingReply)),
		request((*client).aclConnTableMaxEntries), reply(new(acl.ACLPluginGetConnTableMaxEntriesReply)),
		request((*client).aclAddReplace), reply(new(acl.ACLAddReplaceReply)),
		request((*client).aclDel), reply(new(acl.ACLDelReply)),
		request((*client).aclInterfaceAddDel), reply(new(acl.ACLInterfaceAddDelReply)),
		request((*client).aclInterfaceSetList), reply(new(acl.ACLInterfaceSetACLListReply)),
		request((*client).aclDump), reply(new(acl.ACLDetails)),
		request((*client).aclInterfaceListDump), reply(new(acl.ACLInterfaceListDetails)),
		request((*client).aclSetEtypes), reply(new(acl.ACLInterfaceSetEtypeWhitelistReply)),
		request((*client).aclEtypesDump), reply(new(acl.ACLInterfaceEtypeWhitelistDetails)),
		request((*client).aclStatsEnable), reply(new(acl.ACLStatsIntfCountersEnableReply)),
		request((*client).aclHashLookupSet), reply(new(acl.ACLPluginUseHashLookupSetReply)),
		request((*client).aclHashLookupGet), reply(new(acl.ACLPluginUseHashLookupGetReply)),
	}
}

func (c *client) aclGetVersion(_ *acl.ACLPluginGetVersion, reply func(govpp.Message)) {
	reply(&acl.ACLPluginGetVersionReply{Major: aclPluginMajor, Minor: aclPluginMinor})
}

func (c *client) aclControlPing(_ *acl.ACLPluginControlPing, reply func(govpp.Message)) {
	reply(&acl.ACLPluginControlPingReply{ClientIndex: c.index, VpePID: pid()})
}

func (c *client) aclConnTableMaxEntries(_ *acl.ACLPluginGetConnTableMaxEntries, reply func(govpp.Message)) {
	_, _, limit := c.sw.sessions.fill(c.sw.clock())
	reply(&acl.ACLPluginGetConnTableMaxEntriesReply{ConnTableMaxEntries: uint64(limit)})
}

func (c *client) aclAddReplace(m *acl.ACLAddReplace, reply func(govpp.Message)) {
	index, rv := c.sw.aclAddReplace(m)
	reply(&acl.ACLAddReplaceReply{ACLIndex: index, Retval: int32(rv)})
}

func (s *Switch) aclAddReplace(m *acl.ACLAddReplace) (uint32, govpp.VPPApiError) {
	if len(m.Tag) > maxName { // no NUL within the field
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
	return s.acls.get(index)
}

func (c *client) aclDel(m *acl.ACLDel, reply func(govpp.Message)) {
	reply(&acl.ACLDelReply{Retval: int32(c.sw.deleteACL(m.ACLIndex))})
}

func (c *client) aclInterfaceAddDel(m *acl.ACLInterfaceAddDel, reply func(govpp.Message)) {
	dir := api.Egress
	if m.IsInput {
		dir = api.Ingress
	}
	change := c.sw.removeBinding
	if m.IsAdd {
		change = c.sw.addBinding
	}
	reply(&acl.ACLInterfaceAddDelReply{Retval: int32(change(uint32(m.SwIfIndex), dir, m.ACLIndex))})
}

func (c *client) aclInterfaceSetList(m *acl.ACLInterfaceSetACLList, reply func(govpp.Message)) {
	inputs := min(int(m.NInput), len(m.Acls))
	rv := c.sw.setACLList(uint32(m.SwIfIndex), m.Acls[:inputs], m.Acls[inputs:])
	reply(&acl.ACLInterfaceSetACLListReply{Retval: int32(rv)})
}

// aclDump answers with all ACLs or with one; with none if it does not exist.
func (c *client) aclDump(m *acl.ACLDump, reply func(govpp.Message)) {
	for _, a := range c.sw.aclsOf(m.ACLIndex) {
		reply(&acl.ACLDetails{ACLIndex: a.index, Tag: a.tag, Count: uint32(len(a.rules)), R: rulesToWire(a.rules)})
	}
}

// aclsOf returns one ACL or, for newACLIndex, all of them.
func (s *Switch) aclsOf(index uint32) []*accessList {
	s.mu.Lock()
	defer s.mu.Unlock()
	if index != newACLIndex {
		if a := s.acls.get(index); a != nil {
			return []*accessList{a}
		}
		return nil
	}
	var list []*accessList
	for _, a := range s.acls.all() {
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

func (c *client) aclInterfaceListDump(m *acl.ACLInterfaceListDump, reply func(govpp.Message)) {
	for _, p := range c.sw.portsOf(uint32(m.SwIfIndex)) {
		in, out := p.bindings[api.Ingress].indices(), p.bindings[api.Egress].indices()
		reply(&acl.ACLInterfaceListDetails{
			SwIfIndex: interface_types.InterfaceIndex(p.index),
			Count:     uint8(len(in) + len(out)), NInput: uint8(len(in)), Acls: append(in, out...),
		})
	}
}

func (c *client) aclSetEtypes(m *acl.ACLInterfaceSetEtypeWhitelist, reply func(govpp.Message)) {
	inputs := min(int(m.NInput), len(m.Whitelist))
	rv := c.sw.setEtypes(uint32(m.SwIfIndex), [2][]uint16{
		api.Ingress: m.Whitelist[:inputs], api.Egress: m.Whitelist[inputs:],
	})
	reply(&acl.ACLInterfaceSetEtypeWhitelistReply{Retval: int32(rv)})
}

func (s *Switch) setEtypes(index uint32, etypes [2][]uint16) govpp.VPPApiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports.get(index) == nil {
		return govpp.INVALID_SW_IF_INDEX
	}
	s.changePort(index, func(p *port) { p.etypes = etypes })
	return 0
}

// aclEtypesDump lists the interfaces that have a whitelist.
func (c *client) aclEtypesDump(m *acl.ACLInterfaceEtypeWhitelistDump, reply func(govpp.Message)) {
	for _, p := range c.sw.portsOf(uint32(m.SwIfIndex)) {
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

// aclStatsEnable has nothing to switch: rules are always counted. The answer has
// its own id, where VPP has that of another message.
func (c *client) aclStatsEnable(_ *acl.ACLStatsIntfCountersEnable, reply func(govpp.Message)) {
	reply(&acl.ACLStatsIntfCountersEnableReply{})
}

// aclHashLookupSet remembers the setting; there is only one way to look up here.
func (c *client) aclHashLookupSet(m *acl.ACLPluginUseHashLookupSet, reply func(govpp.Message)) {
	c.sw.set(func(s *Switch) { s.hashLookup = m.Enable })
	reply(&acl.ACLPluginUseHashLookupSetReply{})
}

func (c *client) aclHashLookupGet(_ *acl.ACLPluginUseHashLookupGet, reply func(govpp.Message)) {
	var on bool
	c.sw.set(func(s *Switch) { on = s.hashLookup })
	reply(&acl.ACLPluginUseHashLookupGetReply{Enable: on})
}

// set reads or changes settings under the lock.
func (s *Switch) set(f func(*Switch)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}
