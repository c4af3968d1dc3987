package shapes

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Node is the node that enforces: the local pods are its.
const Node = "n1"

// Tenant is the namespace of the shape.
const Tenant = "tenant"

// Other is the namespace of another tenant.
const Other = "other"

// Shape is some manifests of one size.
type Shape struct {
	Name string
	Size int // what the table of docs/reference/limits.md has
	What string
	// Objects returns the pods of all nodes and the policies of the tenant.
	Objects func(n int) []any
}

// All lists the shapes, the worst known first.
var All = []Shape{
	{"port lists by address classes", 500, "60 local pods, 67 policies of n scattered ports each, 128 peers in random halves of them", PortListsByClasses},
	{"NotIn by ports", 1500, "n rules: all pods but one, each for a port of its own; 188 pods", NotInByPorts},
	{"NotIn by pods", 1500, "n rules: all pods but one, each for a port of its own; n pods", NotInByPods},
	{"all but one address by ports", 4000, "n rules: 0.0.0.0/0 except one address, each for a port of its own", ExceptOneByPorts},
	{"nested excepts", 4000, "n rules: a block with an exception, many within each other, each for a port of its own", NestedExcepts},
	{"wide ranges", 4000, "n rules: 0.0.0.0/0 except one address, each for a range of ports that overlaps all others", WideRanges},
	{"wide ranges by pods", 1500, "n rules: all pods but one, each for a range that overlaps all others; n pods", WideRangesByPods},
	{"one list for many", 1500, "n rules as in NotIn by ports for 60 pods, each of which has a policy of its own as well", OneListForMany},
	{"blocks by lists", 30000, "n blocks in one policy, 60 pods with a policy of their own that admits all but one network", BlocksByLists},
	{"selectors by ports", 1000, "one rule with n selectors as peers and n ports", SelectorsByPorts},
	{"selectors by ports for many", 1000, "the list of selectors by ports for 60 pods, each of which has a policy of its own as well", SelectorsByPortsForMany},
	{"blocks of IPv6 in each other", 4000, "n rules: blocks of IPv6 in chains within each other, each for a port of its own", NestedIPv6},
}

// Named returns a shape.
func Named(name string) (Shape, bool) {
	i := slices.IndexFunc(All, func(s Shape) bool { return s.Name == name })
	if i < 0 {
		return Shape{}, false
	}
	return All[i], true
}

// Bytes is how large objects are as JSON, as a tenant would write them.
func Bytes(objects []any) (n int) {
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			panic(fmt.Sprintf("an object of Kubernetes is no JSON: %v", err)) // they all are
		}
		n += len(text)
	}
	return n
}

// Policies returns the policies among objects.
func Policies(objects []any) []any {
	return slices.DeleteFunc(slices.Clone(objects), func(o any) bool { _, pod := o.(*corev1.Pod); return pod })
}

// Bystander is a pod of another tenant on the node, and Bystanding a policy for it.
func Bystander() *corev1.Pod {
	return pod(Other, "web", Node, netip.MustParseAddr("10.200.0.1"), map[string]string{"app": "web"})
}

// Bystanding is a policy of the other tenant.
func Bystanding() *networkingv1.NetworkPolicy {
	np := policy("web", rule(number(80), networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.64.0.0/10"}}))
	np.Namespace = Other
	return np
}

func pod(namespace, name, node string, ip netip.Addr, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	p.Status.PodIP = ip.String()
	p.Status.PodIPs = []corev1.PodIP{{IP: ip.String()}}
	return p
}

// localPods is how many pods of the tenant are on the node.
const localPods = 60

// pods returns some pods of the tenant, the first of them on the node.
func pods(all int, labels func(i int) map[string]string) (out []any) {
	for i := range all {
		node := Node
		if i >= localPods {
			node = "n2"
		}
		out = append(out, pod(Tenant, fmt.Sprintf("p%d", i), node, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), labels(i)))
	}
	return out
}

func policy(name string, rules ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: Tenant, Name: name},
		Spec:       networkingv1.NetworkPolicySpec{Ingress: rules, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}
}

func rule(port networkingv1.NetworkPolicyPort, peer networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyIngressRule {
	return networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{port}, From: []networkingv1.NetworkPolicyPeer{peer}}
}

func number(n int) networkingv1.NetworkPolicyPort {
	port, tcp := intstr.FromInt32(int32(n)), corev1.ProtocolTCP
	return networkingv1.NetworkPolicyPort{Port: &port, Protocol: &tcp}
}

func span(first, last int) networkingv1.NetworkPolicyPort {
	p, end := number(first), int32(last)
	p.EndPort = &end
	return p
}

func notIn(value string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "id", Operator: metav1.LabelSelectorOpNotIn, Values: []string{value}}}}}
}

func block(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
}

func byID(i int) map[string]string { return map[string]string{"id": "v" + strconv.Itoa(i)} }

func rng() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// PortListsByClasses is attack 6.
func PortListsByClasses(n int) []any {
	const remote, policies = 128, 67
	r := rng()
	out := pods(localPods+remote, func(i int) map[string]string {
		labels := map[string]string{}
		for p := range policies {
			if r.IntN(2) == 0 {
				labels[fmt.Sprintf("%c%d", map[bool]byte{true: 's', false: 'f'}[i < localPods], p)] = ""
			}
		}
		return labels
	})
	selects := func(key string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpExists}}}
	}
	for p := range policies {
		rule := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: selects(fmt.Sprintf("f%d", p))}}}
		for range n {
			rule.Ports = append(rule.Ports, number(1+r.IntN(65535)))
		}
		np := policy(fmt.Sprintf("p%d", p), rule)
		np.Spec.PodSelector = *selects(fmt.Sprintf("s%d", p))
		out = append(out, np)
	}
	return out
}

// NotInByPorts is a row of attack 21.
func NotInByPorts(n int) []any { return append(pods(188, byID), notInPolicy(n)) }

// NotInByPods is the same with as many pods as rules.
func NotInByPods(n int) []any { return append(pods(n, byID), notInPolicy(n)) }

func notInPolicy(n int) *networkingv1.NetworkPolicy {
	np := policy("p")
	for i := range n {
		np.Spec.Ingress = append(np.Spec.Ingress, rule(number(1000+i), notIn("v"+strconv.Itoa(i))))
	}
	return np
}

// hosts are addresses that are no neighbours.
func host(i int) string { return fmt.Sprintf("11.%d.%d.%d", i>>14&255, i>>6&255, i<<2&255) }

// ExceptOneByPorts is a row of attack 21.
func ExceptOneByPorts(n int) []any {
	np := policy("p")
	for i := range n {
		np.Spec.Ingress = append(np.Spec.Ingress, rule(number(1000+i), block("0.0.0.0/0", host(i)+"/32")))
	}
	return append(pods(60, byID), np)
}

// NestedExcepts is a row of attack 21.
func NestedExcepts(n int) []any {
	r := rng()
	np := policy("p")
	for i := range n {
		a := netip.AddrFrom4([4]byte{11, byte(r.IntN(8)), byte(r.IntN(256)), byte(r.IntN(256))})
		bits := 6 + r.IntN(18)
		outer, inner := netip.PrefixFrom(a, bits).Masked(), netip.PrefixFrom(a, bits+1+r.IntN(32-bits)).Masked()
		np.Spec.Ingress = append(np.Spec.Ingress, rule(number(1000+i), block(outer.String(), inner.String())))
	}
	return append(pods(60, byID), np)
}

// WideRanges has no two rules with the same range, and no port that few rules name.
func WideRanges(n int) []any {
	np := policy("p")
	for i := range n {
		np.Spec.Ingress = append(np.Spec.Ingress, rule(span(1+7*i, 30000+8*i), block("0.0.0.0/0", host(i)+"/32")))
	}
	return append(pods(60, byID), np)
}

// WideRangesByPods is WideRanges with selectors.
func WideRangesByPods(n int) []any {
	np := policy("p")
	for i := range n {
		np.Spec.Ingress = append(np.Spec.Ingress, rule(span(1+7*i, 30000+20*i), notIn("v"+strconv.Itoa(i))))
	}
	return append(pods(n, byID), np)
}

// OneListForMany has lists that are equal but for one rule.
func OneListForMany(n int) []any { return withOwnPolicies(NotInByPorts(n)) }

// SelectorsByPortsForMany has n² rules in each of 60 lists.
func SelectorsByPortsForMany(n int) []any { return withOwnPolicies(SelectorsByPorts(n)) }

// withOwnPolicies gives each of 60 pods a policy of its own, so that none of them shares its lists.
func withOwnPolicies(out []any) []any {
	for i := range 60 {
		np := policy(fmt.Sprintf("own%d", i), rule(number(1+i), block("12.0.0.0/8")))
		np.Spec.PodSelector = metav1.LabelSelector{MatchLabels: byID(i)}
		out = append(out, np)
	}
	return out
}

// BlocksByLists has many classes that most lists have nothing to do with.
func BlocksByLists(n int) []any {
	out := pods(60, byID)
	np := policy("p")
	np.Spec.PodSelector = metav1.LabelSelector{MatchLabels: byID(0)}
	for i := range n {
		np.Spec.Ingress = append(np.Spec.Ingress, rule(number(1+i), block(host(i)+"/32")))
	}
	out = append(out, np)
	for i := range 60 {
		own := policy(fmt.Sprintf("own%d", i), rule(number(1+i), block("0.0.0.0/0", fmt.Sprintf("12.%d.0.0/16", i))))
		own.Spec.PodSelector = metav1.LabelSelector{MatchLabels: byID(i)}
		out = append(out, own)
	}
	return out
}

// SelectorsByPorts becomes a rule for each pair.
func SelectorsByPorts(n int) []any {
	rule := networkingv1.NetworkPolicyIngressRule{}
	for i := range n {
		rule.Ports = append(rule.Ports, number(1+2*i))
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: byID(i)}})
	}
	return append(pods(60, byID), policy("p", rule))
}

// NestedIPv6 has blocks that share digits with others for as long as they can.
func NestedIPv6(n int) []any {
	r := rng()
	np := policy("p")
	for i := range n {
		var b [16]byte
		b[0], b[1] = 0xfd, 0
		for k := 2; k < 16; k += 2 {
			b[k+1] = byte(r.IntN(2))
		}
		p := netip.PrefixFrom(netip.AddrFrom16(b), 16*(1+r.IntN(7))+r.IntN(17)).Masked()
		np.Spec.Ingress = append(np.Spec.Ingress, rule(number(1000+i), block(p.String())))
	}
	return append(pods(60, byID), np)
}
