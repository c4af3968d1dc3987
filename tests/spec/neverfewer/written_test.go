package neverfewer

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// town is a cluster that the written cases start from, and change.
func town(policies ...*networkingv1.NetworkPolicy) cluster.State {
	s := cluster.State{Policies: policies}
	for i := range 2 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.0.%d", i+1)}}
		s.Nodes = append(s.Nodes, n)
	}
	for _, name := range []string{"shop", "town"} {
		s.Namespaces = append(s.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}})
	}
	s.Pods = []*corev1.Pod{
		pod("shop", "db", 0, "10.1.0.1", "app", "db"),
		pod("shop", "web", 0, "10.1.0.2", "app", "web", "tier", "front"),
		pod("shop", "api", 1, "10.1.1.1", "app", "api", "tier", "back"),
		pod("town", "web", 1, "10.1.1.2", "app", "web"),
		pod("town", "mayor", 0, "10.1.0.3", "app", "mayor"),
	}
	return s
}

// pod is a running pod with labels.
func pod(namespace, name string, on int, address string, labels ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: pairs(labels)}}
	p.Spec.NodeName = fmt.Sprintf("node-%d", on)
	host := fmt.Sprintf("192.168.0.%d", on+1)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: host, HostIPs: []corev1.HostIP{{IP: host}}, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}}
	return p
}

func pairs(list []string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(list); i += 2 {
		out[list[i]] = list[i+1]
	}
	return out
}

// ofDB is a policy that selects db.
func ofDB(rules ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	np.Spec.PodSelector.MatchLabels = map[string]string{"app": "db"}
	np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	np.Spec.Ingress = rules
	return np
}

// from is a rule for pods of the namespace with labels, on a port; 0 is every port.
func from(port int, labels ...string) (r networkingv1.NetworkPolicyIngressRule) {
	r.From = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: pairs(labels)}}}
	if port > 0 {
		number := intstr.FromInt(port)
		r.Ports = []networkingv1.NetworkPolicyPort{{Port: &number}}
	}
	return r
}

// large gives a policy thousands of further rules.
func large(np *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	np.Annotations = map[string]string{bulk: "4000"}
	return np
}

// forbidding is an administrators' policy that denies what comes from namespaces of a name.
func forbidding(namespace string) *v1alpha2.ClusterNetworkPolicy {
	return &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "forbidding"}, Spec: v1alpha2.ClusterNetworkPolicySpec{
		Tier: v1alpha2.AdminTier, Priority: 10,
		Subject: v1alpha2.ClusterNetworkPolicySubject{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "shop"}}},
		Ingress: []v1alpha2.ClusterNetworkPolicyIngressRule{{Action: v1alpha2.ClusterNetworkPolicyRuleActionDeny,
			From: []v1alpha2.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"name": namespace}}}}}},
	}}
}

// with returns a state with other objects in it.
func with(s cluster.State, edits ...cluster.Edit) cluster.State { return cluster.Edited(s, edits) }

func put(np *networkingv1.NetworkPolicy) cluster.Edit {
	return cluster.Edit{Kind: "NetworkPolicy", Namespace: np.Namespace, Name: np.Name, Object: np}
}

func running(p *corev1.Pod) cluster.Edit {
	return cluster.Edit{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Object: p}
}

func gone(kind, namespace, name string) cluster.Edit {
	return cluster.Edit{Kind: kind, Namespace: namespace, Name: name}
}

func named(np *networkingv1.NetworkPolicy, name string) *networkingv1.NetworkPolicy {
	np.Name = name
	return np
}

// written are states, and the states that follow them: what has gone wrong, or nearly.
var written = []struct {
	name   string
	states []cluster.State
}{
	{"a selector is narrowed, and what it selects is still selected", states(town(ofDB(from(0, "app", "web"))),
		put(ofDB(from(0, "app", "web", "tier", "front"))))},
	{"a selector is narrowed in a list of thousands of rules", states(town(large(ofDB(from(0, "app", "web")))),
		put(large(ofDB(from(0, "app", "web", "tier", "front")))))},
	{"a list becomes one of thousands of rules and ends to name a set", states(town(ofDB(from(0, "app", "web"))),
		put(large(ofDB(from(0, "tier", "front")))))},
	{"an address joins a set of which another port becomes open", states(town(ofDB(from(443, "app", "web"))),
		put(ofDB(from(80, "app", "web"))), running(pod("shop", "api", 1, "10.1.1.1", "app", "web")))},
	{"an address leaves a set, and is permitted by another one", states(town(ofDB(from(0, "tier", "front"))),
		put(ofDB(from(0, "tier", "front"), from(0, "app", "web"))), running(pod("shop", "web", 0, "10.1.0.2", "app", "web")))},
	{"two rules exchange their sets, which exchange a member", states(town(ofDB(from(80, "app", "web"), from(443, "app", "api"))),
		put(ofDB(from(443, "app", "web"), from(80, "app", "api"))),
		running(pod("shop", "web", 0, "10.1.0.2", "app", "api")), running(pod("shop", "api", 1, "10.1.1.1", "app", "web")))},
	{"a policy goes and another one says the same", states(town(ofDB(from(0, "app", "web"))),
		gone("NetworkPolicy", "shop", "db"), put(named(ofDB(from(0, "app", "web")), "new")))},
	{"a policy is deleted when a wider one comes", states(town(ofDB(from(80, "app", "web"))),
		gone("NetworkPolicy", "shop", "db"), put(named(ofDB(from(0, "tier", "front"), from(0, "app", "web")), "new")))},
	{"what an administrator denies goes with its namespace, and another policy denies it", states(
		with(town(ofDB(from(0, "app", "web"))), cluster.Edit{Kind: "ClusterNetworkPolicy", Name: "forbidding", Object: forbidding("town")}),
		gone("Namespace", "", "town"), put(ofDB(from(80, "app", "web"))))},
	{"a namespace gets a label by which an administrator denies it", states(
		with(town(), cluster.Edit{Kind: "ClusterNetworkPolicy", Name: "forbidding", Object: forbidding("other")}),
		cluster.Edit{Kind: "Namespace", Name: "town", Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "town", Labels: map[string]string{"name": "other"}}}},
		put(ofDB(from(0, "app", "web"))))},
	{"an address goes from one pod to another", states(town(ofDB(from(0, "app", "web"))),
		gone("Pod", "shop", "web"), running(pod("town", "new", 0, "10.1.0.2", "app", "web")))},
	{"a pod of a policy gets another address", states(town(ofDB(from(0, "app", "web"))),
		running(pod("shop", "db", 0, "10.1.0.9", "app", "db")), put(ofDB(from(0, "app", "web", "tier", "front"))))},
	{"a policy isolates, and stops to", states(town(), put(ofDB(from(80, "app", "web"))))},
}

// states is a state, the one that edits make of it, and the first again.
func states(s cluster.State, edits ...cluster.Edit) []cluster.State {
	return []cluster.State{s, cluster.Edited(s, edits), s}
}

// flowsOfState is about how many flows of a written state are asked besides those between pods on a
// port that policies name, unless it is all.
const flowsOfState = 80

// caseOf makes a case of states.
func caseOf(all []cluster.State) Case {
	c := Case{}
	before := cluster.State{}
	for i, s := range all {
		c.Steps = append(c.Steps, Step{What: fmt.Sprintf("state %d", i), Edits: cluster.Between(before, s)})
		space := cluster.FlowSpace(s)
		stride := 1 | space.Size()/renderertest.Extent(flowsOfState, flowsOfState, space.Size())
		i := 0
		for f := range space.All() {
			named := f.Protocol == api.TCP && (f.DstPort == 80 || f.DstPort == 443) && slices.Contains(space.Pods, f.Src) && slices.Contains(space.Pods, f.Dst)
			if (named || i%stride == 0) && !slices.Contains(c.Flows, f) {
				c.Flows = append(c.Flows, f)
			}
			i++
		}
		before = s
	}
	c.Steps = append(c.Steps, Step{What: "nothing"}) // which enforces what was left
	return c
}

// firstCalls of a step fail one after the other, later ones at growing distances.
const firstCalls = 8

// TestNeverFewerWritten plays the written cases on every renderer: once without a
// failure, then with each call of a step failing, the first time that the step is tried or a second time as well, and with a restart of the agent.
func TestNeverFewerWritten(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			var sum counts
			for _, w := range written {
				t.Run(w.name, func(t *testing.T) {
					playWritten(t, k, caseOf(w.states), &sum)
				})
			}
			t.Logf("%+v", sum)
		})
	}
}

func playWritten(t *testing.T, k kind, c Case, sum *counts) {
	t.Helper()
	isLarge := slices.ContainsFunc(c.Steps, func(s Step) bool {
		return slices.ContainsFunc(s.Edits, func(e cluster.Edit) bool { return e.Object != nil && e.Object.GetAnnotations()[bulk] != "" })
	})
	if isLarge && k.slow && !renderertest.Whole() {
		return
	}
	play := func(c Case) counts {
		n, v, err := c.run(t.Context(), k)
		sum.add(n)
		switch {
		case err != nil:
			t.Fatal(err)
		case v != nil:
			t.Fatalf("steps %v: %v", c.Steps, v)
		}
		return n
	}
	play(c)
	for step := 1; step < len(c.Steps)-1; step++ {
		for n := 1; ; n += 1 + n/firstCalls*renderertest.Extent(8, 2, 1)*n/firstCalls {
			failing := c
			failing.Steps = slices.Clone(c.Steps)
			failing.Steps[step].Fail = []int{n}
			if n%2 == 0 {
				failing.Steps[step].Fail = []int{n, 1 + n/2}
			}
			failing.Steps[step].Restart = n%5 == 0
			failing.Steps[step].Leave = n%3 == 0
			if play(failing).failures == 0 || isLarge && renderertest.Few() {
				break
			}
		}
	}
}
