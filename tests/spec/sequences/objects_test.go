package sequences

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The words that lists of states are written in. All of them panic on a text that they
// cannot read, since the texts are those of this package.

// hosts are the addresses of the nodes.
var hosts = map[string][]string{
	"one": {"192.168.0.1", "fd00:9::1"},
	"two": {"192.168.0.2", "fd00:9::2"},
}

func nodes() []*corev1.Node {
	var out []*corev1.Node
	for _, name := range []string{"one", "two"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, a := range hosts[name] {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		out = append(out, n)
	}
	return out
}

// ns is a namespace with labels ("team=a,env=prod").
func ns(name, set string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelsOf(set)}}
}

// pod is a running pod ("shop/web") with labels on a node, and its addresses.
func pod(id, set, node string, addrs ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(id)}
	p.Labels = labelsOf(set)
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	p.Status.Phase, p.Status.HostIP = corev1.PodRunning, hosts[node][0]
	for _, a := range hosts[node] {
		p.Status.HostIPs = append(p.Status.HostIPs, corev1.HostIP{IP: a})
	}
	for _, a := range addrs {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	if len(addrs) > 0 {
		p.Status.PodIP = addrs[0]
	}
	return p
}

// serving is a pod with container ports ("http=80/tcp").
func serving(p *corev1.Pod, ports ...string) *corev1.Pod {
	p = p.DeepCopy()
	for _, text := range ports {
		name, rest, _ := strings.Cut(text, "=")
		number, protocol, _ := strings.Cut(rest, "/")
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{
			Name: name, ContainerPort: numberOf(number), Protocol: corev1.Protocol(strings.ToUpper(protocol)),
		})
	}
	return p
}

// with is a pod of which something else is true.
func with(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	p = p.DeepCopy()
	change(p)
	return p
}

func finished(p *corev1.Pod)    { p.Status.Phase = corev1.PodSucceeded }
func failed(p *corev1.Pod)      { p.Status.Phase = corev1.PodFailed }
func pending(p *corev1.Pod)     { p.Status.Phase = corev1.PodPending }
func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

// hostNetwork gives the pod the addresses of its node.
func hostNetwork(p *corev1.Pod) {
	p.Spec.HostNetwork, p.Status.PodIPs = true, nil
	for _, a := range hosts[p.Spec.NodeName] {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	p.Status.PodIP = p.Status.PodIPs[0].IP
}

// policy is a NetworkPolicy ("shop/web") for the pods that a selector ("app in
// (web,api)") selects. Its types are those that an API server would give it.
func policy(id, selector string, parts ...func(*networkingv1.NetworkPolicySpec)) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: meta(id)}
	np.Spec.PodSelector = *selectorOf(selector)
	for _, part := range parts {
		part(&np.Spec)
	}
	if np.Spec.PolicyTypes == nil {
		np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(np.Spec.Egress) > 0 {
			np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	return np
}

// types says which directions a policy is about.
func types(list ...networkingv1.PolicyType) func(*networkingv1.NetworkPolicySpec) {
	return func(s *networkingv1.NetworkPolicySpec) { s.PolicyTypes = list }
}

const (
	ingress = networkingv1.PolicyTypeIngress
	egress  = networkingv1.PolicyTypeEgress
)

// term is a peer or a port of a rule.
type term func(*[]networkingv1.NetworkPolicyPeer, *[]networkingv1.NetworkPolicyPort)

// in is a rule for ingress, out one for egress. Without peers it is about all peers,
// without ports about all ports.
func in(terms ...term) func(*networkingv1.NetworkPolicySpec) {
	return func(s *networkingv1.NetworkPolicySpec) {
		var r networkingv1.NetworkPolicyIngressRule
		for _, t := range terms {
			t(&r.From, &r.Ports)
		}
		s.Ingress = append(s.Ingress, r)
	}
}

func out(terms ...term) func(*networkingv1.NetworkPolicySpec) {
	return func(s *networkingv1.NetworkPolicySpec) {
		var r networkingv1.NetworkPolicyEgressRule
		for _, t := range terms {
			t(&r.To, &r.Ports)
		}
		s.Egress = append(s.Egress, r)
	}
}

func peer(p networkingv1.NetworkPolicyPeer) term {
	return func(peers *[]networkingv1.NetworkPolicyPeer, _ *[]networkingv1.NetworkPolicyPort) {
		*peers = append(*peers, p)
	}
}

// pods are those of the policy's namespace; namespaces all pods of those that are
// selected; podsOf some of theirs.
func pods(selector string) term {
	return peer(networkingv1.NetworkPolicyPeer{PodSelector: selectorOf(selector)})
}

func namespaces(selector string) term {
	return peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: selectorOf(selector)})
}

func podsOf(namespaceSelector, selector string) term {
	return peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: selectorOf(namespaceSelector), PodSelector: selectorOf(selector)})
}

func block(cidr string, except ...string) term {
	return peer(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}})
}

// port is for example "tcp/80", "udp/53-60", "tcp/http" or "sctp".
func port(text string) term {
	protocol, rest, _ := strings.Cut(text, "/")
	first, last, isRange := strings.Cut(rest, "-")
	value := corev1.Protocol(strings.ToUpper(protocol))
	p := networkingv1.NetworkPolicyPort{Protocol: &value}
	if first != "" {
		number := intstr.Parse(first)
		p.Port = &number
	}
	if isRange {
		end := numberOf(last)
		p.EndPort = &end
	}
	return func(_ *[]networkingv1.NetworkPolicyPeer, ports *[]networkingv1.NetworkPolicyPort) {
		*ports = append(*ports, p)
	}
}

func meta(id string) metav1.ObjectMeta {
	namespace, name, ok := strings.Cut(id, "/")
	if !ok {
		panic(fmt.Sprintf("%q is not namespace/name", id))
	}
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func labelsOf(text string) map[string]string {
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		panic(err)
	}
	return set
}

func selectorOf(text string) *metav1.LabelSelector {
	s, err := metav1.ParseToLabelSelector(text)
	if err != nil {
		panic(err)
	}
	return s
}

func numberOf(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		panic(err)
	}
	return int32(n)
}
