package vswitch

import (
	"encoding/binary"
	"os"
	"strings"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
)

func interfaceMessages() []*message {
	return []*message{
		request((*client).swInterfaceDump), reply(new(interfaces.SwInterfaceDetails)),
		request((*client).swInterfaceSetFlags), reply(new(interfaces.SwInterfaceSetFlagsReply)),
		request((*client).swInterfaceTagAddDel), reply(new(interfaces.SwInterfaceTagAddDelReply)),
		request((*client).createLoopback), reply(new(interfaces.CreateLoopbackReply)),
		request((*client).createLoopbackInstance), reply(new(interfaces.CreateLoopbackInstanceReply)),
		request((*client).deleteLoopback), reply(new(interfaces.DeleteLoopbackReply)),
		request((*client).wantInterfaceEvents), reply(new(interfaces.WantInterfaceEventsReply)),
		reply(new(interfaces.SwInterfaceEvent)),
	}
}

func vlibMessages() []*message {
	return []*message{
		request((*client).cliInband), reply(new(vlib.CliInbandReply)),
		request((*client).showThreads), reply(new(vlib.ShowThreadsReply)),
	}
}

func vpeMessages() []*message {
	return []*message{request((*client).showVersion), reply(new(vpe.ShowVersionReply))}
}

func pid() uint32 { return uint32(os.Getpid()) }

func (c *client) showVersion(_ *vpe.ShowVersion, reply func(govpp.Message)) {
	reply(&vpe.ShowVersionReply{Program: "vpe", Version: c.sw.versionText()})
}

// versionText fits the 32 bytes of the message. What begins with sluice-vswitch
// matches ports of SCTP.
func (s *Switch) versionText() string {
	if s.likeVPP {
		return cut("like-vpp "+s.version, 31)
	}
	return cut("sluice-vswitch "+s.version, 31)
}

func (c *client) showThreads(_ *vlib.ShowThreads, reply func(govpp.Message)) {
	reply(&vlib.ShowThreadsReply{Count: 1, ThreadData: []vlib.ThreadData{{Name: "vpe_main", PID: pid()}}})
}

func (c *client) cliInband(m *vlib.CliInband, reply func(govpp.Message)) {
	text, rv := c.sw.cli(m.Cmd)
	reply(&vlib.CliInbandReply{Retval: int32(rv), Reply: text})
}

// swInterfaceDump takes index 0 for all interfaces, like VPP, and a name filter
// for a part of the name in any case.
func (c *client) swInterfaceDump(m *interfaces.SwInterfaceDump, reply func(govpp.Message)) {
	index := uint32(m.SwIfIndex)
	if index == 0 || m.NameFilterValid {
		index = allPorts
	}
	filter, _, _ := strings.Cut(strings.ToLower(m.NameFilter), "\x00")
	for _, p := range c.sw.portsOf(index) {
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
		InterfaceName: cut(p.name, maxName), InterfaceDevType: p.kind, Tag: cut(p.tag, maxName),
	}
	if p.index != 0 {
		d.L2Address = p.mac()
	}
	return d
}

// mac is a locally administered address made from the index.
func (p *port) mac() (mac ethernet_types.MacAddress) {
	mac[0], mac[1] = 0x02, 0xfe
	binary.BigEndian.PutUint32(mac[2:], p.index)
	return mac
}

func (c *client) swInterfaceSetFlags(m *interfaces.SwInterfaceSetFlags, reply func(govpp.Message)) {
	up := m.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0
	reply(&interfaces.SwInterfaceSetFlagsReply{Retval: int32(c.sw.setPortUp(uint32(m.SwIfIndex), up))})
}

func (c *client) swInterfaceTagAddDel(m *interfaces.SwInterfaceTagAddDel, reply func(govpp.Message)) {
	tag := cut(m.Tag, maxName)
	if !m.IsAdd {
		tag = ""
	}
	reply(&interfaces.SwInterfaceTagAddDelReply{Retval: int32(c.sw.setPortTag(uint32(m.SwIfIndex), tag))})
}

// createLoopback ignores the MAC address: there is no L2 here.
func (c *client) createLoopback(_ *interfaces.CreateLoopback, reply func(govpp.Message)) {
	index, rv := c.sw.addLoopback(-1)
	reply(&interfaces.CreateLoopbackReply{Retval: int32(rv), SwIfIndex: interface_types.InterfaceIndex(index)})
}

func (c *client) createLoopbackInstance(m *interfaces.CreateLoopbackInstance, reply func(govpp.Message)) {
	instance := int64(-1)
	if m.IsSpecified {
		instance = int64(m.UserInstance)
	}
	index, rv := c.sw.addLoopback(instance)
	reply(&interfaces.CreateLoopbackInstanceReply{Retval: int32(rv), SwIfIndex: interface_types.InterfaceIndex(index)})
}

func (c *client) deleteLoopback(m *interfaces.DeleteLoopback, reply func(govpp.Message)) {
	reply(&interfaces.DeleteLoopbackReply{Retval: int32(c.sw.deleteLoopback(uint32(m.SwIfIndex)))})
}

// wantInterfaceEvents refuses to do what is done already, as VPP does.
func (c *client) wantInterfaceEvents(m *interfaces.WantInterfaceEvents, reply func(govpp.Message)) {
	var rv govpp.VPPApiError
	c.sw.set(func(*Switch) {
		want := m.EnableDisable != 0
		if c.wantsEvents == want {
			rv = govpp.INVALID_REGISTRATION
			return
		}
		c.wantsEvents, c.eventsPID = want, m.PID
	})
	reply(&interfaces.WantInterfaceEventsReply{Retval: int32(rv)})
}
