package vpp

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// shape is the size of a cluster on which the incumbent was measured: 100 pods per namespace, and
// policies that each let the pods of a role reach the pods of an app on one TCP port. Local of the
// pods, spread over all namespaces, are on the node that is measured. Its objects are what an API
// server would hold, a function of the fields, and made anew by every call.
type shape struct{ Pods, Policies, Local int }

// measuredNode is the name of the node that is measured.
const measuredNode = "node-0"

const (
	podsPerNamespace = 100
	nodes            = 100
	apps, roles      = 10, 5
)

// String names the shape in benchmarks.
func (s shape) String() string {
	return fmt.Sprintf("%dpods-%dpolicies-%dlocal", s.Pods, s.Policies, s.Local)
}

// state returns all objects of the cluster.
func (s shape) state() oracle.State {
	var out oracle.State
	for i := range s.namespaces() {
		name := namespaceOf(i)
		out.Namespaces = append(out.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelMetadataName: name, "team": fmt.Sprintf("t%d", i%10)}}})
	}
	onNode := make([]int, nodes) // how many pods a node has
	for i, place := range rand.New(rand.NewPCG(1, 1)).Perm(s.Pods) {
		n := 0
		if place >= s.Local {
			n = 1 + place%(nodes-1)
		}
		onNode[n]++
		out.Pods = append(out.Pods, shapePod(namespaceOf(i/podsPerNamespace), fmt.Sprintf("pod-%d", i), n, onNode[n],
			fmt.Sprintf("a%d", i%apps), fmt.Sprintf("r%d", i/apps%roles)))
	}
	for i := range s.Policies {
		out.Policies = append(out.Policies, s.policy(i))
	}
	return out
}

func (s shape) namespaces() int { return max(1, s.Pods/podsPerNamespace) }

func namespaceOf(i int) string { return fmt.Sprintf("ns-%d", i) }

// policy returns the i-th policy of the shape.
func (s shape) policy(i int) *networkingv1.NetworkPolicy {
	k := i / s.namespaces() // of the namespace
	return shapePolicy(namespaceOf(i%s.namespaces()), fmt.Sprintf("np-%d", i),
		fmt.Sprintf("a%d", k%apps), fmt.Sprintf("r%d", k/apps%roles), int32(1000+i%1000))
}

// shapePod returns a running pod with the place-th address of a node, counted from one.
func shapePod(namespace, name string, node, place int, app, role string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app, "role": role}}}
	p.Spec.NodeName = fmt.Sprintf("node-%d", node)
	p.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}
	p.Status.Phase = corev1.PodRunning
	p.Status.HostIP = fmt.Sprintf("192.168.0.%d", 1+node)
	p.Status.HostIPs = []corev1.HostIP{{IP: p.Status.HostIP}}
	p.Status.PodIP = fmt.Sprintf("10.%d.%d.%d", 1+node, place/250, 1+place%250)
	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	return p
}

// shapePolicy lets the pods of a role reach those of an app of their namespace on a port.
func shapePolicy(namespace, name, app, role string, port int32) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	np.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	protocol, number := corev1.ProtocolTCP, intstr.FromInt32(port)
	np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}}},
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: &protocol, Port: &number}},
	}}
	return np
}

func TestShapeHasItsSizes(t *testing.T) {
	s := shape{Pods: 1000, Policies: 200, Local: 30}
	state := s.state()
	local, addresses := 0, map[string]bool{}
	for _, p := range state.Pods {
		if p.Spec.NodeName == measuredNode {
			local++
		}
		addresses[p.Status.PodIP] = true
	}
	if len(state.Pods) != 1000 || len(addresses) != 1000 || len(state.Policies) != 200 || len(state.Namespaces) != 10 || local != 30 {
		t.Errorf("%d pods with %d addresses, %d of them local, %d policies, %d namespaces",
			len(state.Pods), len(addresses), local, len(state.Policies), len(state.Namespaces))
	}
	if d := cmp.Diff(state, s.state()); d != "" {
		t.Errorf("another call made other objects: %s", d)
	}
}
