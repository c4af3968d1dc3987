package ksr

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api/model"
)

// Cluster-scoped policies are checked as their custom resource definitions check
// them, because manifests may never have met an API server. What the definitions
// say of the length of lists is left out: nothing here needs it.

// maxPriority is the largest priority, which is the least important.
const maxPriority = 1000

// baselineName is the only name of a BaselineAdminNetworkPolicy.
const baselineName = "default"

// adminPolicy converts an AdminNetworkPolicy. Like all cluster-scoped policies it is
// refused, with nil, when it is not known where it stands or whom it is for; in
// whatever else is wrong rules that allow match nothing, and others deny all.
func (f *findings) adminPolicy(p *v1alpha1.AdminNetworkPolicy) *model.ClusterPolicy {
	spec := field.NewPath("spec")
	out := &model.ClusterPolicy{
		Kind: model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY, Name: p.Name, Tier: model.ClusterPolicy_TIER_ADMIN,
		Priority: f.priority(p.Spec.Priority, spec.Child("priority")),
		Subject:  f.subject(p.Spec.Subject.Namespaces, podsOfAdmin(p.Spec.Subject.Pods), spec.Child("subject")),
	}
	for i, r := range p.Spec.Ingress {
		out.Ingress = append(out.Ingress, f.clusterRule(adminRule(r.Name, string(r.Action), r.Ports, ingressPeers(r.From)), spec.Child("ingress").Index(i)))
	}
	for i, r := range p.Spec.Egress {
		out.Egress = append(out.Egress, f.clusterRule(adminRule(r.Name, string(r.Action), r.Ports, egressPeers(r.To)), spec.Child("egress").Index(i)))
	}
	return f.accepted(out)
}

// baselinePolicy converts a BaselineAdminNetworkPolicy. It comes after every
// ClusterNetworkPolicy of its tier.
func (f *findings) baselinePolicy(p *v1alpha1.BaselineAdminNetworkPolicy) *model.ClusterPolicy {
	if p.Name != baselineName {
		f.add(field.NewPath("metadata", "name"), "%s is not the name of the only BaselineAdminNetworkPolicy: want %s", quoted(p.Name), baselineName)
		return nil
	}
	spec := field.NewPath("spec")
	out := &model.ClusterPolicy{
		Kind: model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY, Name: p.Name, Tier: model.ClusterPolicy_TIER_BASELINE,
		Priority: maxPriority + 1,
		Subject:  f.subject(p.Spec.Subject.Namespaces, podsOfAdmin(p.Spec.Subject.Pods), spec.Child("subject")),
	}
	for i, r := range p.Spec.Ingress {
		rule := adminRule(r.Name, string(r.Action), r.Ports, ingressPeers(r.From))
		rule.noPass = true
		out.Ingress = append(out.Ingress, f.clusterRule(rule, spec.Child("ingress").Index(i)))
	}
	for i, r := range p.Spec.Egress {
		rule := adminRule(r.Name, string(r.Action), r.Ports, baselinePeers(r.To))
		rule.noPass = true
		out.Egress = append(out.Egress, f.clusterRule(rule, spec.Child("egress").Index(i)))
	}
	return f.accepted(out)
}

// clusterPolicy converts a ClusterNetworkPolicy.
func (f *findings) clusterPolicy(p *v1alpha2.ClusterNetworkPolicy) *model.ClusterPolicy {
	spec := field.NewPath("spec")
	out := &model.ClusterPolicy{
		Kind: model.ClusterPolicy_KIND_CLUSTER_NETWORK_POLICY, Name: p.Name,
		Tier:     f.tier(p.Spec.Tier, spec.Child("tier")),
		Priority: f.priority(p.Spec.Priority, spec.Child("priority")),
		Subject:  f.subject(p.Spec.Subject.Namespaces, podsOfCluster(p.Spec.Subject.Pods), spec.Child("subject")),
	}
	for i, r := range p.Spec.Ingress {
		out.Ingress = append(out.Ingress, f.clusterRule(tierRule(r.Name, string(r.Action), r.Protocols, clusterIngressPeers(r.From)), spec.Child("ingress").Index(i)))
	}
	for i, r := range p.Spec.Egress {
		out.Egress = append(out.Egress, f.clusterRule(tierRule(r.Name, string(r.Action), r.Protocols, clusterEgressPeers(r.To)), spec.Child("egress").Index(i)))
	}
	return f.accepted(out)
}

// accepted returns nil for a policy that says nothing about where it stands or whom
// it is for.
func (f *findings) accepted(p *model.ClusterPolicy) *model.ClusterPolicy {
	if p.Tier == model.ClusterPolicy_TIER_UNSPECIFIED || p.Priority > maxPriority+1 || p.Subject == nil {
		return nil
	}
	return p
}

func (f *findings) tier(tier v1alpha2.Tier, path *field.Path) model.ClusterPolicy_Tier {
	switch tier {
	case v1alpha2.AdminTier:
		return model.ClusterPolicy_TIER_ADMIN
	case v1alpha2.BaselineTier:
		return model.ClusterPolicy_TIER_BASELINE
	}
	f.add(path, "%s is not a tier: want Admin or Baseline", quoted(string(tier)))
	return model.ClusterPolicy_TIER_UNSPECIFIED
}

// priority returns a value that no policy has for one out of range.
func (f *findings) priority(n int32, path *field.Path) uint32 {
	if n < 0 || n > maxPriority {
		f.add(path, "%d is not a priority: want 0 to %d", n, maxPriority)
		return maxPriority + 2
	}
	return uint32(n)
}

// namespacedPods are pods in namespaces, as both versions of the API have them.
type namespacedPods struct{ namespaces, pods *metav1.LabelSelector }

func podsOfAdmin(p *v1alpha1.NamespacedPod) *namespacedPods {
	if p == nil {
		return nil
	}
	return &namespacedPods{&p.NamespaceSelector, &p.PodSelector}
}

func podsOfCluster(p *v1alpha2.NamespacedPod) *namespacedPods {
	if p == nil {
		return nil
	}
	return &namespacedPods{&p.NamespaceSelector, &p.PodSelector}
}

// subject returns nil for a subject that says nothing, two things, or something
// that is wrong.
func (f *findings) subject(namespaces *metav1.LabelSelector, pods *namespacedPods, path *field.Path) *model.ClusterPolicy_Pods {
	if (namespaces == nil) == (pods == nil) {
		f.add(path, "must have either namespaces or pods")
		return nil
	}
	out := f.selected(namespaces, pods, path)
	if slices.ContainsFunc(out.Namespaces.MatchExpressions, isInvalid) || slices.ContainsFunc(out.Pods.MatchExpressions, isInvalid) {
		return nil
	}
	return out
}

// selected converts one of the two ways to select pods.
func (f *findings) selected(namespaces *metav1.LabelSelector, pods *namespacedPods, path *field.Path) *model.ClusterPolicy_Pods {
	if pods == nil {
		return &model.ClusterPolicy_Pods{
			Namespaces: f.selector(namespaces, path.Child("namespaces")), Pods: &model.LabelSelector{},
		}
	}
	return &model.ClusterPolicy_Pods{
		Namespaces: f.selector(pods.namespaces, path.Child("pods", "namespaceSelector")),
		Pods:       f.selector(pods.pods, path.Child("pods", "podSelector")),
	}
}
