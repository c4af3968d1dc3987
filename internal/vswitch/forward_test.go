package vswitch

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/classify/classifytest"
)

// The cases follow the list of VPP's own tests of its ACL plugin, each with both
// families where they are meaningful for both.
func TestRulesOnWayToPod(t *testing.T) {
	const tcp, udp, sctp, icmp, icmp6 = 6, 17, 132, 1, 58
	any4 := func(a RuleAction, proto uint8, ports ...Range) Rule {
		ports = append(ports, allPortsRange, allPortsRange)
		return rule(a, anyV4, anyV4, proto, ports[0], ports[1])
	}
	any6 := func(a RuleAction, proto uint8, ports ...Range) Rule {
		ports = append(ports, allPortsRange, allPortsRange)
		return rule(a, anyV6, anyV6, proto, ports[0], ports[1])
	}
	web := toPod(api.TCP, 4000, 80)
	dns := toPod(api.UDP, 4000, 53)
	ping := toPod(api.ICMP, 0, 0)
	for _, c := range []struct {
		name      string
		rules     []Rule
		permitted []Packet
		denied    []Packet
	}{
		{"permit any", both(RulePermit), []Packet{web, v6(web), dns, v6(dns), ping, v6(ping)}, nil},
		{"deny any", both(RuleDeny), nil, []Packet{web, v6(web), dns, v6(dns), ping, v6(ping)}},
		{"permit any of IPv4 does not permit IPv6", []Rule{any4(RulePermit, 0)}, []Packet{web}, []Packet{v6(web)}},
		{"permit ICMP", []Rule{any4(RulePermit, icmp), any6(RulePermit, icmp6)}, []Packet{ping, v6(ping)}, []Packet{web, v6(web)}},
		{"deny ICMP", slices.Concat([]Rule{any4(RuleDeny, icmp), any6(RuleDeny, icmp6)}, both(RulePermit)),
			[]Packet{web, v6(web)}, []Packet{ping, v6(ping)}},
		{"permit one ICMP type", []Rule{any4(RulePermit, icmp, Range{First: 3, Last: 3})}, nil, []Packet{ping}},
		{"permit ICMP type and code", []Rule{any4(RulePermit, icmp, Range{First: 8, Last: 8}, Range{First: 0, Last: 255})}, []Packet{ping}, nil},
		{"permit TCP", []Rule{any4(RulePermit, tcp), any6(RulePermit, tcp)}, []Packet{web, v6(web)}, []Packet{dns, v6(dns), ping}},
		{"permit UDP", []Rule{any4(RulePermit, udp), any6(RulePermit, udp)}, []Packet{dns, v6(dns)}, []Packet{web, v6(web)}},
		{"deny TCP", slices.Concat([]Rule{any4(RuleDeny, tcp), any6(RuleDeny, tcp)}, both(RulePermit)),
			[]Packet{dns, v6(dns)}, []Packet{web, v6(web)}},
		{"permit one port", []Rule{any4(RulePermit, tcp, Range{}, Range{First: 80, Last: 80})},
			[]Packet{web}, []Packet{toPod(api.TCP, 80, 81), toPod(api.UDP, 4000, 80)}},
		{"permit a range of ports", []Rule{any4(RulePermit, tcp, Range{}, Range{First: 79, Last: 81})},
			[]Packet{web, toPod(api.TCP, 1, 79), toPod(api.TCP, 1, 81)}, []Packet{toPod(api.TCP, 1, 78), toPod(api.TCP, 1, 82)}},
		{"permit a source port", []Rule{any4(RulePermit, tcp, Range{First: 4000, Last: 4000})}, []Packet{web}, []Packet{toPod(api.TCP, 4001, 80)}},
		{"deny one port", slices.Concat([]Rule{any4(RuleDeny, tcp, Range{}, Range{First: 80, Last: 80})}, both(RulePermit)),
			[]Packet{toPod(api.TCP, 4000, 81), dns}, []Packet{web}},
		{"deny a port also drops all later fragments of the protocol",
			slices.Concat([]Rule{any4(RuleDeny, udp, Range{}, Range{First: 80, Last: 80}), any4(RulePermit, udp)}),
			[]Packet{dns}, []Packet{fragment(dns)}},
		{"permit a port lets all later fragments of the protocol pass", []Rule{any4(RulePermit, udp, Range{}, Range{First: 53, Last: 53})},
			[]Packet{dns, fragment(toPod(api.UDP, 0, 0))}, []Packet{toPod(api.UDP, 4000, 54), fragment(web)}},
		{"SCTP ports are matched", []Rule{any4(RulePermit, sctp, Range{}, Range{First: 36412, Last: 36412})},
			[]Packet{toPod(api.SCTP, 1, 36412)}, []Packet{toPod(api.SCTP, 1, 36413)}},
		{"a protocol without ports has port 0", []Rule{any4(RulePermit, 47, Range{}, Range{First: 1, Last: 65535})}, nil, []Packet{toPod(47, 0, 0)}},
		{"a protocol without ports matches all ports", []Rule{any4(RulePermit, 47)}, []Packet{toPod(47, 0, 0)}, []Packet{toPod(50, 0, 0)}},
		{"ports and flags of any protocol are ignored", []Rule{{
			Action: RulePermit, Src: netip.MustParsePrefix(anyV4), Dst: netip.MustParsePrefix(anyV4),
			SrcPorts: Range{First: 1, Last: 1}, DstPorts: Range{First: 2, Last: 2}, FlagsMask: 255, FlagsValue: 255,
		}}, []Packet{web, dns, ping}, nil},
		{"TCP flags", []Rule{{
			Action: RulePermit, Src: netip.MustParsePrefix(anyV4), Dst: netip.MustParsePrefix(anyV4), Protocol: api.TCP,
			SrcPorts: Range{First: 0, Last: 65535}, DstPorts: Range{First: 0, Last: 65535}, FlagsMask: flagSYN | flagACK, FlagsValue: flagSYN,
		}}, []Packet{web, withFlags(web, flagSYN|flagFIN)}, []Packet{withFlags(web, flagACK), withFlags(web, flagSYN|flagACK)}},
		{"the first match wins", []Rule{
			rule(RuleDeny, worldV4+"/32", anyV4, 6, Range{}, Range{First: 80, Last: 80}), any4(RulePermit, tcp), any4(RuleDeny, 0),
		}, []Packet{toPod(api.TCP, 1, 81)}, []Packet{web, dns}},
		{"an ACL without rules matches nothing", nil, nil, []Packet{web, v6(web), dns, ping}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, Options{})
			index := mustPut(t, l.conn, newACLIndex, "", c.rules...)
			mustBind(t, l.conn, l.pod, nil, []uint32{index})
			for _, p := range c.permitted {
				l.permitted(p.String(), p)
			}
			for _, p := range c.denied {
				l.denied(p.String(), p)
			}
		})
	}
}

func TestMatchIgnoresPortsOfSCTPLikeVPP(t *testing.T) {
	const sctp = 132
	l := newLab(t, Options{LikeVPP: true, Version: "9"})
	if got := l.sw.version; got != "like-vpp 9" {
		t.Errorf("it calls itself %q", got)
	}
	l.apply(both(RulePermitReflect), []Rule{
		rule(RulePermit, anyV4, anyV4, sctp, Range{}, Range{First: 36412, Last: 36412}), rule(RulePermit, anyV4, anyV4, 6, Range{}, Range{First: 80, Last: 80}),
	})
	l.denied("a port of SCTP never matches", toPod(api.SCTP, 1, 36412))
	l.permitted("TCP is as it was", toPod(api.TCP, 1, 80))
	l.permitted("what the pod sends creates a session", fromPod(api.SCTP, 5, 6))
	l.permitted("which any SCTP of the peer belongs to", toPod(api.SCTP, 1, 36412))
	l.apply(nil, []Rule{rule(RulePermit, anyV4, anyV4, sctp, Range{}, Range{})})
	l.permitted("every port matches", toPod(api.SCTP, 1, 2))
}

func TestForwardPermitsDirectionWithoutACLs(t *testing.T) {
	l := newLab(t, Options{})
	l.apply(nil, both(RuleDeny))
	l.denied("to the pod", toPod(api.TCP, 1, 2))
	l.permitted("from the pod", fromPod(api.TCP, 1, 2))
	l.apply(both(RulePermitReflect), nil)
	l.permitted("creates a session", fromPod(api.TCP, 1, 2))
	if got := l.permitted("to the pod", fromPod(api.TCP, 1, 2).Reply()).Hops[1]; got.Matched != MatchOpen || got.Rule != -1 {
		t.Errorf("an open direction is decided by %s", got)
	}
	mustBind(t, l.conn, l.pod, nil, nil)
	l.permitted("to the pod without ACLs", toPod(api.TCP, 1, 2))
}

func TestACLsOfListAreAskedInOrder(t *testing.T) {
	l := newLab(t, Options{})
	denyWeb := mustPut(t, l.conn, newACLIndex, "deny", rule(RuleDeny, anyV4, anyV4, 6, Range{}, Range{First: 80, Last: 80}))
	permit := mustPut(t, l.conn, newACLIndex, "permit", both(RulePermit)...)
	empty := mustPut(t, l.conn, newACLIndex, "empty")
	mustBind(t, l.conn, l.pod, nil, []uint32{empty, denyWeb, permit})
	l.denied("denied first", toPod(api.TCP, 1, 80))
	l.permitted("permitted second", toPod(api.TCP, 1, 81))
	mustBind(t, l.conn, l.pod, nil, []uint32{permit, denyWeb, empty})
	l.permitted("after the order changed", toPod(api.TCP, 1, 80))
}

func TestInterfaceTakes255ACLs(t *testing.T) {
	l := newLab(t, Options{})
	var list []uint32
	for i := range 255 {
		list = append(list, mustPut(t, l.conn, newACLIndex, "", rule(RulePermit, anyV4, anyV4, 6, Range{}, Range{First: uint16(i + 1), Last: uint16(i + 1)})))
	}
	mustBind(t, l.conn, l.pod, nil, list)
	trace := l.permitted("by the last", toPod(api.TCP, 1, 255))
	if got := trace.Hops[1].ACLIndex; got != list[254] {
		t.Errorf("decided by ACL %d, want %d", got, list[254])
	}
	l.denied("by none", toPod(api.TCP, 1, 256))
}

func TestCountersRestartWithReplacement(t *testing.T) {
	l := newLab(t, Options{})
	rules := slices.Concat([]Rule{rule(RuleDeny, anyV4, anyV4, 6, Range{}, Range{First: 80, Last: 80})}, both(RulePermitReflect))
	_, index := l.apply(nil, rules)
	for range 3 {
		l.denied("web", toPod(api.TCP, 1, 80))
	}
	l.permitted("dns", toPod(api.UDP, 1, 53))
	l.permitted("dns again, by its session", toPod(api.UDP, 1, 53))
	hits, ok := l.sw.Counters(index)
	if diff := cmp.Diff([]uint64{3, 1, 0}, hits); !ok || diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	mustPut(t, l.conn, index, "again", rules...)
	if hits, _ := l.sw.Counters(index); !cmp.Equal(hits, []uint64{0, 0, 0}) {
		t.Errorf("after the replacement: %v", hits)
	}
	if _, ok := l.sw.Counters(99); ok {
		t.Error("an ACL that does not exist has counters")
	}
}

func TestProbeMeetsRulesAndLeavesNothing(t *testing.T) {
	for _, o := range []Options{{}, {Quirks: true}} {
		l := newLab(t, o)
		web := rule(RulePermitReflect, anyV4, anyV4, 6, Range{}, Range{First: 80, Last: 80})
		in, out := l.apply([]Rule{rule(RuleDeny, anyV4, anyV4, 0, Range{}, Range{})}, []Rule{web})
		l.permitted("traffic", toPod(api.TCP, 4000, 80))
		reply := toPod(api.TCP, 4000, 80).Reply()
		l.permitted("its answer", reply)
		counters := func() [2][]uint64 {
			a, _ := l.sw.Counters(in)
			b, _ := l.sw.Counters(out)
			return [2][]uint64{a, b}
		}
		before, sessions := counters(), l.sw.Sessions()
		l.now = l.now.Add(time.Second)
		if got := l.sw.Probe(l.pod, reply); got.Verdict != api.Deny || got.Hops[0].Matched != MatchACL {
			t.Errorf("%+v: an answer as a probe: %s", o, got)
		}
		for _, p := range []Packet{toPod(api.TCP, 4000, 80), toPod(api.TCP, 4001, 80), toPod(api.TCP, 4000, 81)} {
			got := l.sw.Probe(l.world, p)
			if want := p.DstPort == 80; (got.Verdict == api.Permit) != want {
				t.Errorf("%+v: %s", o, got)
			}
		}
		if diff := cmp.Diff(before, counters()); diff != "" {
			t.Errorf("%+v: counters (-before +after):\n%s", o, diff)
		}
		if after := l.sw.Sessions(); !slices.Equal(sessions, after) {
			t.Errorf("%+v: sessions %v, and %v before", o, after, sessions)
		}
		l.permitted("traffic goes on", reply)
	}
}

func TestRoutes(t *testing.T) {
	l := newLab(t, Options{})
	other := l.sw.AddInterface("pod2", "")
	mustRoute := func(prefix string, index uint32) {
		t.Helper()
		if err := l.sw.AddRoute(netip.MustParsePrefix(prefix), index); err != nil {
			t.Fatal(err)
		}
	}
	to := func(dst string) Packet {
		return FlowPacket(api.Flow{Src: netip.MustParseAddr(podV4), Dst: netip.MustParseAddr(dst), Protocol: api.TCP, DstPort: 80})
	}
	mustRoute("10.1.1.2/24", other)
	if got := l.permitted("longest prefix", to("10.1.1.77")).Out; got != "pod2" {
		t.Errorf("delivered on %s, want pod2", got)
	}
	if got := l.permitted("to itself", to(podV4)); got.Out != "pod1" || len(got.Hops) != 2 {
		t.Errorf("hairpin:\n%s", got)
	}
	mustRoute("10.1.1.0/24", l.pod)
	if got := l.permitted("replaced route", to("10.1.1.77")).Out; got != "pod1" {
		t.Errorf("delivered on %s, want pod1", got)
	}
	if !l.sw.RemoveRoute(netip.MustParsePrefix("10.1.1.0/24")) || l.sw.RemoveRoute(netip.MustParsePrefix("10.1.1.0/24")) {
		t.Error("a route is removed once")
	}
	l.sw.RemoveRoute(netip.MustParsePrefix(anyV4))
	if got := l.denied("no route", to("198.51.100.1")).Reason; got != ReasonNoRoute {
		t.Errorf("reason %q", got)
	}
	if err := l.sw.AddRoute(netip.MustParsePrefix(anyV4), 1000); err == nil {
		t.Error("a route to an unknown interface is accepted")
	}
	if err := l.sw.AddRoute(netip.Prefix{}, l.pod); err == nil {
		t.Error("a route without prefix is accepted")
	}
}

func TestRemoveInterfaceUnappliesACLs(t *testing.T) {
	l := newLab(t, Options{})
	in, out := l.apply(both(RulePermitReflect), both(RuleDeny))
	l.permitted("creates a session", fromPod(api.TCP, 1, 2))
	if !l.sw.RemoveInterface(l.pod) || l.sw.RemoveInterface(l.pod) || l.sw.RemoveInterface(0) {
		t.Error("an interface is removed once, local0 never")
	}
	if n := len(l.sw.Sessions()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	for _, r := range l.sw.Routes() {
		if r.SwIfIndex == l.pod {
			t.Errorf("%s is still routed to it", r.Prefix)
		}
	}
	for _, a := range l.sw.ACLs() {
		if len(a.Inputs)+len(a.Outputs) > 0 {
			t.Errorf("%+v is still bound", a)
		}
	}
	if l.sw.deleteACL(in) != 0 || l.sw.deleteACL(out) != 0 {
		t.Error("ACLs of a removed interface cannot be deleted")
	}
	if got := l.sw.Inject(l.pod, fromPod(api.TCP, 1, 2)).Reason; got != ReasonNoInterface {
		t.Errorf("reason %q", got)
	}
	if got := l.sw.Inject(l.world, toPod(api.TCP, 1, 2)); got.Out == "pod1" {
		t.Errorf("delivered to a removed interface:\n%s", got)
	}
	if again := l.sw.AddInterface("pod9", ""); again != l.pod {
		t.Errorf("the new interface has index %d, want the freed %d", again, l.pod)
	}
	if got := l.sw.Interfaces()[l.pod]; len(got.Inputs)+len(got.Outputs) > 0 {
		t.Errorf("the new interface has ACLs: %+v", got)
	}
}

func TestPacketsThatCannotBeForwarded(t *testing.T) {
	l := newLab(t, Options{})
	mixed := toPod(api.TCP, 1, 2)
	mixed.Src = netip.MustParseAddr(worldV6)
	for name, p := range map[string]Packet{"mixed families": mixed, "no addresses": {}} {
		if got := l.sw.Inject(l.world, p); got.Verdict != api.Deny || got.Reason != ReasonAddresses {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := l.sw.Inject(0, toPod(api.TCP, 1, 2)); got.Reason != ReasonDown {
		t.Errorf("local0 is up: %s", got)
	}
	if rv := l.sw.setUp(l.pod, false); rv != 0 {
		t.Fatal(rv)
	}
	if got := l.denied("out of an interface that is down", toPod(api.TCP, 1, 2)).Reason; got != ReasonDown {
		t.Errorf("reason %q", got)
	}
}

func TestTraceNamesWhatDecided(t *testing.T) {
	l := newLab(t, Options{})
	web := rule(RulePermitReflect, anyV4, anyV4, 6, Range{}, Range{First: 80, Last: 80})
	_, out := l.apply(nil, []Rule{web})
	first := l.permitted("first", toPod(api.TCP, 4000, 80))
	want := []Hop{
		{Interface: "uplink", SwIfIndex: l.world, Direction: api.Ingress, Matched: MatchOpen, Action: api.Permit, Rule: -1},
		{
			Interface: "pod1", SwIfIndex: l.pod, Tag: "shop/web", Direction: api.Egress, Matched: MatchACL, Action: api.Permit,
			ACLIndex: out, ACLTag: "egress", SessionCreated: true, RuleText: RuleText{newACL("", contentWithRules([]Rule{web})), 0},
		},
	}
	inWords := cmp.Transformer("words", RuleText.String)
	if diff := cmp.Diff(want, first.Hops, inWords); diff != "" {
		t.Errorf("hops (-want +got):\n%s", diff)
	}
	text := first.String()
	for _, part := range []string{"192.0.2.9:4000 -> 10.1.1.1:80/tcp", "none applied", "ipv4 permit+reflect src 0.0.0.0/0 dst 0.0.0.0/0 proto tcp sport 0-65535 dport 80-80", "session created", "permit: delivered on pod1"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
	if got := l.permitted("second", withFlags(toPod(api.TCP, 4000, 80), flagACK)).Hops[1].Matched; got != MatchSession {
		t.Errorf("second packet is matched by %s", got)
	}
	if got := l.denied("other", toPod(api.TCP, 4000, 81)).Hops[1].Matched; got != MatchNothing {
		t.Errorf("other packet is matched by %s", got)
	}
	b, err := json.Marshal(first)
	if err != nil || !strings.Contains(string(b), `"verdict":"permit"`) || !strings.Contains(string(b), `"direction":"egress"`) || !strings.Contains(string(b), `"ruleText":"ipv4 permit+reflect src`) {
		t.Errorf("JSON: %s, %v", b, err)
	}
}

func TestForwardDoesNotAllocate(t *testing.T) {
	l := newLab(t, Options{})
	l.apply(both(RulePermitReflect), both(RulePermit))
	syn, ack := fromPod(api.TCP, 1, 2), toPod(api.TCP, 9, 9)
	l.sw.Forward(l.pod, &syn)
	if n := testing.AllocsPerRun(100, func() {
		l.sw.Forward(l.pod, &syn)
		l.sw.Forward(l.world, &ack)
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

func BenchmarkForward(b *testing.B) {
	l := newLab(b, Options{})
	l.apply(both(RulePermitReflect), both(RulePermit))
	syn, ack := fromPod(api.TCP, 1, 2), toPod(api.TCP, 9, 9)
	l.sw.Forward(l.pod, &syn)
	b.Run("session", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.sw.Forward(l.pod, &syn)
		}
	})
	b.Run("acl", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.sw.Forward(l.world, &ack)
		}
	})
}

func TestMatchDoesNotAllocate(t *testing.T) {
	rules, packets := classifytest.PolicyRules(1000)
	b := binding{acls: []*accessList{newACL("a", contentWithRules(rules[:500])), newACL("b", contentWithRules(rules[500:]))}}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		if a, _ := b.classify(&packets[i%len(packets)]); a == nil {
			t.Error("a packet made from a rule matches none")
		}
		i++
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}
