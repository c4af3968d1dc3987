package oracle

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
)

// The functions below read the three kinds of the two API versions.

var (
	adminActions    = []Action{Allow, Deny, Pass}
	baselineActions = []Action{Allow, Deny}
	clusterActions  = []Action{Accept, Deny, Pass}
)

// podsIn selects pods in namespaces.
type podsIn struct{ namespaces, pods *metav1.LabelSelector }

func podsOfAdmin(p *v1alpha1.NamespacedPod) *podsIn {
	if p == nil {
		return nil
	}
	return &podsIn{&p.NamespaceSelector, &p.PodSelector}
}

func podsOfCluster(p *v1alpha2.NamespacedPod) *podsIn {
	if p == nil {
		return nil
	}
	return &podsIn{&p.NamespaceSelector, &p.PodSelector}
}

func fromAdmin(p *v1alpha1.AdminNetworkPolicy) *tierPolicy {
	out := &tierPolicy{obj: p, audit: audited(p.Annotations), id: api.PolicyID{Kind: api.AdminNetworkPolicy, Name: p.Name}, tier: AdminTier, priority: int(p.Spec.Priority)}
	out.subject, out.refusal = newSubject(p.Spec.Subject.Namespaces, podsOfAdmin(p.Spec.Subject.Pods))
	out.refusal = firstError(priorityError(out.priority), out.refusal)
	for _, r := range p.Spec.Ingress {
		out.ingress = append(out.ingress, adminRule(r.Name, string(r.Action), adminActions, adminSources(r.From), r.Ports))
	}
	for _, r := range p.Spec.Egress {
		var peers []tierPeer
		for _, q := range r.To {
			peers = append(peers, newPeer(peerFields{q.Namespaces, podsOfAdmin(q.Pods), q.Nodes, texts(q.Networks), texts(q.DomainNames)}))
		}
		out.egress = append(out.egress, adminRule(r.Name, string(r.Action), adminActions, peers, r.Ports))
	}
	return out
}

func fromBaseline(p *v1alpha1.BaselineAdminNetworkPolicy) *tierPolicy {
	out := &tierPolicy{obj: p, audit: audited(p.Annotations), id: api.PolicyID{Kind: api.BaselineAdminNetworkPolicy, Name: p.Name}, tier: BaselineTier, priority: baselinePriority}
	out.subject, out.refusal = newSubject(p.Spec.Subject.Namespaces, podsOfAdmin(p.Spec.Subject.Pods))
	if p.Name != baselineName {
		out.refusal = fmt.Errorf("its name is %q, and only %q is one", p.Name, baselineName)
	}
	for _, r := range p.Spec.Ingress {
		out.ingress = append(out.ingress, adminRule(r.Name, string(r.Action), baselineActions, adminSources(r.From), r.Ports))
	}
	for _, r := range p.Spec.Egress {
		var peers []tierPeer
		for _, q := range r.To {
			peers = append(peers, newPeer(peerFields{q.Namespaces, podsOfAdmin(q.Pods), q.Nodes, texts(q.Networks), nil}))
		}
		out.egress = append(out.egress, adminRule(r.Name, string(r.Action), baselineActions, peers, r.Ports))
	}
	return out
}

func fromCluster(p *v1alpha2.ClusterNetworkPolicy) *tierPolicy {
	out := &tierPolicy{obj: p, audit: audited(p.Annotations), id: api.PolicyID{Kind: api.ClusterNetworkPolicy, Name: p.Name}, tier: Tier(p.Spec.Tier), priority: int(p.Spec.Priority)}
	out.subject, out.refusal = newSubject(p.Spec.Subject.Namespaces, podsOfCluster(p.Spec.Subject.Pods))
	if out.tier != AdminTier && out.tier != BaselineTier {
		out.refusal = fmt.Errorf("spec.tier is %q, which is not known", p.Spec.Tier)
	}
	out.refusal = firstError(priorityError(out.priority), out.refusal)
	for _, r := range p.Spec.Ingress {
		var peers []tierPeer
		for _, q := range r.From {
			peers = append(peers, newPeer(peerFields{namespaces: q.Namespaces, pods: podsOfCluster(q.Pods)}))
		}
		out.ingress = append(out.ingress, clusterRule(r.Name, string(r.Action), peers, r.Protocols))
	}
	for _, r := range p.Spec.Egress {
		var peers []tierPeer
		for _, q := range r.To {
			peers = append(peers, newPeer(peerFields{q.Namespaces, podsOfCluster(q.Pods), q.Nodes, texts(q.Networks), texts(q.DomainNames)}))
		}
		out.egress = append(out.egress, clusterRule(r.Name, string(r.Action), peers, r.Protocols))
	}
	return out
}

func priorityError(n int) error {
	if n < 0 || n > maxPriority {
		return fmt.Errorf("spec.priority is %d, which is not from 0 to %d", n, maxPriority)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func adminSources(peers []v1alpha1.AdminNetworkPolicyIngressPeer) []tierPeer {
	var out []tierPeer
	for _, p := range peers {
		out = append(out, newPeer(peerFields{namespaces: p.Namespaces, pods: podsOfAdmin(p.Pods)}))
	}
	return out
}

// adminRule reads a rule of v1alpha1, where a list of ports must not be empty if it is present.
func adminRule(name, action string, actions []Action, peers []tierPeer, ports *[]v1alpha1.AdminNetworkPolicyPort) tierRule {
	var list []tierPort
	if ports != nil {
		for _, p := range *ports {
			list = append(list, adminPort(p))
		}
	}
	return newRule(name, action, actions, peers, list, ports == nil)
}

// clusterRule reads a rule of v1alpha2, where an empty list counts as missing.
func clusterRule(name, action string, peers []tierPeer, protocols []v1alpha2.ClusterNetworkPolicyProtocol) tierRule {
	var list []tierPort
	for _, p := range protocols {
		list = append(list, clusterPort(p))
	}
	return newRule(name, action, clusterActions, peers, list, len(list) == 0)
}

func texts[T ~string](list []T) []string {
	var out []string
	for _, s := range list {
		out = append(out, string(s))
	}
	return out
}
