package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// Administrators returns a state with labels on its nodes and some policies of
// administrators, drawn from r: at most so many of each of the two kinds of which
// there can be many, and perhaps a BaselineAdminNetworkPolicy. Priorities and names
// are few, so that they tie. With cfg.Odd what is not understood is among them.
func Administrators(r Rand, cfg Config, most int, s State) State {
	b := administrators{newBuilder(r, cfg, false)}
	nodes := s.Nodes
	s.Nodes = nil
	for _, n := range nodes {
		n = n.DeepCopy()
		n.Labels = b.labels(nodeKeys)
		s.Nodes = append(s.Nodes, n)
	}
	for range b.below(most+1, "admin policies") {
		s.AdminPolicies = append(s.AdminPolicies, b.admin())
	}
	for range b.below(most+1, "cluster policies") {
		s.ClusterPolicies = append(s.ClusterPolicies, b.cluster())
	}
	if b.one(2, "baseline") {
		s.BaselinePolicies = append(s.BaselinePolicies, b.baseline())
	}
	return s
}

var nodeKeys = []labelKey{{"role", []string{"front", "back"}}}

// administrators draws policies of administrators.
type administrators struct{ builder }

func (b administrators) oddly() bool { return b.cfg.Odd && b.one(25, "odd") }

func (b administrators) name() string { return fmt.Sprintf("admin-%d", b.below(6, "name")) }

func (b administrators) priority() int32 {
	if b.oddly() {
		return 1001
	}
	return pick(b.builder, []int32{5, 6, 0, 1000}, "priority")
}

func (b administrators) action(allow string) string {
	if b.oddly() {
		return pick(b.builder, []string{"", "Log", "Accept", "Allow"}, "action")
	}
	return pick(b.builder, []string{"Deny", allow, "Pass"}, "action")
}

// namespaced draws one of the two ways to name pods, now and then both or neither.
func (b administrators) namespaced() (*metav1.LabelSelector, *v1alpha1.NamespacedPod) {
	namespaces := b.selector(namespaceKeys)
	pods := &v1alpha1.NamespacedPod{NamespaceSelector: *b.selector(namespaceKeys), PodSelector: *b.selector(podLabels)}
	switch {
	case b.oddly():
		return namespaces, pods
	case b.oddly():
		return nil, nil
	case b.one(2, "by pods"):
		return nil, pods
	}
	return namespaces, nil
}

func (b administrators) admin() *v1alpha1.AdminNetworkPolicy {
	p := &v1alpha1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: b.name()}}
	p.Spec.Priority = b.priority()
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = b.namespaced()
	for range b.below(3, "ingress") {
		p.Spec.Ingress = append(p.Spec.Ingress, v1alpha1.AdminNetworkPolicyIngressRule{
			Action: v1alpha1.AdminNetworkPolicyRuleAction(b.action("Allow")), From: b.sources(), Ports: b.ports()})
	}
	for range b.below(3, "egress") {
		p.Spec.Egress = append(p.Spec.Egress, v1alpha1.AdminNetworkPolicyEgressRule{
			Action: v1alpha1.AdminNetworkPolicyRuleAction(b.action("Allow")), To: b.destinations(), Ports: b.ports()})
	}
	return p
}

func (b administrators) baseline() *v1alpha1.BaselineAdminNetworkPolicy {
	p := &v1alpha1.BaselineAdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if b.oddly() {
		p.Name = "other"
	}
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = b.namespaced()
	for range b.below(3, "ingress") {
		p.Spec.Ingress = append(p.Spec.Ingress, v1alpha1.BaselineAdminNetworkPolicyIngressRule{
			Action: v1alpha1.BaselineAdminNetworkPolicyRuleAction(b.action("Allow")), From: b.sources(), Ports: b.ports()})
	}
	for range b.below(3, "egress") {
		var to []v1alpha1.BaselineAdminNetworkPolicyEgressPeer
		for _, q := range b.destinations() {
			to = append(to, v1alpha1.BaselineAdminNetworkPolicyEgressPeer{Namespaces: q.Namespaces, Pods: q.Pods, Nodes: q.Nodes, Networks: q.Networks})
		}
		p.Spec.Egress = append(p.Spec.Egress, v1alpha1.BaselineAdminNetworkPolicyEgressRule{
			Action: v1alpha1.BaselineAdminNetworkPolicyRuleAction(b.action("Allow")), To: to, Ports: b.ports()})
	}
	return p
}

func (b administrators) cluster() *v1alpha2.ClusterNetworkPolicy {
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: b.name()}}
	p.Spec.Tier, p.Spec.Priority = pick(b.builder, []v1alpha2.Tier{v1alpha2.AdminTier, v1alpha2.BaselineTier}, "tier"), b.priority()
	if b.oddly() {
		p.Spec.Tier = "Other"
	}
	namespaces, pods := b.namespaced()
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = namespaces, (*v1alpha2.NamespacedPod)(pods)
	for range b.below(3, "ingress") {
		r := v1alpha2.ClusterNetworkPolicyIngressRule{Action: v1alpha2.ClusterNetworkPolicyRuleAction(b.action("Accept")), Protocols: b.protocols()}
		for _, q := range b.sources() {
			r.From = append(r.From, v1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: q.Namespaces, Pods: (*v1alpha2.NamespacedPod)(q.Pods)})
		}
		p.Spec.Ingress = append(p.Spec.Ingress, r)
	}
	for range b.below(3, "egress") {
		r := v1alpha2.ClusterNetworkPolicyEgressRule{Action: v1alpha2.ClusterNetworkPolicyRuleAction(b.action("Accept")), Protocols: b.protocols()}
		for _, q := range b.destinations() {
			to := v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: q.Namespaces, Pods: (*v1alpha2.NamespacedPod)(q.Pods), Nodes: q.Nodes}
			for _, n := range q.Networks {
				to.Networks = append(to.Networks, v1alpha2.CIDR(n))
			}
			for _, d := range q.DomainNames {
				to.DomainNames = append(to.DomainNames, v1alpha2.DomainName(d))
			}
			r.To = append(r.To, to)
		}
		p.Spec.Egress = append(p.Spec.Egress, r)
	}
	return p
}

// least is the number of elements that a list which must have some has.
func (b administrators) least() int {
	if b.oddly() {
		return 0
	}
	return 1 + b.below(2, "elements")
}

func (b administrators) sources() []v1alpha1.AdminNetworkPolicyIngressPeer {
	var out []v1alpha1.AdminNetworkPolicyIngressPeer
	for range b.least() {
		var q v1alpha1.AdminNetworkPolicyIngressPeer
		q.Namespaces, q.Pods = b.namespaced()
		out = append(out, q)
	}
	return out
}

func (b administrators) destinations() []v1alpha1.AdminNetworkPolicyEgressPeer {
	var out []v1alpha1.AdminNetworkPolicyEgressPeer
	for range b.least() {
		var q v1alpha1.AdminNetworkPolicyEgressPeer
		switch b.below(4, "destination") {
		default:
			q.Namespaces, q.Pods = b.namespaced()
		case 2:
			q.Nodes = b.selector(nodeKeys)
		case 3:
			for range 1 + b.below(2, "networks") {
				q.Networks = append(q.Networks, b.network())
			}
		}
		if b.oddly() {
			q.DomainNames = []v1alpha1.DomainName{"example.org"}
		}
		out = append(out, q)
	}
	return out
}

func (b administrators) network() v1alpha1.CIDR {
	if b.oddly() {
		return pick(b.builder, []v1alpha1.CIDR{"10.0.0.0/33", "x", "010.0.0.0/8", "::ffff:10.0.0.0/104", ""}, "network")
	}
	return v1alpha1.CIDR(b.block().CIDR)
}

func (b administrators) number() int32 {
	if b.oddly() {
		return pick(b.builder, []int32{0, 70000, -1}, "number")
	}
	return pick(b.builder, portNumbers, "number")
}

// span draws a range, which is inverted or one port now and then.
func (b administrators) span() (start, end int32) {
	start, end = b.number(), b.number()
	if !b.cfg.Odd && start > end {
		return end, start
	}
	return start, end
}

func (b administrators) protocol() corev1.Protocol {
	if b.oddly() {
		return pick(b.builder, []corev1.Protocol{"", "ICMP"}, "protocol")
	}
	return pick(b.builder, protocols, "protocol")
}

// ports returns nil for every port.
func (b administrators) ports() *[]v1alpha1.AdminNetworkPolicyPort {
	if b.one(2, "every port") {
		return nil
	}
	out := []v1alpha1.AdminNetworkPolicyPort{}
	for range b.least() {
		var p v1alpha1.AdminNetworkPolicyPort
		switch b.below(3, "port") {
		case 0:
			p.PortNumber = &v1alpha1.Port{Protocol: b.protocol(), Port: b.number()}
		case 1:
			start, end := b.span()
			p.PortRange = &v1alpha1.PortRange{Protocol: b.protocol(), Start: start, End: end}
		case 2:
			p.NamedPort = new(pick(b.builder, portNames, "port name"))
		}
		if b.oddly() {
			p.NamedPort = new(pick(b.builder, []string{"", "Not_1", "http"}, "port name"))
		}
		out = append(out, p)
	}
	return &out
}

func (b administrators) protocols() []v1alpha2.ClusterNetworkPolicyProtocol {
	if b.one(2, "every port") {
		return nil
	}
	var out []v1alpha2.ClusterNetworkPolicyProtocol
	for range 1 + b.below(2, "protocols") {
		var p v1alpha2.ClusterNetworkPolicyProtocol
		port := &v1alpha2.Port{Number: b.number()}
		if b.one(2, "range") {
			start, end := b.span()
			port = &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: start, End: end}}
		}
		if b.oddly() {
			port = nil
		}
		switch b.below(4, "protocol") {
		case 0:
			p.TCP = &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}
		case 1:
			p.UDP = &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: port}
		case 2:
			p.SCTP = &v1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port}
		case 3:
			p.DestinationNamedPort = pick(b.builder, portNames, "port name")
		}
		if b.oddly() {
			p.DestinationNamedPort = "dns"
		}
		out = append(out, p)
	}
	return out
}
