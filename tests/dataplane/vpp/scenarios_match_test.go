package vpp

import (
	"fmt"

	"go.fd.io/govpp/binapi/acl_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// matchScenarios are about which rule decides.
var matchScenarios = []scenario{
	{"protocols and ports", func(x *trial) {
		ping, echo, _ := x.icmp()
		for _, d := range directions {
			for _, c := range []struct {
				protocol    api.Protocol
				first, last uint16
				within, out uint16
			}{{api.TCP, 80, 80, 80, 81}, {api.UDP, 53, 53, 53, 52}, {api.TCP, 1000, 2000, 2000, 2001}, {api.UDP, 0, 65535, 9, 0}, {ping, 0, 65535, 0, 0}} {
				for _, others := range []acl_types.ACLAction{permit, deny} { // of everything that the rule does not match
					x.reset()
					index := x.add(x.ports(1-others, c.protocol, c.first, c.last), x.rule(others))
					x.guard(d, index, x.add(x.rule(permit)))
					what := fmt.Sprintf("%s, %s %d-%d and the opposite for the rest: ", d.name, c.protocol, c.first, c.last)
					x.sends(what+"what matches", others == deny, d, c.protocol, c.within)
					if c.out != 0 {
						x.sends(what+"another port", others == permit, d, c.protocol, c.out)
					}
					x.sends(what+"another protocol", others == permit, d, map[bool]api.Protocol{true: api.UDP, false: api.TCP}[c.protocol == api.TCP], c.within)
				}
			}
		}
		_ = echo
	}},
	{"ICMP by type and code", both(func(x *trial, d direction) {
		ping, echo, unreachable := x.icmp()
		r := x.ports(permit, ping, 0, 0)
		r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast = uint16(echo), uint16(echo)
		x.guard(d, x.add(r), x.add(x.rule(permit)))
		p := x.start(d, ping, 0, 0)
		x.pass("type and code", p)
		p.ICMPCode = 1
		x.drop("another code", p)
		p.ICMPCode, p.ICMPType = 0, unreachable
		x.drop("another type", p)
	})},
	{"TCP by flags", both(func(x *trial, d direction) {
		r := x.proto(permit, api.TCP)
		r.TCPFlagsMask, r.TCPFlagsValue = syn|ack, syn
		x.guard(d, x.add(r), x.add(x.rule(permit)))
		p := x.start(d, api.TCP, 4000, 80)
		x.pass("SYN", p)
		x.pass("SYN and FIN, which is not looked at", flags(p, syn|fin))
		x.drop("SYN and ACK", flags(p, syn|ack))
		x.drop("ACK", flags(p, ack))
		x.drop("UDP", x.start(d, api.UDP, 4000, 80))
	})},
	{"the first rule decides, over all ACLs of the list", both(func(x *trial, d direction) {
		deny80, permit80, nothing := x.add(x.ports(deny, api.TCP, 80, 80)), x.add(x.ports(permit, api.TCP, 80, 81)), x.add()
		open := x.add(x.rule(permit))
		list := func(list ...uint32) {
			if d.input {
				x.bindAt(true, list, []uint32{open})
			} else {
				x.bindAt(true, []uint32{open}, list)
			}
		}
		p := x.start(d, api.TCP, 4000, 80)
		list(nothing, deny80, permit80)
		x.drop("deny in front", p)
		x.pass("what only the second matches", x.start(d, api.TCP, 4000, 81))
		list(permit80, nothing, deny80)
		x.pass("permit in front", p)
		x.drop("what none matches", x.start(d, api.TCP, 4000, 82))
		list(nothing)
		x.drop("with an empty ACL only", p)
		list()
		x.pass("without ACLs", p)
	})},
	{"a rule is for its family only", both(func(x *trial, d direction) {
		other := *x
		other.six = !x.six
		x.guard(d, x.add(other.rule(permit)), x.add(x.rule(permit)))
		x.drop("its rule for everything does not match", x.start(d, api.TCP, 4000, 80))
		x.pass("it matches its own", other.start(d, api.ICMP+api.Protocol(map[bool]uint8{true: icmp6 - icmp}[other.six]), 0, 0))
		x.drop("nor on the way back", other.start(direction{input: !d.input}, api.UDP, 4000, 80))
	})},
	{"SCTP has no ports", both(func(x *trial, d direction) {
		x.guard(d, x.add(x.ports(permit, api.SCTP, 3868, 3868)), x.add(x.rule(permit)))
		x.drop("with a rule for a port", x.start(d, api.SCTP, 4000, 3868))
		x.guard(d, x.add(x.ports(permit, api.SCTP, 0, 0)), x.add(x.rule(permit)))
		x.pass("they count as 0", x.start(d, api.SCTP, 4000, 3868))
		x.guard(d, x.add(x.proto(permit, api.SCTP)), x.add(x.rule(permit)))
		x.pass("with a rule for all ports", x.start(d, api.SCTP, 4000, 3868))
	})},
	{"other protocols by number", both(func(x *trial, d direction) {
		x.guard(d, x.add(x.proto(permit, 47)), x.add(x.rule(permit)))
		x.pass("the number", x.start(d, 47, 0, 0))
		x.drop("another", x.start(d, 50, 0, 0))
	})},
	{"a datagram without payload matches like any other", both(func(x *trial, d direction) {
		beside := x.ports(deny, api.UDP, 1000, 2000)
		x.guard(d, x.add(beside, x.ports(permit, api.UDP, 53, 53)), x.add(x.rule(permit)))
		x.passAs("behind a range that does not match", vpptest.Packet{Packet: x.start(d, api.UDP, 4000, 53), Empty: true})
		x.dropAs("in the range", vpptest.Packet{Packet: x.start(d, api.UDP, 4000, 1500), Empty: true})
		x.dropAs("another port", vpptest.Packet{Packet: x.start(d, api.UDP, 4000, 54), Empty: true})
	})},
	{"extension headers are looked behind", both(func(x *trial, d direction) {
		if !x.six {
			return
		}
		x.guard(d, x.add(x.ports(permit, api.TCP, 80, 80)), x.add(x.rule(permit)))
		for n := 1; n <= 3; n++ {
			x.passAs(fmt.Sprint(n, " of them, the port"), vpptest.Packet{Packet: x.start(d, api.TCP, 4000, 80), Extensions: n})
			x.dropAs(fmt.Sprint(n, " of them, another port"), vpptest.Packet{Packet: x.start(d, api.TCP, 4000, 81), Extensions: n})
			x.dropAs(fmt.Sprint(n, " of them, another protocol"), vpptest.Packet{Packet: x.start(d, api.UDP, 4000, 80), Extensions: n})
		}
	})},
	{"an action that is unknown permits", both(func(x *trial, d direction) {
		x.guard(d, x.add(x.rule(7)), x.add(x.rule(deny)))
		p := x.start(d, api.UDP, 4000, 80)
		x.pass("what matches", p)
		x.drop("the answer: there is no session", p.Reply())
	})},
}

// sends sends the first packet of a flow that must pass, or must not.
func (x *trial) sends(what string, passes bool, d direction, protocol api.Protocol, port uint16) {
	x.Helper()
	if p := x.start(d, protocol, 4000, port); passes {
		x.pass(what, p)
	} else {
		x.drop(what, p)
	}
}

// fragmentScenarios are about fragments that are not the first.
var fragmentScenarios = []scenario{
	{"a fragment matches by addresses and protocol", both(func(x *trial, d direction) {
		open := x.add(x.rule(permit))
		x.guard(d, x.add(x.ports(permit, api.UDP, 53, 53)), open)
		x.pass("one rule permits a port", fragment(x.start(d, api.UDP, 4000, 80)))
		x.drop("another protocol", fragment(x.start(d, api.TCP, 4000, 80)))
		x.guard(d, x.add(x.ports(deny, api.UDP, 80, 80), x.proto(permit, api.UDP)), open)
		x.drop("the first rule denies a port", fragment(x.start(d, api.UDP, 4000, 53)))
		x.pass("its first fragment", x.start(d, api.UDP, 4000, 53))
	})},
	{"a fragment is not the answer of a flow", both(func(x *trial, d direction) {
		x.guard(d, x.add(x.rule(reflect)), x.add(x.rule(deny)))
		p := x.start(d, api.UDP, 4000, 80)
		x.pass("a first packet", p)
		x.pass("its answer", p.Reply())
		x.drop("a fragment of the answer", fragment(p.Reply()))
	})},
	{"a fragment has a session of its own", both(func(x *trial, d direction) {
		x.guard(d, x.add(x.rule(reflect)), x.add(x.rule(deny)))
		p := fragment(x.start(d, api.UDP, 4000, 80))
		x.drop("a fragment that answers nothing", fragment(p.Reply()))
		x.pass("a fragment", p)
		x.pass("a fragment the other way", fragment(p.Reply()))
		x.drop("a whole packet the other way", x.start(d, api.UDP, 4000, 80).Reply())
	})},
}
