package vswitch

import (
	"net/netip"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

func TestSessionsDuringPolicyChanges(t *testing.T) {
	flow := toPod(api.TCP, 4000, 80)
	ack, replyAck := withFlags(flow, flagACK), withFlags(flow.Reply(), flagACK)
	permitWeb := []Rule{rule(RulePermitReflect, anyV4, anyV4, 6, Range{}, Range{First: 80, Last: 80})}
	start := func(t *testing.T) (l *lab, in, out uint32) {
		l = newLab(t, Options{})
		in, out = l.apply(both(RuleDeny), permitWeb)
		l.permitted("SYN", flow)
		l.permitted("SYN-ACK", flow.Reply())
		l.permitted("ACK", ack)
		return l, in, out
	}
	for name, next := range map[string]Packet{"the next packet of the client": ack, "the next packet of the pod": replyAck} {
		t.Run("a replacement that denies the flow cuts it at "+name, func(t *testing.T) {
			l, _, out := start(t)
			mustPut(t, l.conn, out, "egress", rule(RulePermitReflect, anyV4, anyV4, 6, Range{}, Range{First: 81, Last: 81}))
			if trace := l.denied("after the change", next); !trace.Hops[len(trace.Hops)-1].SessionRevoked {
				t.Errorf("the trace does not tell:\n%s", trace)
			}
			if n := len(l.sw.Sessions()); n != 0 {
				t.Errorf("%d sessions are left", n)
			}
			mustPut(t, l.conn, out, "egress", permitWeb...)
			l.denied("the pod before the client came back", replyAck)
			l.permitted("the client after the change back", ack)
			l.permitted("the pod after that", replyAck)
		})
		t.Run("a replacement that still permits the flow keeps it at "+name, func(t *testing.T) {
			l, _, out := start(t)
			mustPut(t, l.conn, out, "egress", append([]Rule{rule(RuleDeny, "192.0.2.8/32", anyV4, 0, Range{}, Range{})}, permitWeb...)...)
			l.permitted("after the change", next)
			if n := len(l.sw.Sessions()); n != 1 {
				t.Errorf("%d sessions", n)
			}
		})
		t.Run("an ACL bound in front that denies the flow cuts it at "+name, func(t *testing.T) {
			l, in, out := start(t)
			deny := mustPut(t, l.conn, newACLIndex, "deny", rule(RuleDeny, worldV4+"/32", anyV4, 0, Range{}, Range{}))
			mustBind(t, l.conn, l.pod, []uint32{in}, []uint32{deny, out})
			l.denied("after the change", next)
		})
		t.Run("a change of order that denies the flow cuts it at "+name, func(t *testing.T) {
			l, in, out := start(t)
			deny := mustPut(t, l.conn, newACLIndex, "deny", rule(RuleDeny, worldV4+"/32", anyV4, 0, Range{}, Range{}))
			mustBind(t, l.conn, l.pod, []uint32{in}, []uint32{out, deny})
			l.permitted("behind", next)
			mustBind(t, l.conn, l.pod, []uint32{in}, []uint32{deny, out})
			l.denied("in front", next)
		})
		t.Run("a change of the other direction keeps it at "+name, func(t *testing.T) {
			l, in, _ := start(t)
			mustPut(t, l.conn, in, "ingress", rule(RuleDeny, anyV4, anyV4, 6, Range{}, Range{}))
			l.permitted("after the change", next)
		})
		t.Run("a change made while reclassification is off keeps it at "+name, func(t *testing.T) {
			l, _, out := start(t)
			l.cli("set acl-plugin reclassify-sessions 0")
			mustPut(t, l.conn, out, "egress", both(RuleDeny)...)
			l.cli("set acl-plugin reclassify-sessions 1")
			l.permitted("after the change", next)
			mustPut(t, l.conn, out, "egress", both(RuleDeny)...)
			l.denied("after the next change", next)
		})
	}
}

// The first packet decides: rules for SYN only must not be evaluated with the flags of a later
// packet.
func TestSessionReevaluationUsesFirstPacket(t *testing.T) {
	syn := rule(RulePermitReflect, anyV4, anyV4, 6, Range{}, Range{})
	syn.FlagsMask, syn.FlagsValue = flagSYN|flagACK, flagSYN
	l := newLab(t, Options{})
	in, _ := l.apply([]Rule{syn}, both(RuleDeny))
	flow := fromPod(api.TCP, 1, 80)
	l.permitted("SYN", flow)
	mustPut(t, l.conn, in, "ingress", syn, rule(RuleDeny, anyV4, anyV4, 17, Range{}, Range{}))
	l.permitted("ACK after a change", withFlags(flow, flagACK))
	l.permitted("reply after a change", withFlags(flow.Reply(), flagACK))
}

func TestInterfacesSharingACLSwitchTogether(t *testing.T) {
	sw, conn := newTestSwitch(t, Options{})
	client := sw.AddInterface("client", "")
	index := mustPut(t, conn, newACLIndex, "shared", both(RulePermit)...)
	var packets []Packet
	for i := range 8 {
		port := sw.AddInterface("pod"+string(rune('a'+i)), "")
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		if err := sw.AddRoute(netip.PrefixFrom(addr, 32), port); err != nil {
			t.Fatal(err)
		}
		mustBind(t, conn, port, nil, []uint32{index})
		packets = append(packets, FlowPacket(api.Flow{Src: netip.MustParseAddr("10.9.9.9"), Dst: addr, Protocol: api.TCP, DstPort: 80}))
	}
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	for range 2 {
		traffic.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for i := range packets {
					sw.Forward(client, &packets[i])
				}
			}
		})
	}
	for i := range 200 {
		action := RuleDeny
		if i%2 == 1 {
			action = RulePermit
		}
		mustPut(t, conn, index, "shared", both(action)...)
		v := sw.view.Load()
		for _, p := range v.ports[2:] {
			if got := p.bindings[api.Egress].acls[0].action(0); got != action {
				t.Fatalf("%s still has %s", p.name, got)
			}
		}
	}
	close(stop)
	traffic.Wait()
}

// The model is the specification of sessions without timeouts: replies of a flow pass if a packet
// of its starter was permitted and the starter's direction has permitted it ever since, as far as
// any packet could detect.
func TestRepliesPassWhileOpenerIsPermitted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sw := New(Options{})
		defer func() { _ = sw.Close() }()
		pod, world := sw.AddInterface("pod", ""), sw.AddInterface("world", "")
		_ = sw.AddRoute(netip.MustParsePrefix(anyV4), world)
		_ = sw.AddRoute(netip.MustParsePrefix(podV4+"/32"), pod)
		in, _ := sw.putACL(newACLIndex, newACL("in", contentWithRules(both(RuleDeny))))
		out, _ := sw.putACL(newACLIndex, newACL("out", contentWithRules(both(RuleDeny))))
		if rv := sw.setList(pod, []uint32{in}, []uint32{out}); rv != 0 {
			rt.Fatal(rv)
		}

		permitted := map[uint16]bool{} // ports to which the pod may start flows
		started := map[uint16]bool{}   // flows that were permitted and not cut since
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			port := rapid.SampledFrom([]uint16{1, 2, 3}).Draw(rt, "port")
			p := fromPod(api.UDP, 99, port)
			switch rapid.SampledFrom([]string{"policy", "start", "reply"}).Draw(rt, "step") {
			case "policy":
				permitted[port] = !permitted[port]
				var rules []Rule
				for q, ok := range permitted {
					if ok {
						rules = append(rules, rule(RulePermitReflect, anyV4, anyV4, 17, Range{}, Range{First: q, Last: q}))
					}
				}
				if _, rv := sw.putACL(in, newACL("in", contentWithRules(rules))); rv != 0 {
					rt.Fatal(rv)
				}
			case "start":
				if got := sw.Inject(pod, p); (got.Verdict == api.Permit) != permitted[port] {
					rt.Fatalf("start to %d, permitted %v:\n%s", port, permitted[port], got)
				}
				started[port] = permitted[port]
			case "reply":
				want := started[port] && permitted[port]
				if got := sw.Inject(world, p.Reply()); (got.Verdict == api.Permit) != want {
					rt.Fatalf("reply from %d, want %v:\n%s", port, want, got)
				}
				started[port] = want
			}
		}
	})
}

func TestACLListEqualIsNoChange(t *testing.T) {
	l := newLab(t, Options{})
	in, out := l.apply(both(RulePermitReflect), both(RuleDeny))
	before := l.sw.view.Load()
	mustBind(t, l.conn, l.pod, []uint32{in}, []uint32{out})
	if l.sw.view.Load() != before {
		t.Error("the view changed")
	}
	mustBind(t, l.conn, l.pod, []uint32{out}, []uint32{out})
	after := l.sw.view.Load().port(l.pod).bindings
	if was := before.port(l.pod).bindings; after[api.Ingress].gen == was[api.Ingress].gen || after[api.Egress].gen != was[api.Egress].gen {
		t.Errorf("generations %d and %d, were %d and %d",
			after[api.Ingress].gen, after[api.Egress].gen, was[api.Ingress].gen, was[api.Egress].gen)
	}
}
