package vpp

import (
	"fmt"
	"strings"
	"time"

	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// sessionScenarios are about flows while nothing changes.
var sessionScenarios = []scenario{
	{"answers pass where the question was reflected", func(x *trial) {
		ping, _, _ := x.icmp()
		for _, d := range directions {
			for _, protocol := range []api.Protocol{api.TCP, api.UDP, ping, api.SCTP} {
				x.reset()
				x.guard(d, x.add(x.rule(reflect)), x.add(x.rule(deny)))
				p, what := x.start(d, protocol, 4000, 80), fmt.Sprintf("%s, %s: ", d.name, protocol)
				x.drop(what+"an answer before the question", p.Reply())
				x.pass(what+"the question", p)
				x.pass(what+"the answer", p.Reply())
				x.pass(what+"the question again", p)
				x.reset()
				x.guard(d, x.add(x.rule(permit)), x.add(x.rule(deny)))
				x.pass(what+"a question that is not reflected", p)
				x.drop(what+"the answer to that", p.Reply())
			}
		}
	}},
	{"a flow is known by both ports", both(func(x *trial, d direction) {
		x.guard(d, x.add(x.rule(reflect)), x.add(x.rule(deny)))
		p := x.start(d, api.UDP, 4000, 80)
		x.pass("the question", p)
		for _, ports := range [][2]uint16{{4000, 81}, {4001, 80}} {
			x.drop("an answer from or to another port", x.start(d, api.UDP, ports[0], ports[1]).Reply())
		}
		x.drop("the same flow from the other side", swapped(p))
	})},
	{"no state of TCP is looked at", both(func(x *trial, d direction) {
		x.guard(d, x.add(x.rule(reflect)), x.add(x.rule(deny)))
		p := x.start(d, api.TCP, 4000, 80)
		x.pass("an ACK in the middle of a flow", flags(p, ack))
		x.pass("its answer", flags(p.Reply(), ack))
		x.pass("a SYN the other way", flags(p.Reply(), syn))
		x.pass("the end", flags(p, fin|ack))
		x.pass("a SYN the other way, after the end", flags(p.Reply(), syn))
	})},
	{"an ICMP error belongs to no flow", both(func(x *trial, d direction) {
		ping, _, unreachable := x.icmp()
		x.guard(d, x.add(x.rule(reflect)), x.add(x.rule(deny)))
		x.pass("the question", x.start(d, api.UDP, 4000, 80))
		p := x.start(direction{input: !d.input}, ping, 0, 0)
		p.ICMPType = unreachable
		x.drop("the error about it", p)
	})},
	{"a session exists when its packet is dropped later", func(x *trial) {
		// The pod's packet enters, and is dropped where it leaves.
		x.bind(x.add(x.rule(reflect)), x.add(x.rule(deny)))
		closed := x.add(x.rule(deny))
		x.bindAt(false, nil, []uint32{closed})
		p := x.from(api.UDP, 4000, 80)
		x.drop("the question", p)
		x.pass("an answer to what nobody got", p.Reply())
	}},
	{"an idle flow is forgotten", both(func(x *trial, d direction) {
		x.cli("set acl-plugin session timeout udp idle 2")
		x.guard(d, x.add(x.rule(reflect)), x.add(x.rule(deny)))
		idle, active := x.start(d, api.UDP, 4000, 80), x.start(d, api.UDP, 4001, 80)
		x.pass("the question", idle)
		x.pass("another question", active)
		for range 3 {
			x.idle(time.Second)
			x.pass("the answer of the active flow", active.Reply())
		}
		x.idle(time.Second)
		x.drop("the answer of the idle flow", idle.Reply())
		x.pass("the answer of the active flow at last", active.Reply())
	})},
	{"packets in a direction without ACLs keep no flow alive", both(func(x *trial, d direction) {
		x.cli("set acl-plugin session timeout udp idle 2")
		starter := x.add(x.rule(reflect))
		if d.input {
			x.bindAt(true, []uint32{starter}, nil)
		} else {
			x.bindAt(true, nil, []uint32{starter})
		}
		p := x.start(d, api.UDP, 4000, 80)
		x.pass("the question", p)
		x.change(starter, x.rule(deny)) // which sessions do not see
		x.pass("the question again", p)
		for range 4 {
			x.idle(time.Second)
			x.pass("an answer", p.Reply())
		}
		x.drop("the question at last", p)
	})},
	{"TCP is established with both handshakes", both(func(x *trial, d direction) {
		x.cli("set acl-plugin session timeout tcp transient 2")
		x.guard(d, x.add(x.rule(reflect)), x.add(x.rule(deny)))
		half, whole, closing := x.start(d, api.TCP, 4000, 80), x.start(d, api.TCP, 4001, 80), x.start(d, api.TCP, 4002, 80)
		for _, p := range []vswitch.Packet{half, whole, closing} {
			x.pass("SYN", p)
			x.pass("SYN and ACK", p.Reply())
		}
		for _, p := range []vswitch.Packet{whole, closing} {
			x.pass("ACK", flags(p, ack))
		}
		x.pass("FIN", flags(closing, fin|ack))
		x.idle(4 * time.Second)
		x.drop("half open", flags(half.Reply(), ack))
		x.drop("closing", flags(closing.Reply(), ack))
		x.pass("established", flags(whole.Reply(), ack))
	})},
	{"a full table takes no flow of UDP before another one is idle", both(func(x *trial, d direction) {
		x.guard(d, x.add(x.rule(reflect)), x.add(x.rule(deny)))
		x.placesFor(3)
		for port := range uint16(3) {
			x.pass("a question", x.start(d, api.UDP, 4000+port, 80))
		}
		x.drop("a question beyond the table", x.start(d, api.UDP, 5000, 80))
		x.pass("an answer", x.start(d, api.UDP, 4000, 80).Reply())
		x.cli("set acl-plugin session timeout udp idle 1")
		x.idle(3 * time.Second)
		x.pass("a question when the others are forgotten", x.start(d, api.UDP, 5000, 80))
	})},
	{"in a full table the oldest half-open flow of TCP makes room for the next packet", both(func(x *trial, d direction) {
		x.guard(d, x.add(x.rule(reflect)), x.add(x.rule(deny)))
		x.placesFor(3)
		oldest, other := x.start(d, api.TCP, 4000, 80), x.start(d, api.TCP, 4002, 80)
		x.pass("SYN", oldest)
		x.pass("SYN", x.start(d, api.TCP, 4001, 80))
		x.pass("SYN", other)
		x.drop("SYN beyond the table", x.start(d, api.TCP, 5000, 80))
		x.pass("SYN, sent again", x.start(d, api.TCP, 5000, 80))
		x.drop("the answer of the oldest", oldest.Reply())
		x.pass("the answer of another", other.Reply())
	})},
	{"sessions are cleared", both(func(x *trial, d direction) {
		x.guard(d, x.add(x.rule(reflect)), x.add(x.rule(deny)))
		p := x.start(d, api.UDP, 4000, 80)
		x.pass("the question", p)
		x.cli("clear acl-plugin sessions")
		x.eventuallyDrop("the answer", p.Reply())
		x.pass("the question again", p)
		x.pass("the answer again", p.Reply())
	})},
}

// swapped is the first packet of the other side with the same ports.
func swapped(p vswitch.Packet) vswitch.Packet {
	p.Src, p.Dst = p.Dst, p.Src
	return p
}

// placesFor leaves places for some sessions, once those of scenarios before are gone. One place
// always stays free.
func (x *trial) placesFor(n int) {
	x.Helper()
	vpptest.Eventually(x, "an empty table", func() bool {
		r, err := vlib.NewServiceClient(x.conn()).CliInband(x.Context(), &vlib.CliInband{Cmd: "show acl-plugin sessions"})
		if err != nil {
			x.Fatal(err)
		}
		line, _, _ := strings.Cut(r.Reply, "\n")
		return strings.HasSuffix(strings.TrimSpace(line), "= 0")
	})
	x.cli(fmt.Sprintf("set acl-plugin session table max-entries %d", n+1))
}

// eventuallyDrop is for what VPP does by itself soon after a request.
func (x *trial) eventuallyDrop(what string, p vswitch.Packet) {
	x.Helper()
	vpptest.Eventually(x, what+" to be dropped", func() bool { return !x.passes(vpptest.Packet{Packet: p}) })
}

// reclassify reports whether sessions are looked at when rules change.
func (x *trial) reclassify(on bool) {
	x.Helper()
	if on {
		x.cli("set acl-plugin reclassify-sessions 1")
	} else {
		x.cli("set acl-plugin reclassify-sessions 0")
	}
}

// flow opens a flow of TCP through a reflecting ACL of the starter's direction, with
// the other one closed, and returns its next packet, the answer, and both ACLs.
func (x *trial) flow(d direction, reclassify bool) (next, answer vswitch.Packet, starter, other uint32) {
	x.Helper()
	x.reclassify(reclassify)
	starter, other = x.add(x.rule(reflect)), x.add(x.rule(deny))
	x.guard(d, starter, other)
	p := x.start(d, api.TCP, 4000, 80)
	x.pass("SYN", p)
	x.pass("SYN and ACK", p.Reply())
	x.pass("ACK", flags(p, ack))
	return flags(p, ack), flags(p.Reply(), ack), starter, other
}

// changeScenarios are about flows when rules change.
var changeScenarios = []scenario{
	{"replaced in place, sessions are not looked at", both(func(x *trial, d direction) {
		next, answer, starter, _ := x.flow(d, false)
		x.change(starter, x.rule(deny))
		x.pass("the starter's next packet", next)
		x.pass("the answer", answer)
		x.drop("another flow", x.start(d, api.TCP, 4001, 80))
	})},
	{"replaced in place, sessions are looked at by the starter's packets", both(func(x *trial, d direction) {
		next, answer, starter, _ := x.flow(d, true)
		x.change(starter, x.rule(deny))
		x.pass("an answer before the starter says anything", answer)
		x.pass("another", answer)
		x.drop("the starter's next packet", next)
		x.drop("an answer after that", answer)
		x.change(starter, x.rule(reflect))
		x.pass("permitted again: the starter", next)
		x.pass("permitted again: the answer", answer)
	})},
	{"an equal replacement makes sessions of its direction stale", both(func(x *trial, d direction) {
		next, answer, starter, other := x.flow(d, true)
		x.change(other, x.rule(deny))
		x.pass("of the other direction: next", next)
		x.pass("of the other direction: answer", answer)
		x.change(starter, x.rule(permit))
		x.pass("the starter, by a rule without a session", next)
		x.drop("the answer", answer)
	})},
	{"sessions are looked at only while it is on", both(func(x *trial, d direction) {
		next, answer, starter, _ := x.flow(d, true)
		x.change(starter, x.rule(deny))
		x.reclassify(false)
		x.pass("off: the starter", next)
		x.reclassify(true)
		x.drop("on again: the starter", next)
		x.drop("on again: the answer", answer)
	})},
	{"a change while it is off is none for sessions", both(func(x *trial, d direction) {
		next, answer, starter, _ := x.flow(d, true)
		x.reclassify(false)
		x.change(starter, x.rule(deny))
		x.reclassify(true)
		x.pass("the starter", next)
		x.pass("the answer", answer)
	})},
	{"another list makes an interface forget, sessions are not looked at", both(func(x *trial, d direction) {
		next, answer, starter, other := x.flow(d, false)
		unrelated := x.add(x.ports(deny, api.UDP, 7, 7))
		in, out := []uint32{unrelated, starter}, []uint32{other}
		if !d.input {
			in, out = []uint32{other}, []uint32{unrelated, starter}
		}
		x.bindAt(true, in, out)
		x.eventuallyDrop("the answer", answer)
		x.pass("the starter's next packet", next)
		x.pass("the answer then", answer)
	})},
	{"another order is none for sessions that are not looked at", both(func(x *trial, d direction) {
		next, answer, starter, other := x.flow(d, false)
		closed := x.add(x.rule(deny))
		lists := func(list ...uint32) {
			if d.input {
				x.bindAt(true, list, []uint32{other})
			} else {
				x.bindAt(true, []uint32{other}, list)
			}
		}
		lists(starter, closed)
		x.eventuallyDrop("the answer, as the list is another one", answer)
		x.pass("the starter", next)
		lists(closed, starter)
		x.pass("the starter, by its session", next)
		x.pass("the answer", answer)
		x.drop("another flow", x.start(d, api.TCP, 4001, 80))
	})},
	{"another order makes sessions stale that are looked at", both(func(x *trial, d direction) {
		next, answer, starter, other := x.flow(d, true)
		closed := x.add(x.rule(deny))
		if d.input {
			x.bindAt(true, []uint32{starter, closed}, []uint32{other})
		} else {
			x.bindAt(true, []uint32{other}, []uint32{starter, closed})
		}
		x.pass("an answer meanwhile", answer)
		x.pass("the starter, judged anew", next)
		if d.input {
			x.bindAt(true, []uint32{closed, starter}, []uint32{other})
		} else {
			x.bindAt(true, []uint32{other}, []uint32{closed, starter})
		}
		x.drop("the starter, judged by another order", next)
		x.drop("an answer after that", answer)
	})},
	{"the lists that are bound already make sessions stale that are looked at", both(func(x *trial, d direction) {
		next, answer, starter, other := x.flow(d, true)
		x.reclassify(false)
		x.change(starter, x.rule(permit)) // is none for sessions
		x.reclassify(true)
		x.pass("the answer", answer)
		x.guard(d, starter, other)
		x.pass("the starter, by a rule without a session", next)
		x.drop("the answer then", answer)
	})},
	{"interfaces that share an ACL switch together", func(x *trial) {
		shared := x.add(x.rule(permit))
		x.bindAt(true, nil, []uint32{shared})
		x.bindAt(false, nil, []uint32{shared})
		for _, action := range []acl_types.ACLAction{deny, permit, deny} {
			x.change(shared, x.rule(action))
			for _, d := range directions {
				x.sends(d.name, action == permit, d, api.TCP, 80)
			}
		}
	}},
	{"a direction without ACLs is open, whatever sessions say", both(func(x *trial, d direction) {
		next, answer, _, other := x.flow(d, true)
		if d.input {
			x.bindAt(true, nil, []uint32{other})
		} else {
			x.bindAt(true, []uint32{other}, nil)
		}
		x.pass("the starter", next)
		x.pass("the answer, by the session that is left", answer)
		x.drop("another answer", flags(x.start(d, api.TCP, 4001, 80).Reply(), ack))
	})},
}
