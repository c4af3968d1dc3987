package vpp

import (
	"net/netip"

	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
)

// Actions of rules, as numbers on the wire.
const (
	deny    = acl_types.ACL_ACTION_API_DENY
	permit  = acl_types.ACL_ACTION_API_PERMIT
	reflect = acl_types.ACL_ACTION_API_PERMIT_REFLECT
)

const icmp, icmp6 = uint8(api.ICMP), uint8(api.ICMPv6)

// rule is one of everything in the family of the trial.
func (x *trial) rule(action acl_types.ACLAction) acl_types.ACLRule {
	r := acl_types.ACLRule{IsPermit: action, SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535}
	if x.six {
		r.SrcPrefix.Address.Af, r.DstPrefix.Address.Af = ip_types.ADDRESS_IP6, ip_types.ADDRESS_IP6
	}
	return r
}

// of a protocol, with destination ports from first to last.
func (x *trial) ports(action acl_types.ACLAction, protocol api.Protocol, first, last uint16) acl_types.ACLRule {
	r := x.rule(action)
	r.Proto, r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast = ip_types.IPProto(protocol), first, last
	return r
}

// of a protocol.
func (x *trial) proto(action acl_types.ACLAction, protocol api.Protocol) acl_types.ACLRule {
	return x.ports(action, protocol, 0, 65535)
}

// icmp returns ICMP in the family of the trial, and its type for an echo request and
// for an unreachable destination.
func (x *trial) icmp() (protocol api.Protocol, echo, unreachable uint8) {
	if x.six {
		return api.ICMPv6, 128, 1
	}
	return api.ICMP, 8, 3
}

// owned are the rules of an input list that leaves sessions to the side that opens a flow.
func (x *trial) owned() []acl_types.ACLRule {
	syn := x.proto(reflect, api.TCP)
	syn.TCPFlagsMask, syn.TCPFlagsValue = 18, 2
	return []acl_types.ACLRule{syn, x.proto(permit, api.TCP), x.rule(reflect)}
}

// to returns the first packet of a flow to the pod, and from one of the pod's. Of ICMP
// it is an echo request.
func (x *trial) to(protocol api.Protocol, sport, dport uint16) vswitch.Packet {
	return vswitch.FlowPacket(api.Flow{Src: worldAddress[x.six], Dst: podAddress[x.six], Protocol: protocol, SrcPort: sport, DstPort: dport})
}

func (x *trial) from(protocol api.Protocol, sport, dport uint16) vswitch.Packet {
	return vswitch.FlowPacket(api.Flow{Src: podAddress[x.six], Dst: worldAddress[x.six], Protocol: protocol, SrcPort: sport, DstPort: dport})
}

// flags returns a packet of TCP with other flags, and fragment a later part of one.
func flags(p vswitch.Packet, flags uint8) vswitch.Packet { p.TCPFlags = flags; return p }

func fragment(p vswitch.Packet) vswitch.Packet {
	return vswitch.Packet{Src: p.Src, Dst: p.Dst, Protocol: p.Protocol, NonFirstFragment: true}
}

// Flags of TCP.
const (
	fin = 1
	syn = 2
)

// direction is the direction of a flow, for scenarios that hold for both.
type direction struct {
	name  string
	input bool // the pod starts
}

var directions = []direction{{"the pod starts", true}, {"the world starts", false}}

// start returns the first packet of a flow.
func (x *trial) start(d direction, protocol api.Protocol, sport, dport uint16) vswitch.Packet {
	if d.input {
		return x.from(protocol, sport, dport)
	}
	return x.to(protocol, sport, dport)
}

// guard binds one ACL to the direction of who starts, and another one to the other.
func (x *trial) guard(d direction, starter, other uint32) {
	x.Helper()
	if d.input {
		x.bind(starter, other)
	} else {
		x.bind(other, starter)
	}
}

// both runs a scenario for both directions.
func both(run func(*trial, direction)) func(*trial) {
	return func(x *trial) {
		for _, d := range directions {
			x.reset()
			run(x, d)
		}
	}
}

func prefix(s string) ip_types.Prefix {
	p := netip.MustParsePrefix(s)
	out := ip_types.Prefix{Len: uint8(p.Bits())}
	if p.Addr().Is4() {
		out.Address.Un.SetIP4(p.Addr().As4())
	} else {
		out.Address.Af = ip_types.ADDRESS_IP6
		out.Address.Un.SetIP6(p.Addr().As16())
	}
	return out
}
