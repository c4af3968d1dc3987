package bench

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// shape is the input on which the incumbent was measured: 100 pods per namespace,
// and policies that each let the pods of a role reach the pods of an app on one TCP
// port. Some pods, spread over all namespaces, are on one node.
type shape struct {
	pods, policies, local int
	both                  bool // policies isolate egress in the same way
}

var shapes = []shape{{pods: 1000, policies: 1000, local: 100}, {pods: 10_000, policies: 5000, local: 110}}

const (
	podsPerNamespace = 100
	nodes            = 100
	apps, roles      = 10, 5
	node0            = "node-0"
)

// String names the shape in benchmarks.
func (s shape) String() string {
	name := fmt.Sprintf("%dpods-%dpolicies-%dlocal", s.pods, s.policies, s.local)
	if s.both {
		name += "-both"
	}
	return name
}

func (s shape) namespaces() int { return max(1, s.pods/podsPerNamespace) }

func namespaceOf(i int) string { return fmt.Sprintf("ns-%d", i) }

// world makes the objects anew, so that they need not stay in memory during a measurement.
func (s shape) world() world {
	w := world{}
	for i := range s.namespaces() {
		w.apply(putting(namespace(namespaceOf(i), "team", fmt.Sprintf("t%d", i%10))))
	}
	onNode := make([]int, nodes) // how many pods a node has
	for i, place := range rand.New(rand.NewPCG(1, 1)).Perm(s.pods) {
		n := 0
		if place >= s.local {
			n = 1 + place%(nodes-1)
		}
		onNode[n]++
		p := pod(namespaceOf(i/podsPerNamespace), fmt.Sprintf("pod-%d", i), n, podIP(n, onNode[n]),
			"app", fmt.Sprintf("a%d", i%apps), "role", fmt.Sprintf("r%d", i/apps%roles))
		w.apply(putting(p))
	}
	for i := range s.policies {
		w.apply(putting(s.policy(i, int32(1000+i%1000))))
	}
	return w
}

// policy returns the i-th policy of the shape, with a port.
func (s shape) policy(i int, port int32) *networkingv1.NetworkPolicy {
	k := i / s.namespaces() // of the namespace
	peer := networkingv1.NetworkPolicyPeer{PodSelector: matchLabels("role", fmt.Sprintf("r%d", k/apps%roles))}
	np := ingress(namespaceOf(i%s.namespaces()), fmt.Sprintf("np-%d", i), matchLabels("app", fmt.Sprintf("a%d", k%apps)), peer, port)
	if s.both {
		np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		np.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: np.Spec.Ingress[0].From, Ports: np.Spec.Ingress[0].Ports}}
	}
	return np
}

// podIP is the i-th address of the subnet of a node.
func podIP(node, i int) string { return fmt.Sprintf("10.%d.%d.%d", 1+node, i/250, 1+i%250) }

func pairs(kv []string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		out[kv[i]] = kv[i+1]
	}
	return out
}

func namespace(name string, kv ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: pairs(kv)}}
	ns.Labels[corev1.LabelMetadataName] = name
	return ns
}

func pod(namespace, name string, node int, ip string, kv ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: pairs(kv)}}
	p.Spec.NodeName = fmt.Sprintf("node-%d", node)
	p.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}
	p.Status.Phase = corev1.PodRunning
	p.Status.HostIP = fmt.Sprintf("192.168.0.%d", 1+node)
	p.Status.HostIPs = []corev1.HostIP{{IP: p.Status.HostIP}}
	p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	return p
}

func matchLabels(kv ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: pairs(kv)}
}

// ingress returns a policy of one rule with one TCP port.
func ingress(namespace, name string, subject *metav1.LabelSelector, from networkingv1.NetworkPolicyPeer, port int32) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	np.Spec.PodSelector = *subject
	np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{from}, Ports: []networkingv1.NetworkPolicyPort{tcp(port)}}}
	return np
}

func tcp(port int32) networkingv1.NetworkPolicyPort {
	protocol, number := corev1.ProtocolTCP, intstr.FromInt32(port)
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &number}
}
