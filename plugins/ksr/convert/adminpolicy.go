package convert

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"

	"github.com/sluice-net/sluice/api/model"
)

// baselineName is the only name of a BaselineAdminNetworkPolicy.
const baselineName = "default"

// convertAdminPolicy converts an AdminNetworkPolicy of v1alpha1.
func convertAdminPolicy(p *v1alpha1.AdminNetworkPolicy, at place) *model.ClusterPolicy {
	return specOfAdmin(p).convert(validPriority(p.Spec.Priority, at), at)
}

func specOfAdmin(p *v1alpha1.AdminNetworkPolicy) clusterSpec {
	return clusterSpec{
		dialect: &adminDialect, name: p.Name, annotations: p.Annotations, tier: model.ClusterPolicy_TIER_ADMIN, priority: p.Spec.Priority,
		subject: adminSubject(&p.Spec.Subject), ingress: adminIngress(p.Spec.Ingress), egress: adminEgress(p.Spec.Egress),
	}
}

// convertBaselinePolicy converts a BaselineAdminNetworkPolicy of v1alpha1. It is evaluated after
// every ClusterNetworkPolicy of its tier.
func convertBaselinePolicy(p *v1alpha1.BaselineAdminNetworkPolicy, at place) *model.ClusterPolicy {
	known := p.Name == baselineName
	if !known {
		at.child("metadata", "name").errorf("%s is not the name of a BaselineAdminNetworkPolicy: there is one only, and its name is %s", model.Quoted(p.Name), baselineName)
	}
	return specOfBaseline(p).convert(known, at)
}

func specOfBaseline(p *v1alpha1.BaselineAdminNetworkPolicy) clusterSpec {
	return clusterSpec{
		dialect: &baselineDialect, name: p.Name, annotations: p.Annotations, tier: model.ClusterPolicy_TIER_BASELINE, priority: maxPriority + 1,
		subject: adminSubject(&p.Spec.Subject), ingress: baselineIngress(p.Spec.Ingress), egress: baselineEgress(p.Spec.Egress),
	}
}

func adminSubject(s *v1alpha1.AdminNetworkPolicySubject) clusterPeer {
	return clusterPeer{namespaces: s.Namespaces, pods: adminPods(s.Pods)}
}

func adminPods(p *v1alpha1.NamespacedPod) *namespacedPods {
	if p == nil {
		return nil
	}
	return &namespacedPods{&p.NamespaceSelector, &p.PodSelector}
}

func adminIngress(rules []v1alpha1.AdminNetworkPolicyIngressRule) []clusterRule {
	return eachOf(rules, func(r v1alpha1.AdminNetworkPolicyIngressRule) clusterRule {
		return adminRule(r.Name, string(r.Action), eachOf(r.From, adminSource), r.Ports)
	})
}

func adminEgress(rules []v1alpha1.AdminNetworkPolicyEgressRule) []clusterRule {
	return eachOf(rules, func(r v1alpha1.AdminNetworkPolicyEgressRule) clusterRule {
		return adminRule(r.Name, string(r.Action), eachOf(r.To, func(p v1alpha1.AdminNetworkPolicyEgressPeer) clusterPeer {
			return clusterPeer{p.Namespaces, adminPods(p.Pods), p.Nodes, eachOf(p.Networks, textOf), eachOf(p.DomainNames, textOf)}
		}), r.Ports)
	})
}

func baselineIngress(rules []v1alpha1.BaselineAdminNetworkPolicyIngressRule) []clusterRule {
	return eachOf(rules, func(r v1alpha1.BaselineAdminNetworkPolicyIngressRule) clusterRule {
		return adminRule(r.Name, string(r.Action), eachOf(r.From, adminSource), r.Ports)
	})
}

func baselineEgress(rules []v1alpha1.BaselineAdminNetworkPolicyEgressRule) []clusterRule {
	return eachOf(rules, func(r v1alpha1.BaselineAdminNetworkPolicyEgressRule) clusterRule {
		return adminRule(r.Name, string(r.Action), eachOf(r.To, func(p v1alpha1.BaselineAdminNetworkPolicyEgressPeer) clusterPeer {
			return clusterPeer{namespaces: p.Namespaces, pods: adminPods(p.Pods), nodes: p.Nodes, networks: eachOf(p.Networks, textOf)}
		}), r.Ports)
	})
}

func adminSource(p v1alpha1.AdminNetworkPolicyIngressPeer) clusterPeer {
	return clusterPeer{namespaces: p.Namespaces, pods: adminPods(p.Pods)}
}

// adminRule distinguishes an empty list of ports from a missing one, as the type does.
func adminRule(name, action string, peers []clusterPeer, ports *[]v1alpha1.AdminNetworkPolicyPort) clusterRule {
	if ports == nil {
		return clusterRule{name: name, action: action, peers: peers, anyPort: true}
	}
	return clusterRule{name: name, action: action, peers: peers, ports: eachOf(*ports, adminPort)}
}

func adminPort(p v1alpha1.AdminNetworkPolicyPort) clusterPort {
	var forms []clusterPort
	if n := p.PortNumber; n != nil {
		forms = append(forms, clusterPort{form: portForm{at: []string{"portNumber"}, first: "port"}, protocol: protocolText(n.Protocol), first: n.Port})
	}
	if n := p.NamedPort; n != nil {
		forms = append(forms, clusterPort{form: portForm{at: []string{"namedPort"}}, named: *n})
	}
	if r := p.PortRange; r != nil {
		forms = append(forms, clusterPort{form: portForm{at: []string{"portRange"}, first: "start", last: "end"}, protocol: protocolText(r.Protocol), first: r.Start, last: r.End})
	}
	return only(forms)
}

// protocolText applies the default of v1alpha1.
func protocolText(p corev1.Protocol) string {
	if p == "" {
		p = corev1.ProtocolTCP
	}
	return string(p)
}
