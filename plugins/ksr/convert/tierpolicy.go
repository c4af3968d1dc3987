package convert

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api/model"
)

// convertTierPolicy converts a ClusterNetworkPolicy. v1beta1 and v1alpha2 have equal schemas; both
// are read in the type of v1alpha2.
func convertTierPolicy(p *v1alpha2.ClusterNetworkPolicy, at place) *model.ClusterPolicy {
	spec, known := specOfTier(p, at)
	return spec.convert(validPriority(p.Spec.Priority, at) && known, at)
}

func specOfTier(p *v1alpha2.ClusterNetworkPolicy, at place) (spec clusterSpec, known bool) {
	tier, known := readTier(p.Spec.Tier, at.child("spec", "tier"))
	return clusterSpec{
		dialect: &tierDialect, name: p.Name, annotations: p.Annotations, tier: tier, priority: p.Spec.Priority,
		subject: tierSubject(&p.Spec.Subject), ingress: tierIngress(p.Spec.Ingress), egress: tierEgress(p.Spec.Egress),
	}, known
}

func readTier(tier v1alpha2.Tier, at place) (model.ClusterPolicy_Tier, bool) {
	switch tier {
	case v1alpha2.AdminTier:
		return model.ClusterPolicy_TIER_ADMIN, true
	case v1alpha2.BaselineTier:
		return model.ClusterPolicy_TIER_BASELINE, true
	}
	at.errorf("%s is not a tier: want Admin or Baseline", model.Quoted(string(tier)))
	return model.ClusterPolicy_TIER_UNSPECIFIED, false
}

func tierSubject(s *v1alpha2.ClusterNetworkPolicySubject) clusterPeer {
	return clusterPeer{namespaces: s.Namespaces, pods: tierPods(s.Pods)}
}

func tierPods(p *v1alpha2.NamespacedPod) *namespacedPods {
	if p == nil {
		return nil
	}
	return &namespacedPods{&p.NamespaceSelector, &p.PodSelector}
}

func tierIngress(rules []v1alpha2.ClusterNetworkPolicyIngressRule) []clusterRule {
	return eachOf(rules, func(r v1alpha2.ClusterNetworkPolicyIngressRule) clusterRule {
		return tierRule(r.Name, string(r.Action), eachOf(r.From, func(p v1alpha2.ClusterNetworkPolicyIngressPeer) clusterPeer {
			return clusterPeer{namespaces: p.Namespaces, pods: tierPods(p.Pods)}
		}), r.Protocols)
	})
}

func tierEgress(rules []v1alpha2.ClusterNetworkPolicyEgressRule) []clusterRule {
	return eachOf(rules, func(r v1alpha2.ClusterNetworkPolicyEgressRule) clusterRule {
		return tierRule(r.Name, string(r.Action), eachOf(r.To, func(p v1alpha2.ClusterNetworkPolicyEgressPeer) clusterPeer {
			return clusterPeer{p.Namespaces, tierPods(p.Pods), p.Nodes, eachOf(p.Networks, textOf), eachOf(p.DomainNames, textOf)}
		}), r.Protocols)
	})
}

// tierRule treats an empty list of protocols like a missing one: the type encodes both in the same
// way.
func tierRule(name, action string, peers []clusterPeer, protocols []v1alpha2.ClusterNetworkPolicyProtocol) clusterRule {
	return clusterRule{name: name, action: action, peers: peers, anyPort: len(protocols) == 0, ports: eachOf(protocols, tierPort)}
}

func tierPort(p v1alpha2.ClusterNetworkPolicyProtocol) clusterPort {
	var forms []clusterPort
	if p.TCP != nil {
		forms = append(forms, destinationPort("tcp", corev1.ProtocolTCP, p.TCP.DestinationPort))
	}
	if p.UDP != nil {
		forms = append(forms, destinationPort("udp", corev1.ProtocolUDP, p.UDP.DestinationPort))
	}
	if p.SCTP != nil {
		forms = append(forms, destinationPort("sctp", corev1.ProtocolSCTP, p.SCTP.DestinationPort))
	}
	if p.DestinationNamedPort != "" {
		forms = append(forms, clusterPort{form: portForm{at: []string{"destinationNamedPort"}}, named: p.DestinationNamedPort})
	}
	return only(forms)
}

// destinationPort returns a port without a form if the port is empty or ambiguous: its meaning in a
// later version is unknown.
func destinationPort(name string, protocol corev1.Protocol, port *v1alpha2.Port) clusterPort {
	if port == nil || (port.Number != 0) == (port.Range != nil) {
		return clusterPort{}
	}
	out := clusterPort{form: portForm{at: []string{name, "destinationPort"}, first: "number"}, protocol: string(protocol), first: port.Number}
	if r := port.Range; r != nil {
		out.form = portForm{at: []string{name, "destinationPort", "range"}, first: "start", last: "end", proper: true}
		out.first, out.last = r.Start, r.End
	}
	return out
}
