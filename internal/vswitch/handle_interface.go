package vswitch

import (
	"encoding/binary"
	"strings"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/internal/vswitch/internal/wire"
)

// interfaceHandlers handle the requests about interfaces.
type interfaceHandlers struct{ ports *portTable }

func (h interfaceHandlers) messages() []*message {
	return []*message{
		request(h.dump), reply(new(interfaces.SwInterfaceDetails)),
		request(h.setFlags), reply(new(interfaces.SwInterfaceSetFlagsReply)),
		request(h.tagAddDel), reply(new(interfaces.SwInterfaceTagAddDelReply)),
		request(h.createLoopback), reply(new(interfaces.CreateLoopbackReply)),
		request(h.createLoopbackInstance), reply(new(interfaces.CreateLoopbackInstanceReply)),
		request(h.deleteLoopback), reply(new(interfaces.DeleteLoopbackReply)),
		clientRequest(h.wantEvents), reply(new(interfaces.WantInterfaceEventsReply)),
		reply(new(interfaces.SwInterfaceEvent)),
	}
}

// dump returns all interfaces for index 0, like VPP, and filters by a part of the name in any case.
func (h interfaceHandlers) dump(m *interfaces.SwInterfaceDump, reply func(govpp.Message)) {
	index := uint32(m.SwIfIndex)
	if index == 0 || m.NameFilterValid {
		index = allPorts
	}
	filter, _, _ := strings.Cut(strings.ToLower(m.NameFilter), "\x00")
	for _, p := range h.ports.matching(index) {
		if !m.NameFilterValid || strings.Contains(strings.ToLower(p.name), filter) {
			reply(p.details())
		}
	}
}

func (p *port) details() *interfaces.SwInterfaceDetails {
	const mtu = 9000
	d := &interfaces.SwInterfaceDetails{
		SwIfIndex: interface_types.InterfaceIndex(p.index), SupSwIfIndex: p.index,
		Flags: statusFlags(p.up), Type: interface_types.IF_API_TYPE_HARDWARE,
		LinkMtu: mtu, Mtu: []uint32{mtu, 0, 0, 0},
		InterfaceName: wire.Cut(p.name, wire.MaxName), InterfaceDevType: p.kind, Tag: wire.Cut(p.tag, wire.MaxName),
	}
	if p.index != 0 {
		d.L2Address = p.mac()
	}
	return d
}

// mac returns a locally administered address derived from the index.
func (p *port) mac() (mac ethernet_types.MacAddress) {
	mac[0], mac[1] = 0x02, 0xfe
	binary.BigEndian.PutUint32(mac[2:], p.index)
	return mac
}

func (h interfaceHandlers) setFlags(m *interfaces.SwInterfaceSetFlags, reply func(govpp.Message)) {
	up := m.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0
	reply(&interfaces.SwInterfaceSetFlagsReply{Retval: int32(h.ports.setUp(uint32(m.SwIfIndex), up))})
}

func (h interfaceHandlers) tagAddDel(m *interfaces.SwInterfaceTagAddDel, reply func(govpp.Message)) {
	tag := wire.Cut(m.Tag, wire.MaxName)
	if !m.IsAdd {
		tag = ""
	}
	rv := h.ports.update(uint32(m.SwIfIndex), func(p *port) { p.tag = tag })
	reply(&interfaces.SwInterfaceTagAddDelReply{Retval: int32(rv)})
}

// createLoopback ignores the MAC address: there is no L2 here.
func (h interfaceHandlers) createLoopback(_ *interfaces.CreateLoopback, reply func(govpp.Message)) {
	index, rv := h.ports.addLoopback(-1)
	reply(&interfaces.CreateLoopbackReply{Retval: int32(rv), SwIfIndex: interface_types.InterfaceIndex(index)})
}

func (h interfaceHandlers) createLoopbackInstance(m *interfaces.CreateLoopbackInstance, reply func(govpp.Message)) {
	instance := int64(-1)
	if m.IsSpecified {
		instance = int64(m.UserInstance)
	}
	index, rv := h.ports.addLoopback(instance)
	reply(&interfaces.CreateLoopbackInstanceReply{Retval: int32(rv), SwIfIndex: interface_types.InterfaceIndex(index)})
}

func (h interfaceHandlers) deleteLoopback(m *interfaces.DeleteLoopback, reply func(govpp.Message)) {
	reply(&interfaces.DeleteLoopbackReply{Retval: int32(h.ports.deleteLoopback(uint32(m.SwIfIndex)))})
}

// wantEvents returns an error if it would change nothing, as VPP does.
func (h interfaceHandlers) wantEvents(c *client, m *interfaces.WantInterfaceEvents, reply func(govpp.Message)) {
	var rv govpp.VPPApiError
	if !c.server.wantEvents(c, m.EnableDisable != 0, m.PID) {
		rv = govpp.INVALID_REGISTRATION
	}
	reply(&interfaces.WantInterfaceEventsReply{Retval: int32(rv)})
}

// notifyInterface notifies the subscribed clients of a change of an interface.
func (s *server) notifyInterface(index uint32, up, deleted bool) {
	s.notify(func(pid uint32) govpp.Message {
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
