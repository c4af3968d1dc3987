package vpp

import (
	"maps"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// shopSteps are what can happen to the shop, one after the other.
var shopSteps = []struct {
	name   string
	change func(w, start world)
}{
	{"the start", func(_, _ world) {}},
	{"a policy is edited", func(w, _ world) {
		np := w.policy("data", "redis")
		np.Spec.Ingress[0].From[0].PodSelector.MatchLabels = map[string]string{"role": "backend"}
		first, last := intstr.FromInt32(6379), int32(6400)
		np.Spec.Ingress[0].Ports = []networkingv1.NetworkPolicyPort{{Port: &first, EndPort: &last}}
		w.put(np)
	}},
	{"a pod is relabelled", func(w, _ world) {
		p := w.pod("shop", "cart-0")
		p.Labels["app"] = "catalog"
		w.put(p)
	}},
	{"a pod is deleted", func(w, _ world) { delete(w, podID("shop", "web-1")) }},
	{"a pod comes with the address of another", func(w, _ world) {
		p := w.pod("shop", "web-0")
		p.Name, p.Status.PodIP = "web-2", "10.10.1.11"
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.10.1.11"}, {IP: "fd00:10:1::11"}}
		w.put(p)
	}},
	{"a namespace is relabelled", func(w, _ world) {
		w.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "other"}}})
	}},
	{"a policy is deleted", func(w, _ world) { delete(w, policyID("shop", "default-deny")) }},
	{"all policies are deleted", func(w, _ world) {
		for id := range w {
			if id.Kind == model.KindNetworkPolicy {
				delete(w, id)
			}
		}
	}},
	{"everything is as at the start", func(w, start world) {
		clear(w)
		maps.Copy(w, start)
	}},
}

// TestVPPShop brings the shop and what happens to it through the whole product down
// to VPP, and compares with the embedded dataplane what VPP holds, and with the oracle
// what VPP does with every packet that could matter.
func TestVPPShop(t *testing.T) {
	l := newLab(t, vpptest.NewNetwork(vpptest.Launch(t)), "node-1")
	t.Logf("tested with vpp %s", l.Version())
	start, w, before, sent := shop(t), shop(t), world{}, 0
	for i, step := range shopSteps {
		step.change(w, start)
		l.apply(model.Changes{Resync: i == 0, Deltas: w.since(before)})
		before = maps.Clone(w)
		t.Run(step.name, func(t *testing.T) {
			c := l.compare(t)
			n := l.judge(t, w.state(), math.MaxInt)
			sent += n.sent
			t.Logf("%d acls with %d rules; %s", len(c.ACLs), c.rules(), n)
		})
	}
	atLeast(t, "packets", sent, 100_000)
}

// TestVPPInterfaceComesLater renders a pod before it has an interface: its packets must wait, and
// those of other pods must not.
func TestVPPInterfaceComesLater(t *testing.T) {
	p := vpptest.NewNetwork(vpptest.Launch(t))
	l := newLab(t, p, "node-1")
	l.apply(shop(t).resync())
	w := shop(t)
	late := w.pod("shop", "web-0")
	late.Name, late.Status.PodIP, late.Status.PodIPs = "late-0", "10.10.1.99", []corev1.PodIP{{IP: "10.10.1.99"}}
	w.put(late)
	np := w.policy("data", "redis")
	np.Spec.Ingress = nil
	w.put(np)
	c := model.Changes{Deltas: w.since(shop(t))}
	ctx, cancel := vpptest.Bounded(t)
	defer cancel()
	if err := l.twin.Apply(ctx, c); err != nil {
		t.Fatal(err)
	}
	enforced := make(chan error, 1)
	go func() { enforced <- l.real.Apply(ctx, c) }()
	vpptest.Eventually(t, "the pod to be pending", func() bool { return len(l.real.ACL.State().Pending) > 0 })
	t.Run("everything else is enforced meanwhile", func(t *testing.T) {
		want, got := embedded(t, l.twin.Switch).Bound, contentsOf(t, l.Conn).Bound
		delete(want, acl.InterfaceTag(api.PodID{Namespace: "shop", Name: "late-0"}))
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-embedded +vpp):\n%s", d)
		}
	})
	l.Grow(l.twin.Switch)
	if err := <-enforced; err != nil {
		t.Fatal(err)
	}
	l.compare(t)
}

// TestVPPKeepsInstalledRules restarts the half of Sluice that remembers. What VPP holds
// must stay as it is, also as long as the new half knows nothing: the store may be
// away for long.
func TestVPPKeepsInstalledRules(t *testing.T) {
	l := newLab(t, vpptest.NewNetwork(vpptest.Launch(t)), "node-1")
	l.apply(shop(t).resync())
	before := l.CLI("show acl-plugin acl")
	same := func(t *testing.T) {
		t.Helper()
		if after := l.CLI("show acl-plugin acl"); after != before {
			t.Errorf("the acls of vpp are others; before:\n%s\nafter:\n%s", before, after)
		}
	}
	closing(t, l.real)
	t.Run("while no agent runs", same)
	l.real = startNode(t, "node-1", acl.Options{Socket: l.Socket()})
	vpptest.Eventually(t, "the agent to connect", func() bool { return l.real.ACL.State().Connected })
	for range 20 { // and to get events of interfaces, each time after its event loop has run
		l.Do("set interface state loop0 down")
		l.Do("set interface state loop0 up")
		if _, err := l.real.Plugin.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("while the agent knows no state", same)
	l.apply(shop(t).resync())
	t.Run("when the agent receives the same state", same)
	l.compare(t)
}
