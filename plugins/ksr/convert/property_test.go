package convert

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

var (
	genName   = rapid.StringMatching(`[a-z]([a-z0-9]{0,5})`)
	genLabels = rapid.MapOf(genName, rapid.SampledFrom([]string{"", "a", "b", "web"}))
	genMeta   = rapid.Custom(func(t *rapid.T) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: genName.Draw(t, "namespace"), Name: genName.Draw(t, "name"), Labels: genLabels.Draw(t, "labels")}
	})
	genIP   = rapid.SampledFrom([]string{"10.1.0.5", "10.1.0.6", "010.1.0.5", "fd00::5", "FD00:0::5", "::ffff:10.1.0.6", "bad"})
	genPort = rapid.Custom(func(t *rapid.T) corev1.ContainerPort {
		return corev1.ContainerPort{
			Name:          rapid.SampledFrom([]string{"", "web", "dns", "a-b", "BAD"}).Draw(t, "name"),
			ContainerPort: rapid.Int32Range(-1, 70000).Draw(t, "port"),
			Protocol:      rapid.SampledFrom([]corev1.Protocol{"", "TCP", "UDP", "SCTP", "ICMP"}).Draw(t, "protocol"),
		}
	})
	genContainer = rapid.Custom(func(t *rapid.T) corev1.Container {
		c := corev1.Container{Ports: rapid.SliceOfN(genPort, 0, 4).Draw(t, "ports")}
		if rapid.Bool().Draw(t, "always") {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		return c
	})
	genPod = rapid.Custom(func(t *rapid.T) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: genMeta.Draw(t, "meta")}
		pod.Spec.Containers = rapid.SliceOfN(genContainer, 0, 3).Draw(t, "containers")
		pod.Spec.InitContainers = rapid.SliceOfN(genContainer, 0, 3).Draw(t, "initContainers")
		for _, ip := range rapid.SliceOfN(genIP, 0, 4).Draw(t, "ips") {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		for _, ip := range rapid.SliceOfN(genIP, 0, 4).Draw(t, "hostIPs") {
			pod.Status.HostIPs = append(pod.Status.HostIPs, corev1.HostIP{IP: ip})
		}
		return pod
	})
	genRequirement = rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{
			Key:      genName.Draw(t, "key"),
			Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Gt"}).Draw(t, "operator"),
			Values:   rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c d", ""}), 0, 4).Draw(t, "values"),
		}
	})
	genSelector = rapid.Custom(func(t *rapid.T) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: genLabels.Draw(t, "matchLabels"),
			MatchExpressions: rapid.SliceOfN(genRequirement, 0, 2).Draw(t, "matchExpressions")}
	})
	genCIDR = rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/24", "fd00::/8", "0.0.0.0/0", "::ffff:10.0.0.0/112", "x", ""})
	genPeer = rapid.Custom(func(t *rapid.T) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{
			PodSelector:       rapid.Ptr(genSelector, true).Draw(t, "podSelector"),
			NamespaceSelector: rapid.Ptr(genSelector, true).Draw(t, "namespaceSelector"),
			IPBlock: rapid.Ptr(rapid.Custom(func(t *rapid.T) networkingv1.IPBlock {
				return networkingv1.IPBlock{CIDR: genCIDR.Draw(t, "cidr"), Except: rapid.SliceOfN(genCIDR, 0, 3).Draw(t, "except")}
			}), true).Draw(t, "ipBlock"),
		}
	})
	genPolicyPort = rapid.Custom(func(t *rapid.T) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{
			Protocol: rapid.Ptr(rapid.SampledFrom([]corev1.Protocol{"TCP", "UDP", "SCTP", "icmp"}), true).Draw(t, "protocol"),
			Port: rapid.Ptr(rapid.OneOf(rapid.Map(rapid.Int32Range(-1, 70000), intstr.FromInt32),
				rapid.Map(rapid.SampledFrom([]string{"web", "80", ""}), intstr.FromString)), true).Draw(t, "port"),
			EndPort: rapid.Ptr(rapid.Int32Range(-1, 70000), true).Draw(t, "endPort"),
		}
	})
	genPolicy = rapid.Custom(func(t *rapid.T) *networkingv1.NetworkPolicy {
		np := &networkingv1.NetworkPolicy{ObjectMeta: genMeta.Draw(t, "meta")}
		np.Spec.PodSelector.MatchLabels = genLabels.Draw(t, "podSelector")
		np.Spec.PolicyTypes = rapid.SliceOfN(rapid.SampledFrom([]networkingv1.PolicyType{"Ingress", "Egress"}), 0, 3).Draw(t, "policyTypes")
		for range rapid.IntRange(0, 3).Draw(t, "ingress") {
			np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
				From: rapid.SliceOfN(genPeer, 0, 3).Draw(t, "from"), Ports: rapid.SliceOfN(genPolicyPort, 0, 3).Draw(t, "ports")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "egress") {
			np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{
				To: rapid.SliceOfN(genPeer, 0, 3).Draw(t, "to"), Ports: rapid.SliceOfN(genPolicyPort, 0, 3).Draw(t, "ports")})
		}
		return np
	})
)

// shuffled returns the list in another order, with some items there twice when
// they may be.
func shuffled[T any](t *rapid.T, list []T, repeat bool) []T {
	if len(list) == 0 {
		return list
	}
	out := rapid.Permutation(list).Draw(t, "order")
	if repeat {
		out = append(out, out[rapid.IntRange(0, len(out)-1).Draw(t, "repeat")])
	}
	return out
}

// rebuilt returns an equal map that was filled in another order.
func rebuilt(t *rapid.T, m map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range shuffled(t, slices.Sorted(maps.Keys(m)), true) {
		out[key] = m[key]
	}
	return out
}

func TestToModelOfPodIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := genPod.Draw(t, "pod")
		other := pod.DeepCopy()
		other.Labels = rebuilt(t, pod.Labels)
		other.Status.PodIPs = shuffled(t, pod.Status.PodIPs, true)
		other.Status.HostIPs = shuffled(t, pod.Status.HostIPs, true)
		other.Spec.InitContainers = shuffled(t, pod.Spec.InitContainers, true)
		other.Spec.Containers = shuffled(t, pod.Spec.Containers, true)
		for i := range other.Spec.Containers {
			other.Spec.Containers[i].Ports = shuffled(t, other.Spec.Containers[i].Ports, true)
		}
		if !bytes.Equal(encoded(t, pod), encoded(t, other)) {
			t.Fatalf("%v\nand\n%v", pod, other)
		}
	})
}

func TestToModelOfPolicyIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		np := genPolicy.Draw(t, "policy")
		other := np.DeepCopy()
		other.Spec.PodSelector.MatchLabels = rebuilt(t, np.Spec.PodSelector.MatchLabels)
		if len(np.Spec.PolicyTypes) > 0 {
			other.Spec.PolicyTypes = shuffled(t, np.Spec.PolicyTypes, true)
		}
		for _, rule := range other.Spec.Ingress {
			for i := range rule.From {
				shufflePeer(t, &rule.From[i])
			}
		}
		for _, rule := range other.Spec.Egress {
			for i := range rule.To {
				shufflePeer(t, &rule.To[i])
			}
		}
		if !bytes.Equal(encoded(t, np), encoded(t, other)) {
			t.Fatalf("%v\nand\n%v", np, other)
		}
	})
}

func shufflePeer(t *rapid.T, p *networkingv1.NetworkPolicyPeer) {
	for _, s := range []*metav1.LabelSelector{p.PodSelector, p.NamespaceSelector} {
		if s == nil {
			continue
		}
		s.MatchLabels = rebuilt(t, s.MatchLabels)
		for i := range s.MatchExpressions {
			s.MatchExpressions[i].Values = shuffled(t, s.MatchExpressions[i].Values, true)
		}
	}
	if p.IPBlock != nil {
		p.IPBlock.Except = shuffled(t, p.IPBlock.Except, true)
	}
}

func TestToModelOfInvalidPolicyFailsClosed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		np := genPolicy.Draw(t, "policy")
		before := np.DeepCopy()
		checkFailsClosed(t, np)
		if !equalPolicies(before, np) {
			t.Fatalf("the object was changed from\n%v\nto\n%v", before, np)
		}
	})
}

func equalPolicies(a, b *networkingv1.NetworkPolicy) bool { return a.String() == b.String() }
