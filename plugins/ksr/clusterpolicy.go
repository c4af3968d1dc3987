package ksr

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api/model"
)

// Cluster-scoped policies are checked as their custom resource definitions check
// them, because manifests may never have met an API server. What the definitions
// say of the length of lists is left out: nothing here needs it.

// maxPriority is the largest priority of a policy that has one, and the least
// important.
const maxPriority = 1000

func (f *findings) priority(n int32) bool {
	ok := 0 <= n && n <= maxPriority
	if !ok {
		f.add(field.NewPath("spec", "priority"), "%d is not a priority: want 0 to %d", n, maxPriority)
	}
	return ok
}

// clusterPolicy converts a cluster-scoped policy. It is refused, with nil, unless it
// is known where it stands among the others and whom it is for. Whatever else is
// wrong closes: see clusterRule.
func (f *findings) clusterPolicy(standingKnown bool, p clusterSpec) *model.ClusterPolicy {
	spec := field.NewPath("spec")
	subject := f.subject(p.subject, spec.Child("subject"))
	ingress := f.clusterRules(p.ingress, p.dialect, "from", spec.Child("ingress"))
	egress := f.clusterRules(p.egress, p.dialect, "to", spec.Child("egress"))
	if !standingKnown || subject == nil {
		return nil
	}
	out := &model.ClusterPolicy{
		Kind: p.dialect.kind, Name: p.name, Tier: p.tier, Priority: uint32(p.priority),
		Subject: subject, Ingress: ingress, Egress: egress,
	}
	for _, i := range out.OverFamilies() {
		f.add(spec.Child("egress").Index(i), "%s", egress[i].TooManyFamilies())
		egress[i] = closed(egress[i])
	}
	return out
}

// subject returns nil for a subject that says nothing, two things, or something
// that is wrong.
func (f *findings) subject(s clusterPeer, path *field.Path) *model.ClusterPolicy_Pods {
	if (s.namespaces == nil) == (s.pods == nil) {
		f.add(path, "must have exactly one of namespaces and pods")
		return nil
	}
	if pods := f.podsOf(s, path); !hasInvalid(pods) {
		return pods
	}
	return nil
}

// podsOf converts one of the two ways to select pods.
func (f *findings) podsOf(s clusterPeer, path *field.Path) *model.ClusterPolicy_Pods {
	if s.pods == nil {
		return &model.ClusterPolicy_Pods{
			Namespaces: f.selector(s.namespaces, path.Child("namespaces")), Pods: &model.LabelSelector{},
		}
	}
	return &model.ClusterPolicy_Pods{
		Namespaces: f.selector(s.pods.namespaces, path.Child("pods", "namespaceSelector")),
		Pods:       f.selector(s.pods.pods, path.Child("pods", "podSelector")),
	}
}

// hasInvalid says whether a selector of pods is invalid, so that it matches nothing.
func hasInvalid(p *model.ClusterPolicy_Pods) bool {
	return slices.ContainsFunc(p.GetNamespaces().GetMatchExpressions(), isInvalid) ||
		slices.ContainsFunc(p.GetPods().GetMatchExpressions(), isInvalid)
}
