package convert

import (
	"slices"

	"github.com/sluice-net/sluice/api/model"
)

// Cluster-scoped policies are validated like their custom resource definitions do, because
// manifests may never have passed an API server. Limits on the length of lists are not checked:
// nothing here needs them.

// maxPriority is the largest, and least important, priority of a policy.
const maxPriority = 1000

func validPriority(n int32, at place) bool {
	ok := 0 <= n && n <= maxPriority
	if !ok {
		at.child("spec", "priority").errorf("%d is not a priority: want 0 to %d", n, maxPriority)
	}
	return ok
}

// convert converts a cluster-scoped policy. It rejects the policy and returns nil if its place in
// the order of evaluation or its subject is unknown. All other errors fail closed: see clusterRule.
func (p clusterSpec) convert(standingKnown bool, at place) *model.ClusterPolicy {
	spec := at.child("spec")
	subject := p.subject.subject(spec.child("subject"))
	ingress := p.dialect.rules(p.ingress, "from", spec.child("ingress"))
	egress := p.dialect.rules(p.egress, "to", spec.child("egress"))
	if !standingKnown || subject == nil {
		return nil
	}
	out := &model.ClusterPolicy{
		Kind: p.dialect.kind, Name: p.name, Tier: p.tier, Priority: uint32(p.priority),
		Subject: subject, Ingress: ingress, Egress: egress, Audit: readAudit(p.annotations, at),
	}
	for _, i := range out.OverFamilies() {
		spec.child("egress").index(i).errorf("%s", egress[i].TooManyFamilies())
		egress[i] = closed(egress[i])
	}
	return out
}

// subject returns nil for a subject that is empty, ambiguous or invalid.
func (s *clusterPeer) subject(at place) *model.ClusterPolicy_Pods {
	if (s.namespaces == nil) == (s.pods == nil) {
		at.errorf("must have exactly one of namespaces and pods")
		return nil
	}
	if pods := s.podsOf(at); !hasInvalid(pods) {
		return pods
	}
	return nil
}

// podsOf converts one of the two ways to select pods.
func (s *clusterPeer) podsOf(at place) *model.ClusterPolicy_Pods {
	if s.pods == nil {
		return &model.ClusterPolicy_Pods{
			Namespaces: readSelector(s.namespaces, at.child("namespaces")), Pods: &model.LabelSelector{},
		}
	}
	return &model.ClusterPolicy_Pods{
		Namespaces: readSelector(s.pods.namespaces, at.child("pods", "namespaceSelector")),
		Pods:       readSelector(s.pods.pods, at.child("pods", "podSelector")),
	}
}

// hasInvalid reports whether a pod selector is invalid, so that it matches nothing.
func hasInvalid(p *model.ClusterPolicy_Pods) bool {
	return slices.ContainsFunc(p.GetNamespaces().GetMatchExpressions(), isInvalid) ||
		slices.ContainsFunc(p.GetPods().GetMatchExpressions(), isInvalid)
}
