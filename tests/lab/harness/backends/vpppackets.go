package backends

import (
	"slices"

	"go.fd.io/govpp/adapter/socketclient"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// vppPackets finds what a VPP enforces by packets that it sends through it.
type vppPackets struct {
	ports  *vppPorts
	tap    *tap
	judged judged
}

func packetsOf(ports *vppPorts, m messages) vppPackets {
	return vppPackets{ports: ports, tap: newTap(socketclient.NewVppClient(ports.Socket()), m)}
}

func (s *vppPackets) Operations() int { return s.tap.operations() }
func (s *vppPackets) FailNext(n int)  { s.tap.failNext(n) }

// Sees implements Partial: VPP sees no ports of protocols other than these, and takes
// all that one has between two addresses for one flow. Some addresses it drops itself.
func (s *vppPackets) Sees(f api.Flow) bool {
	return routable(f) && slices.Contains([]api.Protocol{api.TCP, api.UDP, api.ICMP, api.ICMPv6}, f.Protocol)
}

func routable(f api.Flow) bool { return vpptest.Routable(f.Src) && vpptest.Routable(f.Dst) }

// judged are verdicts that hold until something changes.
type judged struct {
	changes int
	of      map[api.Flow]api.Action
}

// Judge implements Batched.
func (s *vppPackets) Judge(flows []api.Flow) {
	s.judged = judged{s.changes(), make(map[api.Flow]api.Action, len(flows))}
	packets := make([]vpptest.Packet, len(flows))
	port := s.ports.nextPort()
	for i, f := range flows {
		packets[i] = fresh(f, port, uint32(i))
	}
	out := s.ports.Send(packets)
	for i, f := range flows {
		if s.judged.of[f] = api.Deny; out.Left[uint32(i)] != "" {
			s.judged.of[f] = api.Permit
		}
	}
}

// changes is another number after everything that may change a verdict.
func (s *vppPackets) changes() int { return s.tap.operations() + s.ports.changes }

// fresh returns the first packet of a flow, from a port that no flow has had.
func fresh(f api.Flow, port uint16, mark uint32) vpptest.Packet {
	if f.Protocol.HasPorts() {
		f.SrcPort = port
	}
	return vpptest.First(f, mark)
}

// Verdict implements Backend.
func (s *vppPackets) Verdict(f api.Flow) api.Action {
	if v, ok := s.judged.of[f]; ok && s.judged.changes == s.changes() {
		return v
	}
	if s.Passes(fresh(f, s.ports.nextPort(), 0).Packet) {
		return api.Permit
	}
	return api.Deny
}

// First implements Stateful.
func (s *vppPackets) First(f api.Flow) bool { return s.Passes(vswitch.FlowPacket(f)) }

// Reply implements Stateful.
func (s *vppPackets) Reply(f api.Flow) bool {
	return s.sends(vpptest.Packet{Packet: vswitch.FlowPacket(f).Reply(), Answer: true})
}

// Passes implements Sender.
func (s *vppPackets) Passes(p vswitch.Packet) bool {
	return s.sends(vpptest.Packet{Packet: p})
}

func (s *vppPackets) sends(p vpptest.Packet) bool {
	return len(s.ports.Send([]vpptest.Packet{p}).Left) == 1
}

// Trace returns VPP's trace of a packet of the flow.
func (s *vppPackets) Trace(f api.Flow) string {
	s.ports.CLI("clear trace")
	s.ports.CLI("trace add pg-input 1")
	s.Passes(fresh(f, s.ports.nextPort(), 0).Packet)
	return s.ports.CLI("show trace")
}
