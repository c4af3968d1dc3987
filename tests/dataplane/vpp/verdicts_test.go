package vpp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// tally is what a comparison has seen.
type tally struct{ sent, permitted, ipv6 int }

// String says it in words.
func (n tally) String() string {
	return fmt.Sprintf("%d packets, %d permitted, %d of IPv6", n.sent, n.permitted, n.ipv6)
}

func (n *tally) add(m tally) {
	n.sent, n.permitted, n.ipv6 = n.sent+m.sent, n.permitted+m.permitted, n.ipv6+m.ipv6
}

// judge sends the first packet of every flow of a state that could matter, or of at
// most a number of them, and compares what VPP does with what the oracle says. SCTP is
// left out: VPP does not see its ports (TestVPPSCTP).
func (l *lab) judge(tb testing.TB, s oracle.State, most int) tally {
	tb.Helper()
	l.asked++
	var flows []api.Flow
	for f := range cluster.FlowSpace(s).All() {
		if f.Protocol.HasPorts() {
			f.SrcPort += l.asked // no session of an earlier question
		}
		if f.Protocol != api.SCTP && l.passes(f) {
			flows = append(flows, f)
		}
	}
	if len(flows) > most {
		r := rand.New(rand.NewPCG(uint64(l.asked), 1))
		r.Shuffle(len(flows), func(i, j int) { flows[i], flows[j] = flows[j], flows[i] })
		flows = flows[:most]
	}
	var n tally
	truth := oracle.New(s)
	for flows := range slices.Chunk(flows, batch) {
		n.add(l.ask(tb, truth, flows))
	}
	return n
}

// batch is how many packets are sent at once.
const batch = 20_000

// ask sends one batch.
func (l *lab) ask(tb testing.TB, truth *oracle.Oracle, flows []api.Flow) (n tally) {
	tb.Helper()
	packets := make([]vpptest.Packet, len(flows))
	for i, f := range flows {
		packets[i] = vpptest.First(f, uint32(i))
	}
	out := l.Send(packets)
	wrong := 0
	for i, f := range flows {
		tag, left := out.Left[uint32(i)]
		n.count(f, left)
		if what := l.verify(truth, f, left, tag); what != "" {
			if wrong++; wrong <= 5 {
				tb.Error(what)
			}
		}
	}
	if wrong > 0 {
		tb.Errorf("%d of %d flows are decided wrongly", wrong, len(flows))
	}
	return n
}

func (n *tally) count(f api.Flow, left bool) {
	n.sent++
	if left {
		n.permitted++
	}
	if f.Src.Is6() {
		n.ipv6++
	}
}

// verify reports a wrong verdict, or a packet on the wrong interface.
func (l *lab) verify(truth *oracle.Oracle, f api.Flow, left bool, tag string) string {
	if want := l.expected(truth, f); left != want {
		return fmt.Sprintf("%s: vpp permits it: %t, the oracle: %t", f, left, want)
	}
	to := acl.UplinkTag
	if local, ok := l.Routes[f.Dst]; ok {
		to = local
	}
	if left && tag != to {
		return fmt.Sprintf("%s left through %s, want %s", f, tag, to)
	}
	return ""
}

// expected is the part of the verdict that the ends on this node decide.
func (l *lab) expected(truth *oracle.Oracle, f api.Flow) bool {
	v := truth.Verdict(f)
	return (l.Routes[f.Src] == "" || v.Egress.Allowed) && (l.Routes[f.Dst] == "" || v.Ingress.Allowed)
}

// passes reports whether a flow passes this node, and VPP routes it like any other: its
// tables drop some destinations by themselves.
func (l *lab) passes(f api.Flow) bool {
	return f.Src != f.Dst && l.Routes[f.Src]+l.Routes[f.Dst] != "" && vpptest.Routable(f.Src) && vpptest.Routable(f.Dst)
}

// TestVPPRandomClusters brings one VPP from one random cluster to the next, and through the events
// of each, with a new agent for every one. VPP remembers each flow that a pod tries, so not all of
// them are asked: it has room for 500 000.
func TestVPPRandomClusters(t *testing.T) {
	clusters := 12
	if testing.Short() {
		clusters = 3
	}
	p := vpptest.NewNetwork(vpptest.Launch(t))
	judgeRandomClusters(t, clusters, 200_000/(clusters*(randomSteps+1)), func(seed int) *lab {
		l := newLab(t, p, "node-0")
		l.asked = uint16(seed * (randomSteps + 1))
		return l
	})
}

// randomSteps is the number of events of each random cluster.
const randomSteps = 4

// judgeRandomClusters brings a new lab through each random cluster and its events. It compares what
// becomes of so many packets after each event with the oracle.
func judgeRandomClusters(t *testing.T, clusters, packets int, start func(seed int) *lab) {
	t.Helper()
	var total tally
	for seed := range clusters {
		l, before := start(seed), world{}
		for i, step := range cluster.RandomSequence(uint64(seed), cluster.Config{Namespaces: 3, Nodes: 2, Pods: 10, Policies: 8, IPv6: true, Odd: true}, randomSteps) {
			w := worldOf(step.State)
			l.apply(model.Changes{Resync: i == 0, Deltas: w.since(before)})
			before = w
			n := l.judge(t, step.State, packets)
			if total.add(n); t.Failed() {
				t.Fatalf("cluster %d, step %d: %s", seed, i, step.What)
			}
		}
		closing(t, l.real)
		closing(t, l.twin)
	}
	t.Logf("%d clusters and %d steps each: %s", clusters, randomSteps, total)
	atLeast(t, "permitted packets", total.permitted, 1000*clusters)
	atLeast(t, "denied packets", total.sent-total.permitted, 1000*clusters)
}

// TestVPPSCTP pins down the limit: VPP sees no ports of SCTP, so rules that name one
// never match. Nothing may get through that the oracle denies. One direction is asked
// at a time, because without ports all flows of the other would be answers to it.
func TestVPPSCTP(t *testing.T) {
	w := shop(t)
	np := w.policy("data", "redis")
	sctp, port := corev1.ProtocolSCTP, intstr.FromInt32(3868)
	np.Spec.Ingress[0].Ports = append(np.Spec.Ingress[0].Ports, networkingv1.NetworkPolicyPort{Protocol: &sctp, Port: &port})
	w.put(np)
	out := w.policy("shop", "cart")
	out.Spec.Egress[0].Ports = nil
	w.put(out)
	for name, forward := range map[string]bool{"to the larger address": true, "to the smaller address": false} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, vpptest.NewNetwork(vpptest.Launch(t)), "node-1")
			l.apply(w.resync())
			var packets []vpptest.Packet
			var flows []api.Flow
			for f := range cluster.FlowSpace(w.state()).All() {
				if f.Protocol == api.SCTP && f.Src.Less(f.Dst) == forward && l.passes(f) {
					packets = append(packets, vpptest.First(f, uint32(len(flows))))
					flows = append(flows, f)
				}
			}
			left := l.Send(packets).Left
			truth, closed := oracle.New(w.state()), 0
			for i, f := range flows {
				_, permitted := left[uint32(i)]
				want := l.expected(truth, f)
				if permitted && !want {
					t.Errorf("%s is permitted, the oracle denies it", f)
				}
				if !permitted && want {
					closed++
				}
			}
			t.Logf("%d flows, %d permitted, %d closed although a port rule permits them", len(flows), len(left), closed)
			atLeast(t, "permitted flows", len(left), 100)
			if f := (api.Flow{Src: addressOf(w, "shop", "cart-0"), Dst: addressOf(w, "data", "redis-0"), Protocol: api.SCTP, DstPort: 3868}); f.Src.Less(f.Dst) == forward {
				if !truth.Allowed(f) || closed != 1 {
					t.Errorf("%d flows are closed, want the one to the port that a rule names", closed)
				}
			}
		})
	}
}

func addressOf(w world, namespace, name string) netip.Addr {
	return netip.MustParseAddr(w.pod(namespace, name).Status.PodIP)
}

// atLeast fails a test that has too little to say.
func atLeast(tb testing.TB, what string, n, least int) {
	tb.Helper()
	if n < least {
		tb.Errorf("%d %s, the test says little with fewer than %d", n, what, least)
	}
}
