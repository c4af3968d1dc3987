package fuzz

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// policyWith is a policy for shop/web with some ingress rules.
func policyWith(rules ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Ingress: rules,
		},
	}
}

// hostText is the n-th of many addresses that are no neighbours.
func hostText(n int) string {
	return fmt.Sprintf("%d.%d.%d.%d", 20+n>>22, n>>14&255, n>>6&255, n<<2&255)
}

func blocks(n int) *networkingv1.NetworkPolicy {
	var r networkingv1.NetworkPolicyIngressRule
	for i := range n {
		r.From = append(r.From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: hostText(i) + "/32"}})
	}
	return policyWith(r)
}

func selectors(n int) *networkingv1.NetworkPolicy {
	var r networkingv1.NetworkPolicyIngressRule
	for i := range n {
		r.From = append(r.From, networkingv1.NetworkPolicyPeer{
			PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": strconv.Itoa(i)}}})
	}
	return policyWith(r)
}

// badPeers have no field: each is a problem.
func badPeers(n int) *networkingv1.NetworkPolicy {
	return policyWith(networkingv1.NetworkPolicyIngressRule{From: make([]networkingv1.NetworkPolicyPeer, n)})
}

// rules that each permit one port.
func rules(n int) *networkingv1.NetworkPolicy {
	np := policyWith()
	for i := range n {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{number(1000 + 2*(i%30_000))}})
	}
	return np
}

func ports(n int) *networkingv1.NetworkPolicy {
	var r networkingv1.NetworkPolicyIngressRule
	for i := range n {
		r.Ports = append(r.Ports, number(1000+2*(i%30_000)))
	}
	return policyWith(r)
}

func number(n int) networkingv1.NetworkPolicyPort {
	port := intstr.FromInt32(int32(n))
	return networkingv1.NetworkPolicyPort{Port: &port}
}

// portsAndBlocks is n ports for n blocks: n*n combinations.
func portsAndBlocks(n int) *networkingv1.NetworkPolicy {
	np := blocks(n)
	np.Spec.Ingress[0].Ports = ports(n).Spec.Ingress[0].Ports
	return np
}

func excepts(n int) *networkingv1.NetworkPolicy {
	b := &networkingv1.IPBlock{CIDR: "0.0.0.0/0"}
	for i := range n {
		b.Except = append(b.Except, hostText(i)+"/32")
	}
	return policyWith(networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{IPBlock: b}}})
}

// expressions is a peer with n conditions that both pods fulfil.
func expressions(n int) *networkingv1.NetworkPolicy {
	s := &metav1.LabelSelector{}
	for i := range n {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: strconv.Itoa(i), Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	return policyWith(networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: s}}})
}

// values is a peer with one condition of n values; db has one of them.
func values(n int) *networkingv1.NetworkPolicy {
	r := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"db"}}
	for i := range n {
		r.Values = append(r.Values, fmt.Sprintf("v%07d", i))
	}
	s := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
	return policyWith(networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: s}}})
}

// families is one egress rule with n names of ports for n peers.
func families(n int) *networkingv1.NetworkPolicy {
	var r networkingv1.NetworkPolicyEgressRule
	for i, p := range selectors(n).Spec.Ingress[0].From {
		name := intstr.FromString("p" + strconv.Itoa(i))
		r.To = append(r.To, p)
		r.Ports = append(r.Ports, networkingv1.NetworkPolicyPort{Port: &name})
	}
	np := policyWith()
	np.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{r}
	np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	return np
}

// bigPod is a third pod, in addition to web and db.
func bigPod() *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "big", Labels: map[string]string{"app": "web"}}}
	p.Spec.NodeName, p.Status.Phase, p.Status.PodIP = node, corev1.PodRunning, "10.0.0.9"
	return p
}

func podAddresses(n int) *corev1.Pod {
	p := bigPod()
	for i := range n {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: hostText(i)})
	}
	return p
}

func podLabels(n int) *corev1.Pod {
	p := bigPod()
	for i := range n {
		p.Labels["k"+strconv.Itoa(i)] = ""
	}
	return p
}

func podPorts(n int) *corev1.Pod {
	p := bigPod()
	var c corev1.Container
	for i := range n {
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "p" + strconv.Itoa(i), ContainerPort: int32(1 + i%65_535)})
	}
	p.Spec.Containers = []corev1.Container{c}
	return p
}
