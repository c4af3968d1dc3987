package faults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/tests/cluster"
)

// edit changes a state, whose objects are its own.
type edit func(s *cluster.State)

// edited returns a copy of a state with some edits.
func edited(s cluster.State, edits []edit) cluster.State {
	out := cluster.Copy(s)
	for _, e := range edits {
		e(&out)
	}
	return out
}

func pods(change func(p *corev1.Pod)) edit {
	return func(s *cluster.State) {
		for _, p := range s.Pods {
			change(p)
		}
	}
}

func policies(change func(np *networkingv1.NetworkPolicySpec)) edit {
	return func(s *cluster.State) {
		for _, np := range s.Policies {
			change(&np.Spec)
		}
	}
}

// rules rewrites the rules of both directions as ingress rules.
func rules(change func(networkingv1.NetworkPolicyIngressRule) []networkingv1.NetworkPolicyIngressRule) edit {
	return policies(func(spec *networkingv1.NetworkPolicySpec) {
		var ingress []networkingv1.NetworkPolicyIngressRule
		for _, r := range spec.Ingress {
			ingress = append(ingress, change(r)...)
		}
		var egress []networkingv1.NetworkPolicyEgressRule
		for _, r := range spec.Egress {
			for _, c := range change(networkingv1.NetworkPolicyIngressRule{From: r.To, Ports: r.Ports}) {
				egress = append(egress, networkingv1.NetworkPolicyEgressRule{To: c.From, Ports: c.Ports})
			}
		}
		spec.Ingress, spec.Egress = ingress, egress
	})
}

func peers(change func(p *networkingv1.NetworkPolicyPeer)) edit {
	return rules(func(r networkingv1.NetworkPolicyIngressRule) []networkingv1.NetworkPolicyIngressRule {
		for i := range r.From {
			change(&r.From[i])
		}
		return []networkingv1.NetworkPolicyIngressRule{r}
	})
}

// ports puts other ports in the place of each. A rule that had some keeps at least one.
func ports(change func(p networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyPort) edit {
	return rules(func(r networkingv1.NetworkPolicyIngressRule) []networkingv1.NetworkPolicyIngressRule {
		var out []networkingv1.NetworkPolicyPort
		for _, p := range r.Ports {
			out = append(out, change(p)...)
		}
		r.Ports = out
		return []networkingv1.NetworkPolicyIngressRule{r}
	})
}

// selectors changes the selectors of subjects and of peers.
func selectors(change func(s *metav1.LabelSelector)) edit {
	ofPeers := peers(func(p *networkingv1.NetworkPolicyPeer) {
		for _, s := range []*metav1.LabelSelector{p.PodSelector, p.NamespaceSelector} {
			if s != nil {
				change(s)
			}
		}
	})
	return func(s *cluster.State) {
		ofPeers(s)
		policies(func(spec *networkingv1.NetworkPolicySpec) { change(&spec.PodSelector) })(s)
	}
}

// expressions puts other requirements in the place of each.
func expressions(change func(r metav1.LabelSelectorRequirement) []metav1.LabelSelectorRequirement) edit {
	return selectors(func(s *metav1.LabelSelector) {
		var out []metav1.LabelSelectorRequirement
		for _, r := range s.MatchExpressions {
			out = append(out, change(r)...)
		}
		s.MatchExpressions = out
	})
}

// containerPorts returns every port of the containers that a pod keeps.
func containerPorts(p *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		out = append(out, c.Ports...)
	}
	return out
}
