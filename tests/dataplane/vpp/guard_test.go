package vpp

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// guarded is a VPP with pods and a renderer of their policies.
type guarded struct {
	*onVPP
	t *testing.T
	r *acl.Renderer
}

func newGuarded(t *testing.T, o acl.Options, plugins ...string) *guarded {
	t.Helper()
	g := &guarded{onVPP: newOnVPP(vpptest.Launch(t, plugins...)), t: t}
	o.Socket = g.Socket()
	var err error
	if g.r, err = acl.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.r.Close() }) // only disconnects
	return g
}

// render commits what the pod gets and sends; nil: everything.
func (g *guarded) render(gets, sends *renderer.RuleList) {
	g.t.Helper()
	g.commit(func(changes *renderer.Changes) { renderPod(changes, "pod", podAddress, gets, sends) })
}

func (g *guarded) commit(stage func(*renderer.Changes)) {
	g.t.Helper()
	changes := renderer.Changes{Resync: true}
	stage(&changes)
	if err := g.r.Apply(g.t.Context(), changes); err != nil {
		g.t.Fatal(err)
	}
}

func renderPod(changes *renderer.Changes, name string, addresses map[bool]netip.Addr, gets, sends *renderer.RuleList) {
	changes.Render(api.PodID{Namespace: "test", Name: name}, renderer.PodConfig{IPs: []netip.Addr{addresses[false], addresses[true]}, Egress: gets, Ingress: sends})
}

// nothing is a list that permits nothing.
func nothing() *renderer.RuleList {
	return renderer.NewRuleList([]api.ContivRule{{Action: api.Deny}}, nil)
}

var sessionsTotal = regexp.MustCompile(`Sessions total: add (\d+) - del (\d+)`)

// sessions returns how many sessions were made so far, and how many there are.
func (g *guarded) sessions() (made, left int) {
	g.t.Helper()
	out := g.CLI("show acl-plugin sessions")
	m := sessionsTotal.FindStringSubmatch(out)
	if m == nil {
		g.t.Fatalf("there is no number of sessions in\n%s", out)
	}
	made, err := strconv.Atoi(m[1])
	if err != nil {
		g.t.Fatal(err)
	}
	ended, err := strconv.Atoi(m[2])
	if err != nil {
		g.t.Fatal(err)
	}
	return made, made - ended
}

// TestVPPPodsSendingAtOnceStayApart has a pod that may neither send nor get anything, and an end
// that wants to talk to it, send at the same time and again and again: no packet takes another's
// for leave to pass.
func TestVPPPodsSendingAtOnceStayApart(t *testing.T) {
	g := newGuarded(t, acl.Options{})
	other := map[bool]netip.Addr{false: netip.MustParseAddr("10.1.1.2"), true: netip.MustParseAddr("fd00:1:1::2")}
	g.Add("sluice/pod/test/other")
	for _, a := range other {
		g.Route(a, "sluice/pod/test/other")
	}
	g.commit(func(changes *renderer.Changes) {
		renderPod(changes, "pod", podAddress, nothing(), nothing())
		renderPod(changes, "other", other, nothing(), nothing())
	})
	for name, far := range map[string]map[bool]netip.Addr{"another such pod": other, "the outside": worldAddress} {
		for _, six := range []bool{false, true} {
			for _, p := range []api.Protocol{api.TCP, api.UDP, api.SCTP, map[bool]api.Protocol{false: api.ICMP, true: api.ICMPv6}[six]} {
				t.Run(fmt.Sprintf("%s, %v, IPv6 %t", name, p, six), func(t *testing.T) {
					out := vswitch.FlowPacket(api.Flow{Src: podAddress[six], Dst: far[six], Protocol: p, SrcPort: 31_000, DstPort: 32_000})
					in := vswitch.FlowPacket(api.Flow{Src: far[six], Dst: podAddress[six], Protocol: p, SrcPort: 32_000, DstPort: 31_000})
					var packets []vpptest.Packet
					for range 4 { // the first packet of each end, and its answer to the other's
						for _, each := range []vswitch.Packet{out, in, in.Reply(), out.Reply()} {
							g.mark++
							packets = append(packets, vpptest.Packet{Packet: each, Mark: g.mark})
						}
					}
					if left := g.Send(packets).Left; len(left) > 0 {
						t.Errorf("%d of %d packets pass", len(left), len(packets))
					}
				})
			}
		}
	}
}

// TestVPPDeniedPacketsTakeNoSessions sends many packets from a pod that may send nothing.
func TestVPPDeniedPacketsTakeNoSessions(t *testing.T) {
	const sent = 2000
	g := newGuarded(t, acl.Options{})
	g.render(nothing(), nothing())
	before, _ := g.sessions()
	for _, six := range []bool{false, true} {
		var packets []vpptest.Packet
		for port := range uint16(sent) {
			g.mark++
			packets = append(packets, vpptest.First(api.Flow{Src: podAddress[six], Dst: worldAddress[six], Protocol: api.UDP, SrcPort: 10_000 + port, DstPort: 53}, g.mark))
		}
		if left := g.Send(packets).Left; len(left) > 0 {
			t.Errorf("IPv6 %t: %d of %d packets pass", six, len(left), sent)
		}
	}
	if after, _ := g.sessions(); after != before {
		t.Errorf("%d denied packets made %d sessions", 2*sent, after-before)
	}
}

// TestVPPFirstPolicyKeepsFlowsOfPod has a pod without policies open TCP connections, and
// policies come that permit them.
func TestVPPFirstPolicyKeepsFlowsOfPod(t *testing.T) {
	g := newGuarded(t, acl.Options{})
	g.render(nil, nil)
	flows := map[bool]tcpFlow{}
	for _, six := range []bool{false, true} {
		f := (&lab{Network: g.Network}).tcp(podAddress[six].String(), worldAddress[six].String(), 443)
		if flows[six] = f; !f.opens() || !f.lives() {
			t.Fatal("a connection does not open")
		}
	}
	for _, c := range []struct {
		name        string
		gets, sends *renderer.RuleList
	}{
		{"a first policy for what it gets", onPort(80), nil},
		{"one for what it sends, too", onPort(80), onPort(443)},
		{"only the latter", nil, onPort(443)},
		{"none", nil, nil},
	} {
		g.render(c.gets, c.sends)
		for six, f := range flows {
			if !f.passes(f.ans) || !f.lives() {
				t.Errorf("%s, IPv6 %t: the open connection hangs", c.name, six)
			}
		}
	}
}

// TestVPPForbiddenUDPEndsWithItsSession lets a pod continue to send to a peer that may no longer
// reach it: that keeps the session open, but only until its idle timeout.
func TestVPPForbiddenUDPEndsWithItsSession(t *testing.T) {
	g := newGuarded(t, acl.Options{Flows: acl.Flows{UDPIdle: time.Second}})
	udp := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Protocol: api.UDP, DstPort: api.Port(53)}, {Action: api.Deny}}, nil)
	g.render(udp, nil)
	asks := vpptest.First(api.Flow{Src: worldAddress[false], Dst: podAddress[false], Protocol: api.UDP, SrcPort: 40_000, DstPort: 53}, 0)
	answer := vpptest.Packet{Packet: asks.Reply()}
	if !g.passes(asks) || !g.passes(answer) {
		t.Fatal("the permitted datagrams do not pass")
	}
	g.render(nothing(), nil)
	if !g.passes(answer) {
		t.Fatal("what the pod may send does not pass")
	}
	vpptest.Eventually(t, "the sessions to end", func() bool { _, left := g.sessions(); return left == 0 })
	if g.passes(asks) {
		t.Error("a datagram that is forbidden passes after the session has ended")
	}
}

// TestVPPIsNotPausedByStartingRenderer: to learn the size of its heap by its command line pauses
// VPP for a long time. Where pods are enforced no renderer asks for it, and where none is, one does
// that does not have the statistics segment.
func TestVPPIsNotPausedByStartingRenderer(t *testing.T) {
	g := newOnVPP(vpptest.Launch(t))
	asked := func(o acl.Options) bool {
		g.Do("api trace on")
		o.Socket = g.Socket()
		r, err := acl.New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Close() }() // only disconnects
		changes := renderer.Changes{Resync: true}
		renderPod(&changes, "pod", podAddress, onPort(80), nil)
		if err := r.Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
		trace := g.CLI("api trace dump")
		g.CLI("api trace free") // says that it has
		if !strings.Contains(trace, "acl_interface_list_dump") {
			t.Fatalf("the trace is\n%s", trace)
		}
		return strings.Contains(trace, "show memory main-heap")
	}
	if !asked(acl.Options{}) {
		t.Error("nobody asked for the size of the heap before anything was enforced")
	}
	for _, stats := range []string{"", g.StatsSocket()} {
		if asked(acl.Options{Stats: acl.Stats{Socket: stats}}) {
			t.Errorf("with the statistics segment %q, a renderer that starts again asks for the size of the heap", stats)
		}
	}
}
