package explain

import (
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// baselinePriority is what the store has for a BaselineAdminNetworkPolicy, which has
// none.
const baselinePriority = 1001

// addTiers converts nodes and admin policies back into Kubernetes objects. An unknown part of a
// message becomes an unknown part of its object, so that the rule keeps its meaning: if it allows,
// it matches nothing by that part, otherwise it denies everything. A policy in a tier that its kind
// cannot have has no effect, and is omitted.
func addTiers(s *oracle.State, nodes []*model.Node, policies []*model.ClusterPolicy) {
	for _, m := range nodes {
		if m != nil {
			s.Nodes = append(s.Nodes, nodeObject(m))
		}
	}
	for _, m := range policies {
		s.Add(clusterObject(m))
	}
}

// clusterObject returns the Kubernetes object of an admin policy, nil for one without
// effect.
func clusterObject(m *model.ClusterPolicy) any {
	admin, baseline := m.GetTier() == model.ClusterPolicy_TIER_ADMIN, m.GetTier() == model.ClusterPolicy_TIER_BASELINE
	switch kind := m.GetKind(); {
	case kind == model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY && admin:
		return adminPolicy(m)
	case kind == model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY && baseline && m.GetPriority() == baselinePriority:
		return baselinePolicy(m)
	case kind == model.ClusterPolicy_KIND_CLUSTER_NETWORK_POLICY && (admin || baseline):
		return clusterPolicy(m)
	}
	return nil
}

// objectOf returns the Kubernetes object of a message, nil where policy depends on none.
func objectOf(msg proto.Message) any {
	switch m := msg.(type) {
	case *model.Namespace:
		return Namespace(m)
	case *model.Pod:
		return Pod(m)
	case *model.Node:
		return nodeObject(m)
	case *model.ClusterPolicy:
		return clusterObject(m)
	case *model.NetworkPolicy:
		if m.GetIsolatesIngress() || m.GetIsolatesEgress() {
			return NetworkPolicy(m)
		}
	}
	return nil
}

// nodeObject returns the Kubernetes object of a message. Which kind each address is of the
// store does not say, and policy does not ask.
func nodeObject(m *model.Node) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.GetName(), Labels: LabelSet(m.GetLabels())}}
	for _, a := range m.GetAddresses() {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func adminPolicy(m *model.ClusterPolicy) *v1alpha1.AdminNetworkPolicy {
	p := &v1alpha1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: m.GetName(), Annotations: modeOf(m)}}
	p.Spec.Priority = signed(m.GetPriority())
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = adminPods(m.GetSubject())
	for _, r := range m.GetIngress() {
		p.Spec.Ingress = append(p.Spec.Ingress, v1alpha1.AdminNetworkPolicyIngressRule{
			Name: r.GetName(), Action: v1alpha1.AdminNetworkPolicyRuleAction(action(r, oracle.Allow)), From: adminSources(r), Ports: adminPorts(r)})
	}
	for _, r := range m.GetEgress() {
		var to []v1alpha1.AdminNetworkPolicyEgressPeer
		for _, q := range r.GetPeers() {
			var peer v1alpha1.AdminNetworkPolicyEgressPeer
			peer.Namespaces, peer.Pods = adminPods(q.GetPods())
			peer.Nodes, peer.Networks, peer.DomainNames = Selector(q.GetNodes()), network[v1alpha1.CIDR](q), domain[v1alpha1.DomainName](q)
			to = append(to, peer)
		}
		p.Spec.Egress = append(p.Spec.Egress, v1alpha1.AdminNetworkPolicyEgressRule{
			Name: r.GetName(), Action: v1alpha1.AdminNetworkPolicyRuleAction(action(r, oracle.Allow)), To: to, Ports: adminPorts(r)})
	}
	return p
}

func baselinePolicy(m *model.ClusterPolicy) *v1alpha1.BaselineAdminNetworkPolicy {
	p := &v1alpha1.BaselineAdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: m.GetName(), Annotations: modeOf(m)}}
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = adminPods(m.GetSubject())
	for _, r := range m.GetIngress() {
		p.Spec.Ingress = append(p.Spec.Ingress, v1alpha1.BaselineAdminNetworkPolicyIngressRule{
			Name: r.GetName(), Action: v1alpha1.BaselineAdminNetworkPolicyRuleAction(action(r, oracle.Allow)), From: adminSources(r), Ports: adminPorts(r)})
	}
	for _, r := range m.GetEgress() {
		var to []v1alpha1.BaselineAdminNetworkPolicyEgressPeer
		for _, q := range r.GetPeers() {
			var peer v1alpha1.BaselineAdminNetworkPolicyEgressPeer
			peer.Namespaces, peer.Pods = adminPods(q.GetPods())
			peer.Nodes, peer.Networks = Selector(q.GetNodes()), network[v1alpha1.CIDR](q)
			to = append(to, peer)
		}
		p.Spec.Egress = append(p.Spec.Egress, v1alpha1.BaselineAdminNetworkPolicyEgressRule{
			Name: r.GetName(), Action: v1alpha1.BaselineAdminNetworkPolicyRuleAction(action(r, oracle.Allow)), To: to, Ports: adminPorts(r)})
	}
	return p
}

func clusterPolicy(m *model.ClusterPolicy) *v1alpha2.ClusterNetworkPolicy {
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: m.GetName(), Annotations: modeOf(m)}}
	p.Spec.Tier, p.Spec.Priority = v1alpha2.AdminTier, signed(m.GetPriority())
	if m.GetTier() == model.ClusterPolicy_TIER_BASELINE {
		p.Spec.Tier = v1alpha2.BaselineTier
	}
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = clusterPods(m.GetSubject())
	for _, r := range m.GetIngress() {
		var from []v1alpha2.ClusterNetworkPolicyIngressPeer
		for _, q := range r.GetPeers() {
			var peer v1alpha2.ClusterNetworkPolicyIngressPeer
			peer.Namespaces, peer.Pods = clusterPods(q.GetPods())
			from = append(from, peer)
		}
		p.Spec.Ingress = append(p.Spec.Ingress, v1alpha2.ClusterNetworkPolicyIngressRule{
			Name: r.GetName(), Action: v1alpha2.ClusterNetworkPolicyRuleAction(action(r, oracle.Accept)), From: from, Protocols: protocols(r)})
	}
	for _, r := range m.GetEgress() {
		var to []v1alpha2.ClusterNetworkPolicyEgressPeer
		for _, q := range r.GetPeers() {
			var peer v1alpha2.ClusterNetworkPolicyEgressPeer
			peer.Namespaces, peer.Pods = clusterPods(q.GetPods())
			peer.Nodes, peer.Networks, peer.DomainNames = Selector(q.GetNodes()), network[v1alpha2.CIDR](q), domain[v1alpha2.DomainName](q)
			to = append(to, peer)
		}
		p.Spec.Egress = append(p.Spec.Egress, v1alpha2.ClusterNetworkPolicyEgressRule{
			Name: r.GetName(), Action: v1alpha2.ClusterNetworkPolicyRuleAction(action(r, oracle.Accept)), To: to, Protocols: protocols(r)})
	}
	return p
}

// action returns the action of a rule, in which each version calls one otherwise. One
// that is not known gets a name that neither has.
func action(r *model.ClusterPolicy_Rule, allow oracle.Action) oracle.Action {
	switch r.GetAction() {
	case model.ClusterPolicy_ACTION_ALLOW:
		return allow
	case model.ClusterPolicy_ACTION_DENY:
		return oracle.Deny
	case model.ClusterPolicy_ACTION_PASS:
		return oracle.Pass
	case model.ClusterPolicy_ACTION_UNSPECIFIED:
	}
	return oracle.Action(r.GetAction().String())
}
