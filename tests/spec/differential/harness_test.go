package differential

import (
	"log/slog"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// sourcePort is that of all flows: no policy can distinguish source ports.
const sourcePort = 49152

// pair is two pods on two nodes, of which web is open on one port only.
func pair(port int32) cluster.State {
	number := intstr.FromInt32(port)
	return cluster.State{
		Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}},
		Nodes:      []*corev1.Node{nodeAt("one", "192.168.0.1"), nodeAt("two", "192.168.0.2")},
		Pods: []*corev1.Pod{
			livePod("web", "one", "192.168.0.1", "10.1.0.1", "fd00::1"),
			livePod("api", "two", "192.168.0.2", "10.1.0.2", "fd00::2"),
		},
		Policies: []*networkingv1.NetworkPolicy{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{
					From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}},
					Ports: []networkingv1.NetworkPolicyPort{{Port: &number}},
				}},
			},
		}},
	}
}

func nodeAt(name, addr string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
	return n
}

// livePod is a running pod of namespace shop with its name as label app.
func livePod(name, node, host string, addrs ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}}}
	p.Spec.NodeName = node
	p.Status.Phase, p.Status.HostIP = corev1.PodRunning, host
	for _, a := range addrs {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	p.Status.PodIP = addrs[0]
	return p
}

// fabricOf starts a fabric with a state and ends it with the test.
func fabricOf(t *testing.T, s cluster.State) *node.Fabric {
	t.Helper()
	f := node.NewFabric(slog.New(slog.DiscardHandler), true)
	t.Cleanup(func() { closing(t, f.Close) })
	if err := f.Apply(t.Context(), mustReflect(t, s).All(0)); err != nil {
		t.Fatal(err)
	}
	return f
}

// fleetOf starts a fleet with a state and ends it with the test.
func fleetOf(t *testing.T, kind backends.Kind, s cluster.State) *harness.Cluster {
	t.Helper()
	f, err := harness.New(kind, harness.NamesOf(s.Nodes), harness.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, f.Close) })
	if err := f.Apply(t.Context(), model.Changes{Resync: true, Deltas: mustReflect(t, s).All(0)}); err != nil {
		t.Fatal(err)
	}
	return f
}

func without(s cluster.State, name string) cluster.State {
	s.Policies = slices.DeleteFunc(slices.Clone(s.Policies), func(np *networkingv1.NetworkPolicy) bool { return np.Name == name })
	return s
}

func TestPlayFindsDifferentVerdicts(t *testing.T) {
	s := pair(80)
	for _, tt := range []struct {
		name     string
		received cluster.State // the state that the fabric received
		asked    *oracle.Oracle
		differ   bool
	}{
		{"nothing", s, oracle.New(s), false},
		{"a policy that the fabric lacks", without(s, "web"), oracle.New(s), true},
		{"a policy that the oracle lacks", s, oracle.New(without(s, "web")), true},
		{"a port", pair(81), oracle.New(s), true},
		{"traffic of nodes", s, oracle.New(s, oracle.AllowNodeTraffic(false)), true},
		{"a pod that the fabric lacks", cluster.State{Namespaces: s.Namespaces, Pods: s.Pods[:1], Policies: s.Policies}, oracle.New(s), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flow, differ := difference(flowsOf(s, 1<<20, 0), tt.asked.Allowed, byFabric(fabricOf(t, tt.received)))
			if differ != tt.differ {
				t.Errorf("a difference was found: %t (%s), want %t", differ, flow, tt.differ)
			}
		})
	}
}

// TestPlayMissesEveryNeededPolicy takes single policies away from random
// clusters. Whenever the oracle says that one mattered, the dataplane must differ.
func TestPlayMissesEveryNeededPolicy(t *testing.T) {
	t.Parallel()
	mattered := 0
	for seed := range uint64(4) {
		s := cluster.Random(seed, cluster.Small())
		for _, np := range s.Policies {
			less := without(s, np.Name)
			flow, matters := difference(flowsOf(s, 1000, seed), oracle.New(s).Allowed, oracle.New(less).Allowed)
			if !matters {
				continue
			}
			mattered++
			if byFabric(fabricOf(t, less))(flow) == oracle.New(s).Allowed(flow) {
				t.Errorf("seed %d: %s is not missed for %s", seed, np.Name, flow)
			}
		}
	}
	if mattered < 8 {
		t.Errorf("only %d policies mattered", mattered)
	}
}

func TestPlayFindsDifferentRules(t *testing.T) {
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		inspect := func(port int32) harness.Installed {
			i, err := fleetOf(t, kind, pair(port)).Node("one").Inspect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return i
		}
		left, same, right := inspect(80), inspect(80), inspect(81)
		if diff := left.Diff(same); diff != "" {
			t.Errorf("equal nodes differ: %s", diff)
		}
		if left.Plugin == right.Plugin || left.Desired == right.Desired || left.Backend == right.Backend {
			t.Error("a room looks the same although a port differs")
		}
		if left.Diff(right) == "" {
			t.Error("no difference is reported")
		}
	})
}

func TestCountsCoverEveryOperation(t *testing.T) {
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		f := fleetOf(t, kind, pair(80))
		last := f.Operations()
		touch := func(s cluster.State, want bool) {
			t.Helper()
			if err := f.Apply(t.Context(), model.Changes{Resync: true, Deltas: mustReflect(t, s).All(0)}); err != nil {
				t.Fatal(err)
			}
			if n := f.Operations() - last; (n > 0) != want {
				t.Errorf("%d operations", n)
			}
			last = f.Operations()
		}
		touch(pair(80), false)
		touch(pair(81), true)
		touch(pair(80), true) // what is installed is equal again, but it was written twice
		touch(without(pair(80), "web"), true)
	})
}

// TestPlayFindsSessionFaults lets api, which no pod may connect to, call web: the reply passes only
// because of its session, and the session ends with its permission.
func TestPlayFindsSessionFaults(t *testing.T) {
	received := func(port int32) cluster.State {
		s := pair(port)
		s.Policies = append(s.Policies, s.Policies[0].DeepCopy())
		api := s.Policies[1]
		api.Name, api.Spec.PodSelector.MatchLabels, api.Spec.Ingress = "api", map[string]string{"app": "api"}, nil
		return s
	}
	flow := api.Flow{Src: addr("10.1.0.2"), Dst: addr("10.1.0.1"), Protocol: api.TCP, SrcPort: sourcePort, DstPort: 80}
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		f := fleetOf(t, kind, received(80))
		if !f.IsStateful() {
			t.Skip("the stack keeps no sessions")
		}
		if f.Reply(flow) {
			t.Error("a reply to nothing arrives")
		}
		if !f.First(flow) || !f.Reply(flow) {
			t.Error("an allowed flow or its reply does not arrive")
		}
		if err := f.Apply(t.Context(), model.Changes{Deltas: mustReflect(t, received(81)).All(0)}); err != nil {
			t.Fatal(err)
		}
		if f.First(flow) {
			t.Error("an established flow goes on although it is not allowed any more")
		}
	})
}
