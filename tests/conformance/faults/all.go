package faults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
)

// All lists every fault, by what it is about.
var All = slices.Concat(structure, portFaults, addressFaults, podFaults, histories, tierFaults)

var structure = []Fault{
	misread("absent policyTypes never isolate egress", "4", policies(func(spec *networkingv1.NetworkPolicySpec) {
		if len(spec.PolicyTypes) == 0 {
			spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		}
	})),
	misread("peers or ports of a rule suffice", "9", rules(eitherSuffices)),
	wrongAnswer("egress of the source is not asked", "10", func(o *oracle.Oracle, _ cluster.State, f api.Flow) bool {
		return o.Verdict(f).Ingress.Allowed
	}),
	misread("a podSelector alone selects in all namespaces", "11", peers(func(p *networkingv1.NetworkPolicyPeer) {
		if p.PodSelector != nil && p.NamespaceSelector == nil {
			p.NamespaceSelector = &metav1.LabelSelector{}
		}
	})),
	misread("namespaceSelector is dropped beside a podSelector", "11", peers(func(p *networkingv1.NetworkPolicyPeer) {
		if p.PodSelector != nil {
			p.NamespaceSelector = nil
		}
	})),
	misread("podSelector is dropped beside a namespaceSelector", "11", peers(func(p *networkingv1.NetworkPolicyPeer) {
		if p.NamespaceSelector != nil {
			p.PodSelector = nil
		}
	})),
	misread("NotIn needs the key", "14", expressions(func(r metav1.LabelSelectorRequirement) []metav1.LabelSelectorRequirement {
		if r.Operator != metav1.LabelSelectorOpNotIn {
			return []metav1.LabelSelectorRequirement{r}
		}
		return []metav1.LabelSelectorRequirement{r, {Key: r.Key, Operator: metav1.LabelSelectorOpExists}}
	})),
	misread("DoesNotExist is dropped", "14", expressions(func(r metav1.LabelSelectorRequirement) []metav1.LabelSelectorRequirement {
		if r.Operator == metav1.LabelSelectorOpDoesNotExist {
			return nil
		}
		return []metav1.LabelSelectorRequirement{r}
	})),
}

// eitherSuffices makes two rules of one that has peers and ports.
func eitherSuffices(r networkingv1.NetworkPolicyIngressRule) []networkingv1.NetworkPolicyIngressRule {
	if len(r.From) == 0 || len(r.Ports) == 0 {
		return []networkingv1.NetworkPolicyIngressRule{r}
	}
	return []networkingv1.NetworkPolicyIngressRule{{From: r.From}, {Ports: r.Ports}}
}

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

var portFaults = []Fault{
	misread("endPort is ignored", "21", ports(func(p networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyPort {
		p.EndPort = nil
		return []networkingv1.NetworkPolicyPort{p}
	})),
	misread("endPort is exclusive", "21", ports(func(p networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyPort {
		if p.EndPort != nil && p.Port != nil && *p.EndPort > p.Port.IntVal {
			last := *p.EndPort - 1
			p.EndPort = &last
		}
		return []networkingv1.NetworkPolicyPort{p}
	})),
	misread("a named port is looked up in the whole cluster, not on the destination", "22", namesEverywhere),
	misread("a named port that the destination lacks is every port", "23", missingNamesAreAll),
	misread("the protocol of a named port is ignored", "25", pods(func(p *corev1.Pod) {
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			for _, port := range slices.Clone(c.Ports) {
				for _, port.Protocol = range protocols {
					c.Ports = append(c.Ports, port)
				}
			}
		}
	})),
	misread("named ports of sidecars are not found", "26", pods(func(p *corev1.Pod) { p.Spec.InitContainers = nil })),
	misread("SCTP is taken for TCP", "28", ports(func(p networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyPort {
		if p.Protocol != nil && *p.Protocol == corev1.ProtocolSCTP {
			p.Protocol = &protocols[0]
		}
		return []networkingv1.NetworkPolicyPort{p}
	})),
	wrongAnswer("ICMP always passes", "52", func(o *oracle.Oracle, _ cluster.State, f api.Flow) bool {
		return !f.Protocol.HasPorts() || o.Allowed(f)
	}),
	misread("a rule without ports is for TCP, UDP and SCTP only", "52", rules(func(r networkingv1.NetworkPolicyIngressRule) []networkingv1.NetworkPolicyIngressRule {
		if len(r.Ports) == 0 {
			for i := range protocols {
				r.Ports = append(r.Ports, networkingv1.NetworkPolicyPort{Protocol: &protocols[i]})
			}
		}
		return []networkingv1.NetworkPolicyIngressRule{r}
	})),
}

// namesEverywhere gives every pod the named ports of all pods.
func namesEverywhere(s *cluster.State) {
	var all []corev1.ContainerPort
	for _, p := range s.Pods {
		all = append(all, containerPorts(p)...)
	}
	pods(func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Ports: all}) })(s)
}

// missingNamesAreAll gives every pod that lacks a name which some policy uses every
// low port under that name.
func missingNamesAreAll(s *cluster.State) {
	type name struct {
		text     string
		protocol corev1.Protocol
	}
	used := map[name]bool{}
	ports(func(p networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyPort {
		if p.Port != nil && p.Port.Type == intstr.String {
			protocol := corev1.ProtocolTCP
			if p.Protocol != nil {
				protocol = *p.Protocol
			}
			used[name{p.Port.StrVal, protocol}] = true
		}
		return []networkingv1.NetworkPolicyPort{p}
	})(s)
	pods(func(p *corev1.Pod) {
		missing := corev1.Container{}
		for n := range used {
			has := slices.ContainsFunc(containerPorts(p), func(c corev1.ContainerPort) bool {
				return c.Name == n.text && (c.Protocol == n.protocol || c.Protocol == "" && n.protocol == corev1.ProtocolTCP)
			})
			for number := int32(1); number <= 1024 && !has; number++ {
				missing.Ports = append(missing.Ports, corev1.ContainerPort{Name: n.text, Protocol: n.protocol, ContainerPort: number})
			}
		}
		p.Spec.Containers = append(p.Spec.Containers, missing)
	})(s)
}
