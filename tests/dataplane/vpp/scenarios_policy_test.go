package vpp

import (
	"go.fd.io/govpp/binapi/acl_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
)

// served opens a flow to port 80 of the pod, whose output has a table, and returns its
// next packet, the pod's, and the ACLs of input and output.
func (x *trial) served(protocol api.Protocol, input []acl_types.ACLRule, table ...acl_types.ACLRule) (next, answer vswitch.Packet, in, out uint32) {
	x.Helper()
	in, out = x.add(input...), x.add(table...)
	x.bind(in, out)
	p := x.to(protocol, 4000, 80)
	x.pass("the client's first packet", p)
	x.pass("the pod's first packet", p.Reply())
	if protocol == api.TCP {
		return flags(p, ack), flags(p.Reply(), ack), in, out
	}
	return p, p.Reply(), in, out
}

// policyScenarios are about the ways to render policy: what a tightened table does to
// open flows, and what it costs those that are still permitted.
var policyScenarios = []scenario{
	{"any packet of the pod opens the way: a tightened table never cuts", func(x *trial) {
		x.reclassify(true)
		next, answer, in, out := x.served(api.TCP, []acl_types.ACLRule{x.rule(reflect)}, x.ports(permit, api.TCP, 80, 80))
		x.change(out, x.rule(deny))
		x.pass("the client", next)
		x.change(in, x.rule(reflect))
		x.pass("the pod, after the input list was sent again", answer)
		x.pass("the client then", next)
		x.cli("clear acl-plugin sessions")
		x.eventuallyDrop("the client, with no session left", next)
		x.pass("the pod, which does not know", answer)
		x.pass("the client, let in by the pod", next)
		x.drop("another client", x.to(api.TCP, 4001, 80))
	}},
	{"a first packet opens the way: a tightened table cuts", func(x *trial) {
		x.reclassify(true)
		next, answer, _, out := x.served(api.TCP, x.owned(), x.ports(reflect, api.TCP, 80, 80))
		p := x.from(api.TCP, 5000, 443)
		x.pass("a flow of the pod", p)
		x.pass("its answer", p.Reply())
		x.change(out, x.rule(deny))
		x.drop("the client", next)
		x.pass("the pod, which does not know", answer)
		x.drop("the client after that", next)
		x.pass("the flow of the pod goes on", flags(p, ack))
		x.pass("and its answers", flags(p.Reply(), ack))
		x.change(out, x.ports(reflect, api.TCP, 80, 80))
		x.pass("permitted again: the client", next)
		x.pass("permitted again: the pod", answer)
	}},
	{"a change of the input list cuts what the pod has opened", func(x *trial) {
		x.reclassify(true)
		x.bind(x.add(x.owned()...), x.add(x.rule(deny)))
		p := x.from(api.TCP, 5000, 443)
		x.pass("SYN", p)
		x.pass("SYN and ACK", p.Reply())
		in, _ := x.bound(x.of(true))
		x.change(in[0], x.owned()...)
		x.pass("the pod, without a session", flags(p, ack))
		x.drop("the answer", flags(p.Reply(), ack))
	}},
	{"a change of the input list that sessions do not see cuts nothing", func(x *trial) {
		x.reclassify(true)
		in := x.add(x.rule(reflect)) // during the grace period
		x.bind(in, x.add(x.rule(deny)))
		p := flags(x.from(api.TCP, 5000, 443), ack)
		x.pass("in grace: a flow of which nothing is known", p)
		x.pass("in grace: its answer", p.Reply())
		x.reclassify(false)
		x.change(in, x.owned()...)
		x.reclassify(true)
		x.pass("then: the answer", p.Reply())
		x.pass("then: the pod", p)
		x.pass("then: the answer to that", p.Reply())
		other := flags(x.from(api.TCP, 5001, 443), ack)
		x.pass("another flow of which nothing is known", other)
		x.drop("the answer to that", other.Reply())
	}},
	{"rules with ports at the input cut, and keep what is permitted, but for clients that use such a port", func(x *trial) {
		x.reclassify(true)
		kept, gone := x.ports(reflect, api.TCP, 443, 443), x.ports(reflect, api.TCP, 8443, 8443)
		in, out := x.add(kept, gone, x.rule(deny)), x.add(x.ports(reflect, api.TCP, 80, 80), x.rule(deny))
		x.bind(in, out)
		a, b := x.from(api.TCP, 5000, 443), x.from(api.TCP, 5001, 8443)
		c, d := x.to(api.TCP, 4000, 80), x.to(api.TCP, 443, 80)
		for _, p := range []vswitch.Packet{a, b, c, d} {
			x.pass("SYN", p)
			x.pass("SYN and ACK", p.Reply())
		}
		x.change(in, kept, x.rule(deny))
		x.drop("the pod, on what it may send no longer", flags(b, ack))
		x.drop("the answer to that", flags(b.Reply(), ack))
		x.pass("the pod, on what it still may send", flags(a, ack))
		x.pass("the answer to that", flags(a.Reply(), ack))
		x.pass("the client", flags(c, ack))
		x.pass("the pod to it", flags(c.Reply(), ack))
		x.change(out, x.rule(deny))
		x.drop("the client, which may send no longer", flags(c, ack))
		x.drop("the pod to it", flags(c.Reply(), ack))
		x.drop("the client, whose port is one that the pod may send to", flags(d, ack))
		x.pass("the pod to it, as to a server there", flags(d.Reply(), ack))
		x.pass("that client, let in by the pod", flags(d, ack))
	}},
	{"UDP of the pod opens the way after a table was tightened", func(x *trial) {
		x.reclassify(true)
		next, answer, _, out := x.served(api.UDP, x.owned(), x.ports(reflect, api.UDP, 80, 80))
		x.change(out, x.rule(deny))
		x.drop("the client", next)
		x.pass("the pod, which does not know", answer)
		x.pass("the client, let in by the pod", next)
	}},
	{"UDP from served ports without sessions would be cut, and so would questions from them", func(x *trial) {
		x.reclassify(true)
		served := x.proto(permit, api.UDP)
		served.SrcportOrIcmptypeFirst, served.SrcportOrIcmptypeLast = 80, 80
		next, answer, _, out := x.served(api.UDP, append([]acl_types.ACLRule{served}, x.owned()...), x.ports(reflect, api.UDP, 80, 80))
		x.change(out, x.rule(deny))
		x.drop("the client", next)
		x.pass("the pod, which does not know", answer)
		x.drop("the client after that", next)
		question := x.from(api.UDP, 80, 53)
		x.pass("a question of the pod from that port", question)
		x.drop("the answer to it, which policy permits", question.Reply())
	}},
	{"after a loss of sessions flows into the pod recover, its own do not", func(x *trial) {
		x.reclassify(true)
		next, answer, _, _ := x.served(api.TCP, x.owned(), x.ports(reflect, api.TCP, 80, 80))
		p := x.from(api.TCP, 5000, 443)
		x.pass("a flow of the pod", p)
		x.pass("its answer", p.Reply())
		x.cli("clear acl-plugin sessions")
		x.eventuallyDrop("an answer to the pod", flags(p.Reply(), ack))
		x.pass("the pod", flags(p, ack))
		x.drop("the answer to that", flags(p.Reply(), ack))
		x.pass("a client", next)
		x.pass("the pod to it", answer)
	}},
}
