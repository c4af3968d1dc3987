package vpp

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// shapes have 110 local pods each: on the second the incumbent was measured.
var shapes = []shape{{Pods: 1000, Policies: 1000, Local: 110}, {Pods: 10_000, Policies: 5000, Local: 110}}

// bench is a node of a shape on a VPP, up to date.
type bench struct {
	*lab
	b     *testing.B
	world world
	in    model.Changes
}

// newBench starts VPP and gives it the interfaces, but nothing to enforce.
func newBench(b *testing.B, s shape) *bench {
	b.Helper()
	x := &bench{lab: &lab{Network: vpptest.NewNetwork(vpptest.Launch(b)), tb: b}, b: b, world: worldOf(s.state())}
	x.in = x.world.resync()
	x.twin = startNode(b, measuredNode, acl.Options{})
	x.tell(x.twin, x.in)
	x.Grow(x.twin.Switch)
	return x
}

// tell returns when a node enforces the changes.
func (x *bench) tell(n half, c model.Changes) {
	x.b.Helper()
	ctx, cancel := vpptest.Bounded(x.b)
	defer cancel()
	if err := n.Apply(ctx, c); err != nil {
		x.b.Fatal(err)
	}
}

// start starts the node with VPP and sends it everything.
func (x *bench) start() {
	x.b.Helper()
	x.real = startNode(x.b, measuredNode, acl.Options{Socket: x.Socket()})
	x.tell(x.real, x.in)
}

// check compares with the embedded dataplane, and with the oracle on a sample, and
// reports how much VPP holds. Slots that were taken in another order have other names,
// so it is only for nodes that have seen the same.
func (x *bench) check() {
	x.b.Helper()
	c := x.compare(x.b)
	x.b.ReportMetric(float64(len(c.ACLs)), "acls")
	x.b.ReportMetric(float64(c.rules()), "entries")
	x.sample()
}

// sample sends, to every local pod, a packet that some policy permits, and one to a neighbouring
// port.
func (x *bench) sample() {
	x.b.Helper()
	s := x.world.state()
	peers, policies := map[[2]string]*corev1.Pod{}, map[[2]string]*networkingv1.NetworkPolicy{}
	for _, p := range s.Pods {
		if p.Spec.NodeName != measuredNode {
			peers[[2]string{p.Namespace, p.Labels["role"]}] = p
		}
	}
	for _, np := range s.Policies {
		policies[[2]string{np.Namespace, np.Spec.PodSelector.MatchLabels["app"]}] = np
	}
	var flows []api.Flow
	for _, p := range s.Pods {
		np := policies[[2]string{p.Namespace, p.Labels["app"]}]
		if p.Spec.NodeName != measuredNode || np == nil {
			continue
		}
		r := np.Spec.Ingress[0]
		peer, port := peers[[2]string{p.Namespace, r.From[0].PodSelector.MatchLabels["role"]}], uint16(r.Ports[0].Port.IntVal)
		if peer == nil {
			continue
		}
		f := api.Flow{Src: netip.MustParseAddr(peer.Status.PodIP), Dst: netip.MustParseAddr(p.Status.PodIP), Protocol: api.TCP, SrcPort: 40000, DstPort: port}
		beside := f
		beside.DstPort = 22
		flows = append(flows, f, beside)
	}
	n := x.ask(x.b, oracle.New(s), flows)
	if n.permitted < 50 || n.sent-n.permitted < 50 {
		x.b.Errorf("the sample says little: %s", n)
	}
}

// changes counts the messages with which a node changes ACLs, by a trace of VPP.
func (x *bench) changes(do func()) (n int) {
	x.b.Helper()
	x.Do("api trace on")
	do()
	trace := x.CLI("api trace dump")
	x.CLI("api trace free") // says that it has
	for _, message := range []string{"acl_add_replace", "acl_del", "acl_interface_set_acl_list"} {
		n += strings.Count(trace, "vl_api_"+message+"_t:")
	}
	return n
}

func eachShape(b *testing.B, run func(*testing.B, shape)) {
	for _, s := range shapes {
		b.Run(s.String(), func(b *testing.B) { run(b, s) })
	}
}

// BenchmarkVPPStart measures a node that starts with an empty VPP which has the interfaces of all
// its pods: from the connection, with the objects decoded, until everything is enforced.
func BenchmarkVPPStart(b *testing.B) {
	eachShape(b, func(b *testing.B, s shape) {
		x := newBench(b, s)
		for b.Loop() {
			b.StopTimer()
			if x.real.Node != nil {
				closing(b, x.real)
				x.Stop()
				x.reboot()
			}
			b.StartTimer()
			x.start()
		}
		x.check()
	})
}

// BenchmarkVPPAgentRestart measures a node that starts with a VPP which holds everything already.
// It must change nothing.
func BenchmarkVPPAgentRestart(b *testing.B) {
	eachShape(b, func(b *testing.B, s shape) {
		x := newBench(b, s)
		x.start()
		before := x.indexed()
		for b.Loop() {
			b.StopTimer()
			closing(b, x.real)
			b.StartTimer()
			x.start()
		}
		if d := cmp.Diff(before, x.indexed()); d != "" {
			b.Errorf("a restart of the agent changed VPP:\n%s", d)
		}
		x.check()
	})
}

// BenchmarkVPPEqualResync measures a resync of what is known already. It must change
// nothing.
func BenchmarkVPPEqualResync(b *testing.B) {
	eachShape(b, func(b *testing.B, s shape) {
		x := newBench(b, s)
		x.start()
		for b.Loop() {
			x.tell(x.real, x.in)
		}
		if n := x.changes(func() { x.tell(x.real, x.in) }); n > 0 {
			b.Errorf("an equal state caused %d changes of vpp", n)
		}
		x.check()
	})
}

// BenchmarkVPPPod measures a pod of another node that joins and leaves the sets of
// its namespace, and one of this node that comes to an interface which is there.
func BenchmarkVPPPod(b *testing.B) {
	eachShape(b, func(b *testing.B, s shape) {
		for place, name := range []string{"local", "remote"} {
			b.Run(name, func(b *testing.B) {
				x := newBench(b, s)
				x.start()
				home, w := x.home(), maps.Clone(x.world)
				w.put(shapePod(home.Namespace, "new", place*7, 30_000, home.Labels["app"], "r0"))
				x.toggle(w)
			})
		}
	})
}

// BenchmarkVPPPolicy measures a policy for local pods that comes and goes.
func BenchmarkVPPPolicy(b *testing.B) {
	eachShape(b, func(b *testing.B, s shape) {
		x := newBench(b, s)
		x.start()
		home, w := x.home(), maps.Clone(x.world)
		w.put(shapePolicy(home.Namespace, "new", home.Labels["app"], "r1", 443))
		x.toggle(w)
	})
}

// home returns a local pod.
func (x *bench) home() *corev1.Pod {
	for _, p := range x.world.state().Pods {
		if p.Spec.NodeName == measuredNode {
			return p
		}
	}
	x.b.Fatal("no pod is local")
	return nil
}

// toggle goes to another world and back, one way per operation.
func (x *bench) toggle(other world) {
	x.b.Helper()
	ways := [2]model.Changes{{Deltas: other.since(x.world)}, {Deltas: x.world.since(other)}}
	for _, c := range ways { // the first time is not the usual one
		x.tell(x.twin, c)
		x.Grow(x.twin.Switch)
		x.tell(x.real, c)
	}
	calls := x.changes(func() { x.tell(x.real, ways[0]) }) + x.changes(func() { x.tell(x.real, ways[1]) })
	i := 0
	for x.b.Loop() {
		x.tell(x.real, ways[i%2])
		i++
	}
	x.b.ReportMetric(float64(calls)/2, "changes/op")
	if i%2 == 1 {
		x.tell(x.twin, ways[0])
		x.world = other
	}
	x.check()
}

// BenchmarkVPPRestart measures a restart of VPP beneath a running node: from the
// moment that its socket answers until all is enforced. An operation includes making
// the interfaces, which is the work of the CNI plugin; after-interfaces-ms is the time
// from the last one.
func BenchmarkVPPRestart(b *testing.B) {
	eachShape(b, func(b *testing.B, s shape) {
		x := newBench(b, s)
		x.start()
		var after time.Duration
		n := 0
		for b.Loop() {
			b.StopTimer()
			x.Stop()
			x.Start()
			b.StartTimer()
			x.reattach()
			x.Grow(x.twin.Switch)
			there := time.Now()
			vpptest.Eventually(b, "everything to be enforced", x.enforced)
			after += time.Since(there)
			n++
		}
		b.ReportMetric(float64(after.Milliseconds())/float64(n), "after-interfaces-ms")
		x.compare(b)
		x.sample()
	})
}

// enforced reports whether the renderer is done and every pod's interface has ACLs, by
// asking VPP.
func (x *bench) enforced() bool {
	s := x.real.ACL.State()
	if s.Err != nil || len(s.Pending) > 0 || len(x.real.ACL.Endpoints()) == 0 {
		return false
	}
	want, bound := 0, 0
	for _, i := range x.twin.Switch.Interfaces() {
		want += min(1, len(i.Outputs))
	}
	for _, b := range contentsOf(x.b, x.Conn).Bound {
		bound += min(1, len(b.Out))
	}
	return bound == want
}

// reboot starts VPP anew and gives it the interfaces again.
func (x *bench) reboot() {
	x.Start()
	x.reattach()
	x.Grow(x.twin.Switch)
}

// reattach prepares a VPP that was started anew.
func (x *bench) reattach() { x.Network = vpptest.NewNetwork(x.Process) }

// indexed is what VPP holds with the indexes that it has chosen.
func (x *bench) indexed() string {
	return fmt.Sprint(x.CLI("show acl-plugin acl"), x.CLI("show acl-plugin interface"))
}
