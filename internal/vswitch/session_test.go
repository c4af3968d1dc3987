package vswitch

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
)

// closedExceptSessions permits only what one direction starts, and replies.
func closedExceptSessions(l *lab, owner api.Direction) {
	if owner == api.Ingress {
		l.apply(both(RulePermitReflect), both(RuleDeny))
	} else {
		l.apply(both(RuleDeny), both(RulePermitReflect))
	}
}

func TestSessionsPassRepliesThroughOneInterface(t *testing.T) {
	starts := map[api.Direction]func(api.Protocol, uint16, uint16) Packet{api.Ingress: fromPod, api.Egress: toPod}
	for owner, start := range starts {
		for _, proto := range []api.Protocol{api.TCP, api.UDP, api.SCTP, api.ICMP, 47} {
			for _, family := range []string{"IPv4", "IPv6"} {
				t.Run(owner.String()+" "+proto.String()+" "+family, func(t *testing.T) {
					l := newLab(t, Options{})
					closedExceptSessions(l, owner)
					first := start(proto, 4000, 80)
					if family == "IPv6" {
						first = v6(first)
					}
					l.denied("a reply before the flow exists", first.Reply())
					trace := l.permitted("first", first)
					if h := trace.Hops[boolIndex(owner == api.Egress)]; !h.SessionCreated {
						t.Errorf("no session is created:\n%s", trace)
					}
					l.permitted("reply", first.Reply())
					l.permitted("again", first)
					other := first.Reply()
					other.SrcPort, other.ICMPCode, other.Protocol = 81, 1, other.Protocol+boolProtocol(proto == 47)
					l.denied("another flow", other)
				})
			}
		}
	}
}

func boolIndex(b bool) int {
	if b {
		return 1
	}
	return 0
}

// boolProtocol changes the protocol where a flow has no ports to differ by.
func boolProtocol(b bool) api.Protocol { return api.Protocol(boolIndex(b)) }

func TestSessionIsNeverCreated(t *testing.T) {
	l := newLab(t, Options{})
	closedExceptSessions(l, api.Ingress)
	unreachable := fromPod(api.ICMP, 0, 0)
	unreachable.ICMPType = 3
	for name, p := range map[string]Packet{
		"ICMP error": unreachable, "echo reply": fromPod(api.ICMP, 0, 0).Reply(), "fragment": fragment(fromPod(api.UDP, 0, 0)),
	} {
		p.Src, p.Dst = netip.MustParseAddr(podV4), netip.MustParseAddr(worldV4)
		l.permitted(name, p)
		if n := len(l.sw.Sessions()); n != 0 {
			t.Errorf("%s: %d sessions", name, n)
		}
		l.denied("reply to "+name, p.Reply())
	}
	flow := fromPod(api.UDP, 1, 2)
	l.permitted("a flow with a session", flow)
	l.denied("a later fragment of the reply, whose ports are unknown", fragment(flow.Reply()))
}

func TestSessionIsNotCreatedByPlainPermit(t *testing.T) {
	l := newLab(t, Options{})
	l.apply(both(RulePermit), both(RuleDeny))
	l.permitted("forward", fromPod(api.TCP, 1, 2))
	l.denied("reply", fromPod(api.TCP, 1, 2).Reply())
}

func TestSessionIsNotCreatedByDroppedPacket(t *testing.T) {
	l := newLab(t, Options{})
	l.apply(both(RulePermitReflect), both(RuleDeny))
	deny := mustPut(t, l.conn, newACLIndex, "world", both(RuleDeny)...)
	mustBind(t, l.conn, l.world, nil, []uint32{deny})
	trace := l.denied("dropped at the uplink", fromPod(api.TCP, 1, 2))
	if trace.Hops[0].SessionCreated || len(l.sw.Sessions()) != 0 {
		t.Errorf("a session exists:\n%s", trace)
	}
	l.denied("in the direction of the reply", fromPod(api.TCP, 1, 2).Reply())
}

func TestSessionPerInterfaceOfFlow(t *testing.T) {
	l := newLab(t, Options{})
	reflect := mustPut(t, l.conn, newACLIndex, "", both(RulePermitReflect)...)
	deny := mustPut(t, l.conn, newACLIndex, "", both(RuleDeny)...)
	mustBind(t, l.conn, l.pod, []uint32{reflect}, []uint32{deny})
	mustBind(t, l.conn, l.world, []uint32{deny}, []uint32{reflect})
	flow := fromPod(api.UDP, 1, 2)
	l.permitted("forward", flow)
	l.permitted("reply", flow.Reply())
	got := l.sw.Sessions()
	if len(got) != 2 || got[0].Owner != api.Ingress || got[1].Owner != api.Egress || got[1].First != flow {
		t.Errorf("sessions: %+v", got)
	}
}

func TestSessionTimeouts(t *testing.T) {
	syn := fromPod(api.TCP, 4000, 80)
	synAck, ack := syn.Reply(), withFlags(syn, flagACK)
	fin := withFlags(syn, flagFIN|flagACK)
	for _, c := range []struct {
		name    string
		packets []Packet
		lives   time.Duration
	}{
		{"UDP", []Packet{fromPod(api.UDP, 1, 2)}, 600 * time.Second},
		{"ICMP echo", []Packet{fromPod(api.ICMP, 0, 0)}, 600 * time.Second},
		{"SYN only is transient", []Packet{syn}, 120 * time.Second},
		{"SYN, SYN-ACK is transient", []Packet{syn, synAck}, 120 * time.Second},
		{"a handshake is established", []Packet{syn, synAck, ack}, 24 * time.Hour},
		{"FIN is transient again", []Packet{syn, synAck, ack, fin}, 120 * time.Second},
		{"RST is transient again", []Packet{syn, synAck, ack, withFlags(synAck, flagRST)}, 120 * time.Second},
		{"a flow picked up in the middle is transient", []Packet{ack, withFlags(synAck, flagACK)}, 120 * time.Second},
	} {
		for _, family := range []string{"IPv4", "IPv6"} {
			t.Run(c.name+" "+family, func(t *testing.T) {
				l := newLab(t, Options{})
				closedExceptSessions(l, api.Ingress)
				send := func(p Packet) Packet {
					if family == "IPv6" {
						return v6(p)
					}
					return p
				}
				for _, p := range c.packets {
					l.permitted(p.String(), send(p))
				}
				reply := send(c.packets[0]).Reply()
				l.now = l.now.Add(c.lives - time.Second)
				l.permitted("just before the timeout", withFlags(reply, reply.TCPFlags&^flagSYN))
				l.now = l.now.Add(c.lives - time.Second)
				l.permitted("a packet keeps it alive", withFlags(reply, reply.TCPFlags&^flagSYN))
				l.now = l.now.Add(c.lives)
				if n := len(l.sw.Sessions()); n != 0 {
					t.Errorf("%d sessions are listed after the timeout", n)
				}
				l.denied("after the timeout", reply)
			})
		}
	}
}

func TestSessionEndedIsNotUsedByNextSYN(t *testing.T) {
	for name, last := range map[string]uint8{"FIN": flagFIN | flagACK, "RST": flagRST} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, Options{})
			closedExceptSessions(l, api.Ingress)
			syn := fromPod(api.TCP, 4000, 80)
			back := withFlags(syn.Reply(), flagSYN)
			l.permitted("SYN", syn)
			l.permitted("SYN-ACK", syn.Reply())
			l.permitted("the end", withFlags(syn, last))
			l.permitted("an ACK of the other side", withFlags(back, flagACK))
			if trace := l.permitted("the next connection", syn); !trace.Hops[0].SessionCreated {
				t.Errorf("it has the old session:\n%s", trace)
			}
			l.permitted("the end", withFlags(syn, last))
			l.denied("a connection of the other side", back)
		})
	}
}

func TestSessionExpiresWhenIdle(t *testing.T) {
	l := newLab(t, Options{Timeouts: Timeouts{Other: 10 * time.Second}})
	closedExceptSessions(l, api.Ingress)
	busy, idle := fromPod(api.UDP, 1, 1), fromPod(api.UDP, 2, 2)
	l.permitted("busy", busy)
	l.permitted("idle", idle)
	for range 5 {
		l.now = l.now.Add(4 * time.Second)
		l.permitted("reply", busy.Reply())
	}
	l.denied("idle reply", idle.Reply())
	if n := len(l.sw.Sessions()); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestSessionTableFullKeepsEstablished(t *testing.T) {
	l := newLab(t, Options{MaxSessions: 3})
	closedExceptSessions(l, api.Ingress)
	establish := func(port uint16) Packet {
		syn := fromPod(api.TCP, port, 80)
		l.permitted("SYN", syn)
		l.permitted("SYN-ACK", syn.Reply())
		l.permitted("ACK", withFlags(syn, flagACK))
		return syn
	}
	kept := establish(1)
	transient, udp := fromPod(api.TCP, 2, 80), fromPod(api.UDP, 3, 53)
	l.permitted("udp", udp)
	l.permitted("transient", transient)
	establish(4)
	l.denied("reply of the recycled transient", transient.Reply())
	l.permitted("reply of the UDP session", udp.Reply())
	establish(5)
	l.denied("reply of the recycled UDP session", udp.Reply())
	if got := l.denied("when all are established", fromPod(api.UDP, 6, 6)).Reason; got != ReasonTooManySessions {
		t.Errorf("reason %q", got)
	}
	l.permitted("an established connection", withFlags(kept.Reply(), flagACK))
	l.now = l.now.Add(24 * time.Hour)
	l.permitted("after they have expired", fromPod(api.UDP, 6, 6))
}

func TestSessionIsNotCreatedAfterRemoval(t *testing.T) {
	l := newLab(t, Options{})
	l.apply(both(RulePermitReflect), nil)
	old := l.sw.view.Load().port(l.pod)
	l.sw.RemoveInterface(l.pod)
	p := fromPod(api.UDP, 1, 2)
	x, _ := p.tuple()
	if !l.sw.sessions.create(old, api.Ingress, &x, old.bindings[api.Ingress].acls[0], 0, l.now) || l.sw.sessions.count != 0 {
		t.Errorf("%d sessions", l.sw.sessions.count)
	}
}

func BenchmarkNewSessions(b *testing.B) {
	l := newLab(b, Options{MaxSessions: 10_000})
	l.apply(both(RulePermitReflect), both(RuleDeny))
	p := fromPod(api.UDP, 0, 53)
	b.ReportAllocs()
	for b.Loop() {
		p.SrcPort++
		l.sw.Forward(l.pod, &p)
	}
}
