package convert

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Refused returns what is in force in place of a policy that ToModel rejects with some problems, if
// no older version is: it closes what the policy may select, see the methods Refuse of package
// model. It returns nil for objects of other kinds.
func Refused(obj any, problems []api.Problem) proto.Message {
	at, why := place{found: &findings{}}, reason(problems)
	var spec clusterSpec
	switch p := obj.(type) {
	case *networkingv1.NetworkPolicy:
		return fits(refusedPolicy(p, at).Refuse(why))
	case *v1alpha1.AdminNetworkPolicy:
		spec = specOfAdmin(p)
	case *v1alpha1.BaselineAdminNetworkPolicy:
		spec = specOfBaseline(p)
	case *v1alpha2.ClusterNetworkPolicy:
		spec, _ = specOfTier(p, at)
	default:
		return nil
	}
	return fits(spec.refused(at).Refuse(why))
}

// fits leaves out a subject that is too large for the store.
func fits[M interface {
	proto.Message
	Refuse(string) M
}](m M) proto.Message {
	if model.CheckLimits(m, proto.Size(m)) == nil {
		return m
	}
	switch p := proto.Message(m).(type) {
	case *model.NetworkPolicy:
		p.PodSelector = &model.LabelSelector{}
	case *model.ClusterPolicy:
		p.Subject = nil
	}
	return m
}

// refusedPolicy returns what can be read of a NetworkPolicy, without rules.
func refusedPolicy(p *networkingv1.NetworkPolicy, at place) *model.NetworkPolicy {
	ingress, egress, ok := readPolicyTypes(&p.Spec, at)
	return &model.NetworkPolicy{
		Namespace: p.Namespace, Name: p.Name, PodSelector: readSelector(&p.Spec.PodSelector, at),
		IsolatesIngress: ingress || !ok, IsolatesEgress: egress || !ok, Audit: readAudit(p.Annotations, at),
	}
}

// refused returns what can be read of a cluster-scoped policy. Of an unknown place it is evaluated
// first: nothing that it may deny is permitted before.
func (p clusterSpec) refused(at place) *model.ClusterPolicy {
	out := &model.ClusterPolicy{
		Kind: p.dialect.kind, Name: p.name, Tier: p.tier, Priority: uint32(p.priority), Audit: readAudit(p.annotations, at),
		Ingress: p.dialect.rules(p.ingress, "from", at), Egress: p.dialect.rules(p.egress, "to", at),
	}
	if p.dialect != &baselineDialect && (p.priority < 0 || p.priority > maxPriority) {
		out.Priority = 0
	}
	if out.Tier == model.ClusterPolicy_TIER_UNSPECIFIED {
		out.Tier, out.Priority = model.ClusterPolicy_TIER_ADMIN, 0
	}
	if (p.subject.namespaces == nil) != (p.subject.pods == nil) {
		out.Subject = p.subject.podsOf(at)
	}
	return out
}

// reason returns the first problem, and how many there are.
func reason(problems []api.Problem) string {
	if len(problems) == 0 {
		return "its reason is unknown"
	}
	text := problems[0].Reason
	if field := problems[0].Field; field != "" {
		text = field + ": " + text
	}
	if n := len(problems) - 1; n > 0 {
		text += fmt.Sprintf("; and %d more problems", n)
	}
	return valid(text)
}
