package explain

import (
	"fmt"
	"slices"

	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/view"
)

// untrueOfTier says what is wrong with what is said of an admin rule. It
// asks about a state that has this rule and nothing else.
func untrueOfTier(s oracle.State, e view.Explanation, n view.NamedOrigin) string {
	only := oracle.State{Nodes: s.Nodes, Namespaces: s.Namespaces, Pods: s.Pods}
	if !addAlone(s, &only, n.Origin) {
		return "there is no such rule"
	}
	d := oracle.New(only).VerdictPods(e.Oracle.Src, e.Oracle.Dst, e.Flow.Protocol, e.Flow.DstPort).Direction(n.Direction)
	evals := slices.Concat(d.Admin, d.Baseline)
	switch matched := len(evals) > 0 && evals[0].Rules[0].Matched; {
	case len(evals) == 0:
		return "the policy applies to no end of the flow"
	case n.Role == view.OriginBehind: // it may match or not
		return ""
	case matched != (n.Role != view.OriginMerged):
		return fmt.Sprintf("the rule matches: %t", matched)
	case n.Role == view.OriginPasses && evals[0].Rules[0].Action != oracle.Pass:
		return "the rule does not pass"
	}
	return ""
}

// addAlone adds an admin policy with one of its rules.
func addAlone(from oracle.State, to *oracle.State, g api.Origin) bool {
	for _, p := range from.AdminPolicies {
		if g.Policy.Kind == api.AdminNetworkPolicy && p.Name == g.Policy.Name {
			p = p.DeepCopy()
			ok := keepOne(&p.Spec.Ingress, &p.Spec.Egress, g)
			to.AdminPolicies = []*v1alpha1.AdminNetworkPolicy{p}
			return ok
		}
	}
	for _, p := range from.BaselinePolicies {
		if g.Policy.Kind == api.BaselineAdminNetworkPolicy && p.Name == g.Policy.Name {
			p = p.DeepCopy()
			ok := keepOne(&p.Spec.Ingress, &p.Spec.Egress, g)
			to.BaselinePolicies = []*v1alpha1.BaselineAdminNetworkPolicy{p}
			return ok
		}
	}
	for _, p := range from.ClusterPolicies {
		if g.Policy.Kind == api.ClusterNetworkPolicy && p.Name == g.Policy.Name {
			p = p.DeepCopy()
			ok := keepOne(&p.Spec.Ingress, &p.Spec.Egress, g)
			to.ClusterPolicies = []*v1alpha2.ClusterNetworkPolicy{p}
			return ok
		}
	}
	return false
}

func keepOne[I, E any](ingress *[]I, egress *[]E, g api.Origin) bool {
	in, out := *ingress, *egress
	*ingress, *egress = nil, nil
	switch {
	case g.Rule < 0:
		return false
	case g.Direction == api.Ingress && g.Rule < len(in):
		*ingress = in[g.Rule : g.Rule+1]
	case g.Direction == api.Egress && g.Rule < len(out):
		*egress = out[g.Rule : g.Rule+1]
	default:
		return false
	}
	return true
}
