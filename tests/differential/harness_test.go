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
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/tests/cluster"
)

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
	if err := f.Apply(t.Context(), mustReflect(t, s).all(0)); err != nil {
		t.Fatal(err)
	}
	return f
}

// fleetOf starts a fleet with a state and ends it with the test.
func fleetOf(t *testing.T, s cluster.State) fleet {
	t.Helper()
	f, err := newFleet(s.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, f.close) })
	if err := f.apply(t.Context(), model.Changes{Resync: true, Deltas: mustReflect(t, s).all(0)}); err != nil {
		t.Fatal(err)
	}
	return f
}

func without(s cluster.State, name string) cluster.State {
	s.Policies = slices.DeleteFunc(slices.Clone(s.Policies), func(np *networkingv1.NetworkPolicy) bool { return np.Name == name })
	return s
}

func TestVerdictsThatDifferAreFound(t *testing.T) {
	s := pair(80)
	for _, tt := range []struct {
		name   string
		told   cluster.State // what the fabric is told
		asked  *oracle.Oracle
		differ bool
	}{
		{"nothing", s, oracle.New(s), false},
		{"a policy that the fabric lacks", without(s, "web"), oracle.New(s), true},
		{"a policy that the oracle lacks", s, oracle.New(without(s, "web")), true},
		{"a port", pair(81), oracle.New(s), true},
		{"traffic of nodes", s, oracle.New(s, oracle.AllowNodeTraffic(false)), true},
		{"a pod that the fabric lacks", cluster.State{Namespaces: s.Namespaces, Pods: s.Pods[:1], Policies: s.Policies}, oracle.New(s), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flow, differ := difference(flowsOf(s, 1<<20, 0), tt.asked.Allowed, byFabric(fabricOf(t, tt.told)))
			if differ != tt.differ {
				t.Errorf("a difference was found: %t (%s), want %t", differ, flow, tt.differ)
			}
		})
	}
}

// TestEveryPolicyThatMattersIsMissed takes single policies away from random
// clusters. Whenever the oracle says that one mattered, the dataplane must differ.
func TestEveryPolicyThatMattersIsMissed(t *testing.T) {
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

func TestWhatIsInstalledOtherwiseIsFound(t *testing.T) {
	a, b := fleetOf(t, pair(80)), fleetOf(t, pair(81))
	same, err := fleetOf(t, pair(80))["one"].inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left, err := a["one"].inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	right, err := b["one"].inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := left.diff(same); diff != "" {
		t.Errorf("equal nodes differ: %s", diff)
	}
	if left.Plugin == right.Plugin || left.Recorder == right.Recorder || left.Tables == right.Tables || left.Dataplane == right.Dataplane {
		t.Error("a room looks the same although a port differs")
	}
	if left.diff(right) == "" {
		t.Error("no difference is told")
	}
}

func TestEveryOperationLeavesAnImprint(t *testing.T) {
	f := fleetOf(t, pair(80))
	start, told := f.imprints(), f.operations()
	touch := func(s cluster.State) {
		t.Helper()
		if err := f.apply(t.Context(), model.Changes{Resync: true, Deltas: mustReflect(t, s).all(0)}); err != nil {
			t.Fatal(err)
		}
	}
	touch(pair(80))
	if what := f.touched(start); what != "" || f.operations() != told {
		t.Errorf("the same state touches: %s", what)
	}
	touch(pair(81))
	touch(pair(80)) // what is installed is equal again, but it was written twice
	if f.touched(start) == "" || f.operations() == told {
		t.Error("a change that is taken back leaves no imprint")
	}
	before := f.imprints()
	touch(without(pair(80), "web"))
	if f.touched(before) == "" {
		t.Error("a policy that goes leaves no imprint")
	}
}

func TestACLsWithoutUseAreFound(t *testing.T) {
	used := vswitch.ACL{Index: 1, Tag: "sluice:l0:0:00", Outputs: []uint32{3}}
	unused := vswitch.ACL{Index: 2, Tag: "sluice:l1:0:00"}
	foreign := vswitch.ACL{Index: 3, Tag: "of somebody else"}
	if got := leftovers([]vswitch.ACL{used, unused, foreign}); len(got) != 1 {
		t.Errorf("found %v, want acl 2 only", got)
	}
	if acls := fleetOf(t, pair(80))["one"].Switch.ACLs(); len(acls) < 3 || leftovers(acls) != nil {
		t.Errorf("a node has %d ACLs, unused are %v", len(acls), leftovers(acls))
	}
}

func TestWrongExplanationsAreFound(t *testing.T) {
	o := oracle.New(pair(80))
	flow := api.Flow{Src: addr("10.1.0.2"), Dst: addr("10.1.0.1"), Protocol: api.TCP, SrcPort: sourcePort, DstPort: 80}
	web := api.PolicyID{Namespace: "shop", Name: "web"}
	permit := renderer.Decision{Action: api.Permit, Origins: []api.Origin{{Policy: web}}}
	deny := renderer.Decision{Origins: []api.Origin{{Policy: web, Rule: api.IsolationRule}}}
	other := renderer.Decision{Action: api.Permit, Origins: []api.Origin{{Policy: web, Rule: 1}}}
	closed := flow
	closed.DstPort = 81
	for _, tt := range []struct {
		name      string
		flow      api.Flow
		decisions []renderer.Decision
		wrong     bool
	}{
		{"right", flow, []renderer.Decision{permit}, false},
		{"right, denied", closed, []renderer.Decision{deny}, false},
		{"another rule", flow, []renderer.Decision{other}, true},
		{"denied, but it is not", flow, []renderer.Decision{deny}, true},
		{"allowed, but it is not", closed, []renderer.Decision{permit}, true},
		{"denied for no reason", closed, []renderer.Decision{{}}, true},
		{"denied by another rule", closed, []renderer.Decision{{Origins: other.Origins}}, true},
	} {
		if why := misexplained(o.Verdict(tt.flow), tt.decisions); (why != "") != tt.wrong {
			t.Errorf("%s: %q", tt.name, why)
		}
	}
}

// TestSessionsAreSeen lets api, which nobody may reach, call web: the reply passes
// for its session's sake only, and the session ends with its permission.
func TestSessionsAreSeen(t *testing.T) {
	told := func(port int32) cluster.State {
		s := pair(port)
		s.Policies = append(s.Policies, s.Policies[0].DeepCopy())
		api := s.Policies[1]
		api.Name, api.Spec.PodSelector.MatchLabels, api.Spec.Ingress = "api", map[string]string{"app": "api"}, nil
		return s
	}
	f := fleetOf(t, told(80))
	w := f.wires()
	flow := api.Flow{Src: addr("10.1.0.2"), Dst: addr("10.1.0.1"), Protocol: api.TCP, SrcPort: sourcePort, DstPort: 80}
	if w.reply(flow) {
		t.Error("a reply to nothing arrives")
	}
	if !w.first(flow) || !w.reply(flow) {
		t.Error("an allowed flow or its reply does not arrive")
	}
	if n := len(f["one"].Switch.Sessions()) + len(f["two"].Switch.Sessions()); n == 0 {
		t.Error("no session is left behind")
	}
	if err := f.apply(t.Context(), model.Changes{Deltas: mustReflect(t, told(81)).all(0)}); err != nil {
		t.Fatal(err)
	}
	if w.first(flow) {
		t.Error("an established flow goes on although it is not allowed any more")
	}
}
