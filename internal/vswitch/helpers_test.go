package vswitch

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
)

func protocol(n uint8) api.Protocol { return api.Protocol(n) }

var (
	allPortsRange = Range{}
	anyV4         = "0.0.0.0/0"
	anyV6         = "::/0"
)

// permitAll and friends are rules for both families, as a renderer would write them.
func both(action RuleAction) []Rule {
	return []Rule{
		rule(action, anyV4, anyV4, 0, allPortsRange, allPortsRange),
		rule(action, anyV6, anyV6, 0, allPortsRange, allPortsRange),
	}
}

// lab is a switch with a pod and the rest of the world, and a clock that tests set. ACLs are set
// through a GoVPP client.
type lab struct {
	testing.TB
	sw         *Switch
	conn       *core.Connection
	pod, world uint32
	now        time.Time
}

const (
	podV4, podV6     = "10.1.1.1", "2001:db8:1::1"
	worldV4, worldV6 = "192.0.2.9", "2001:db8:ffff::9"
)

func newLab(t testing.TB, o Options) *lab {
	t.Helper()
	l := &lab{TB: t, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	o.Clock = func() time.Time { return l.now }
	l.sw, l.conn = newTestSwitch(t, o)
	l.pod = l.sw.AddInterface("pod1", "shop/web")
	l.world = l.sw.AddInterface("uplink", "")
	for prefix, index := range map[string]uint32{
		podV4 + "/32": l.pod, podV6 + "/128": l.pod, anyV4: l.world, anyV6: l.world,
	} {
		if err := l.sw.AddRoute(netip.MustParsePrefix(prefix), index); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// apply puts one ACL for each direction of the pod's interface; no rules leave the direction
// unrestricted. It returns their indices, in the order ingress, egress.
func (l *lab) apply(ingress, egress []Rule) (in, out uint32) {
	l.Helper()
	var ins, outs []uint32
	if len(ingress) > 0 {
		in = mustPut(l, l.conn, newACLIndex, "ingress", ingress...)
		ins = append(ins, in)
	}
	if len(egress) > 0 {
		out = mustPut(l, l.conn, newACLIndex, "egress", egress...)
		outs = append(outs, out)
	}
	mustBind(l, l.conn, l.pod, ins, outs)
	return in, out
}

func (l *lab) cli(line string) {
	l.Helper()
	if text, rv := l.sw.cli.run(line); rv != 0 {
		l.Fatalf("%s: %s", line, text)
	}
}

// send sends a packet from the interface of its source.
func (l *lab) send(p Packet) Trace {
	in := l.world
	if p.Src == netip.MustParseAddr(podV4) || p.Src == netip.MustParseAddr(podV6) {
		in = l.pod
	}
	return l.sw.Inject(in, p)
}

func (l *lab) wantVerdict(what string, p Packet, want api.Action) Trace {
	l.Helper()
	t := l.send(p)
	if t.Verdict != want {
		l.Errorf("%s: want %s, got\n%s", what, want, t)
	}
	return t
}

func (l *lab) permitted(what string, p Packet) Trace {
	l.Helper()
	return l.wantVerdict(what, p, api.Permit)
}

func (l *lab) denied(what string, p Packet) Trace {
	l.Helper()
	return l.wantVerdict(what, p, api.Deny)
}

// toPod and fromPod make packets between the world and the pod.
func toPod(proto api.Protocol, sport, dport uint16) Packet {
	return FlowPacket(api.Flow{
		Src: netip.MustParseAddr(worldV4), Dst: netip.MustParseAddr(podV4), Protocol: proto, SrcPort: sport, DstPort: dport,
	})
}

func fromPod(proto api.Protocol, sport, dport uint16) Packet {
	return FlowPacket(api.Flow{
		Src: netip.MustParseAddr(podV4), Dst: netip.MustParseAddr(worldV4), Protocol: proto, SrcPort: sport, DstPort: dport,
	})
}

// v6 turns the packet of one of these into the same packet over IPv6.
func v6(p Packet) Packet {
	for _, a := range []*netip.Addr{&p.Src, &p.Dst} {
		if *a == netip.MustParseAddr(podV4) {
			*a = netip.MustParseAddr(podV6)
		} else {
			*a = netip.MustParseAddr(worldV6)
		}
	}
	if p.Protocol == api.ICMP {
		p.Protocol, p.ICMPType = api.ICMPv6, map[uint8]uint8{8: 128, 0: 129, 3: 1}[p.ICMPType]
	}
	return p
}

func withFlags(p Packet, flags uint8) Packet { p.TCPFlags = flags; return p }

func fragment(p Packet) Packet {
	p.NonFirstFragment = true
	return p
}

// cmpEmpty makes nil and empty slices equal.
var cmpEmpty = cmp.FilterValues(func(a, b []uint32) bool { return len(a) == 0 && len(b) == 0 }, cmp.Comparer(func([]uint32, []uint32) bool { return true }))

// contentWithRules returns the content with the given rules.
func contentWithRules(rules []Rule) *content { return contentOf(rules, rulesToWire(rules)) }

func rulesToWire(rules []Rule) []acl_types.ACLRule {
	out := make([]acl_types.ACLRule, len(rules))
	for i := range rules {
		out[i] = ruleToWire(&rules[i])
	}
	return out
}
