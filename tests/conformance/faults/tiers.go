package faults

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
)

// tierFaults are the faults of admin policies.
var tierFaults = administrators(slices.Concat(orderFaults, actionFaults, subjectFaults, tierPeerFaults, tierPortFaults, tierHistories))

func administrators(list []Fault) []Fault {
	for i := range list {
		list[i].admin = true
	}
	return list
}

var orderFaults = []Fault{
	misread("priorities are reversed", "57", ranked(func(a, b place) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), strings.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind))
	})),
	misread("priorities are not asked, only names", "57, 58", ranked(func(a, b place) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind))
	})),
	misread("of equal priorities the last name is first", "58", ranked(func(a, b place) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), strings.Compare(b.name, a.name), cmp.Compare(b.kind, a.kind))
	})),
	misread("rules are asked from the last to the first", "57, 79", lists(func(_ manifest, _ string, rules []any) []any {
		slices.Reverse(rules)
		return rules
	})),
	misread("only the first rule of a policy counts", "57", lists(func(_ manifest, _ string, rules []any) []any {
		return rules[:min(1, len(rules))]
	})),
	misread("the baseline is asked before NetworkPolicy", "57, 64", baselineFirst),
	misread("the baseline is not asked", "57", func(s *cluster.State) {
		s.BaselinePolicies = nil
		s.ClusterPolicies = slices.DeleteFunc(s.ClusterPolicies, inBaseline)
	}),
	misread("the admin tier denies what none of its rules matches", "63", lists(func(m manifest, peers string, rules []any) []any {
		if m.baseline || len(rules) == 0 {
			return rules
		}
		return append(rules, tree{"action": "Deny", peers: []any{tree{"namespaces": tree{}}}})
	})),
	wrongAnswer("a NetworkPolicy of either direction keeps the baseline away", "66", func(o *oracle.Oracle, s cluster.State, f api.Flow) bool {
		v := o.Verdict(f)
		return isolatedSomehow(s, v.Egress) && isolatedSomehow(s, v.Ingress)
	}),
	wrongAnswer("a NetworkPolicy keeps the baseline away in the whole namespace", "64", func(o *oracle.Oracle, s cluster.State, f api.Flow) bool {
		v := o.Verdict(f)
		return inNamespaceOfPolicy(s, v.Egress) && inNamespaceOfPolicy(s, v.Ingress)
	}),
}

func inBaseline(p *v1alpha2.ClusterNetworkPolicy) bool { return p.Spec.Tier == v1alpha2.BaselineTier }

// baselineFirst makes the baseline the end of the admin tier.
func baselineFirst(s *cluster.State) {
	ranked(func(a, b place) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), strings.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind))
	})(s)
	slices.SortFunc(s.ClusterPolicies, func(a, b *v1alpha2.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), strings.Compare(a.Name, b.Name))
	})
	after := int32(100)
	for _, p := range s.ClusterPolicies {
		if inBaseline(p) && p.Spec.Priority >= 0 && p.Spec.Priority <= 1000 {
			p.Spec.Tier, p.Spec.Priority = v1alpha2.AdminTier, after
			after++
		}
	}
	for _, b := range s.BaselinePolicies {
		s.AdminPolicies = append(s.AdminPolicies, asAdmin(b, 1000))
	}
	s.BaselinePolicies = nil
}

// decidedByBaseline reports whether the baseline denies at an end.
func decidedByBaseline(v oracle.DirectionVerdict) bool {
	return !v.Allowed && slices.ContainsFunc(v.Subjects, func(r oracle.SubjectResult) bool { return r.DecidedBy == oracle.BaselineTier })
}

// isolatedSomehow judges an end as if the baseline were not for pods that a
// NetworkPolicy selects.
func isolatedSomehow(s cluster.State, v oracle.DirectionVerdict) bool {
	return v.Allowed || decidedByBaseline(v) && slices.ContainsFunc(v.Subjects, func(r oracle.SubjectResult) bool { return isSelected(s, r.Pod) })
}

// inNamespaceOfPolicy judges an end as if the baseline were not for namespaces that
// have a NetworkPolicy.
func inNamespaceOfPolicy(s cluster.State, v oracle.DirectionVerdict) bool {
	return v.Allowed || decidedByBaseline(v) && slices.ContainsFunc(v.Subjects, func(r oracle.SubjectResult) bool {
		for _, np := range s.Policies {
			if np.Namespace == r.Pod.Namespace {
				return true
			}
		}
		return false
	})
}

// isSelected reports whether some NetworkPolicy selects a pod.
func isSelected(s cluster.State, id api.PodID) bool {
	for _, p := range s.Pods {
		for _, np := range s.Policies {
			if p.Namespace != id.Namespace || p.Name != id.Name || np.Namespace != id.Namespace {
				continue
			}
			if sel, err := metav1.LabelSelectorAsSelector(&np.Spec.PodSelector); err == nil && sel.Matches(labels.Set(p.Labels)) {
				return true
			}
		}
	}
	return false
}
