package faults

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
	"github.com/sluice-net/sluice/tests/conformance"
	"github.com/sluice-net/sluice/tests/conformance/replay"
)

const (
	sidecars   = "named ports of sidecars are not found"
	priorities = "a new priority is not followed"
	nodeLabels = "new labels of a node are not followed"
)

// rare lists faults that random clusters notice in one of dozens or hundreds; the tests
// below notice them.
var rare = map[string]bool{
	sidecars: true, priorities: true, nodeLabels: true, "new labels of a namespace are not followed": true,
}

func TestFaultsChangeVerdicts(t *testing.T) {
	if testing.Short() {
		t.Skip("looks for clusters that notice a fault")
	}
	names := map[string]bool{}
	for _, f := range All {
		if names[f.Name] {
			t.Errorf("two faults are called %q", f.Name)
		}
		names[f.Name] = true
		if rare[f.Name] {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(100) {
				if f.differs(cluster.RandomSequence(seed, cluster.Small(), 15), seed, 200) {
					return
				}
			}
			t.Error("no random cluster notices it")
		})
	}
	for name := range rare {
		if !names[name] {
			t.Errorf("there is no fault called %q", name)
		}
	}
}

// TestFaultForgetsSidecars is the case that random clusters hardly ever have: a port
// name that only a sidecar has, in the only rule that permits.
func TestFaultForgetsSidecars(t *testing.T) {
	s := cluster.Random(1, cluster.Config{Namespaces: 1, Nodes: 1, Pods: 2})
	flow := api.Flow{Protocol: api.TCP, SrcPort: 40000, DstPort: 15001}
	always, port := corev1.ContainerRestartPolicyAlways, intstr.FromString("mesh")
	for i, p := range s.Pods {
		*p = corev1.Pod{ObjectMeta: p.ObjectMeta}
		p.Namespace = s.Namespaces[0].Name
		p.Status.PodIP = []string{"10.9.0.1", "10.9.0.2"}[i]
		p.Spec.InitContainers = []corev1.Container{{RestartPolicy: &always,
			Ports: []corev1.ContainerPort{{Name: "mesh", ContainerPort: 15001, Protocol: corev1.ProtocolTCP}}}}
	}
	np := &networkingv1.NetworkPolicy{}
	np.Namespace, np.Name = s.Namespaces[0].Name, "mesh"
	np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &port}}}}
	s.Policies = []*networkingv1.NetworkPolicy{np}
	o := oracle.New(s)
	flow.Src, flow.Dst = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	for _, f := range All {
		if got := f.begin()(s)(flow); got == (f.Name == sidecars) || !o.Allowed(flow) {
			t.Errorf("%s: allowed is %t", f.Name, got)
		}
	}
}

// TestFaultForgetsChangesAroundPolicies changes the priority of a policy, or the labels
// of a node, and nothing else.
func TestFaultForgetsChangesAroundPolicies(t *testing.T) {
	src, dst := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	flow := api.Flow{Src: src, Dst: dst, Protocol: api.TCP, SrcPort: 40000, DstPort: 80}
	state := func(priority int, zone string) cluster.State {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.Status.PodIP = "shop", "web", src.String()
		node := &corev1.Node{}
		node.Name, node.Labels = "one", map[string]string{"zone": zone}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: dst.String()}}
		ns := &corev1.Namespace{}
		ns.Name = "shop"
		s := cluster.State{Namespaces: []*corev1.Namespace{ns}, Pods: []*corev1.Pod{pod}, Nodes: []*corev1.Node{node}}
		for i, name := range []string{"allow", "deny"} {
			p := &v1alpha2.ClusterNetworkPolicy{}
			p.Name = name
			convert(tree{
				"tier": "Admin", "priority": []int{10, priority}[i], "subject": tree{"namespaces": tree{}},
				"egress": []tree{{"action": []string{"Accept", "Deny"}[i], "to": []tree{{"nodes": tree{"matchLabels": tree{"zone": "a"}}}}}},
			}, &p.Spec)
			s.ClusterPolicies = append(s.ClusterPolicies, p)
		}
		return s
	}
	for name, states := range map[string][2]cluster.State{
		priorities: {state(20, "a"), state(5, "a")},
		nodeLabels: {state(5, "b"), state(5, "a")},
	} {
		judge := named(t, name).begin()
		if !judge(states[0])(flow) || !judge(states[1])(flow) || oracle.New(states[1]).Allowed(flow) {
			t.Errorf("%s: it makes no difference", name)
		}
	}
}

// TestFaultIsNoticedByItsCases replays the hand-written suite, whose cases are a block
// with an except and a range, a label, and steps that are not asked.
func TestFaultIsNoticedByItsCases(t *testing.T) {
	suite := conformance.Hand(t)
	for name, want := range map[string][2]int{ // recorded addresses, both families
		"except is ignored":                          {1, 1},
		"endPort is ignored":                         {1, 1},
		"endPort is exclusive":                       {1, 1},
		"new labels of a namespace are not followed": {1, 1},
		"a deleted policy goes on":                   {1, 1},
		"ipBlock does not match pods":                {0, 0},
		"NotIn needs the key":                        {0, 0},
		"IPv6 is not filtered":                       {0, 3},
		"a changed policy is not followed":           {0, 0}, // cases begin anew
		"Pass is ignored":                            {1, 1},
		"networks do not match nodes":                {0, 0},
		"the baseline is not asked":                  {1, 1},
		"a Pass of the baseline denies":              {0, 0},
	} {
		f := named(t, name)
		for i, a := range []conformance.Addressing{conformance.Addressings[0], conformance.Addressings[2]} {
			got, err := f.Noticed(t.Context(), suite, a, replay.Options{})
			if err != nil || got != want[i] {
				t.Errorf("%s: %d cases notice it with %s, want %d (%v)", name, got, a.Name, want[i], err)
			}
		}
	}
}

func named(t *testing.T, name string) Fault {
	t.Helper()
	for _, f := range All {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("there is no fault called %q", name)
	return Fault{}
}

// TestEditsKeepState lets every fault see states that are compared afterwards.
func TestEditsKeepState(t *testing.T) {
	for _, f := range All {
		judge := f.begin()
		for _, step := range cluster.RandomSequence(3, cluster.Small(), 6) {
			before := edited(step.State, nil)
			judge(step.State)
			if !cmp.Equal(before, step.State) {
				t.Errorf("%s changes what it is told", f.Name)
			}
		}
	}
}
