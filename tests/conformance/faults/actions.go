package faults

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
)

var actionFaults = []Fault{
	misread("Pass is ignored", "61", tierRules(func(m manifest, _ string, rule tree) []tree {
		if rule["action"] == "Pass" && !m.baseline {
			return nil
		}
		return []tree{rule}
	})),
	misread("Pass allows", "61", inAdmin("Pass", manifest.allow)),
	{Name: "Pass ends a policy, not its tier", Rows: "61", begin: func() judgement { return passEndsAPolicy }},
	{Name: "Pass is for the baseline, over NetworkPolicy", Rows: "61", begin: func() judgement { return passSkipsNetworkPolicy }},
	misread("a Pass of the baseline denies", "62", actions(func(m manifest, action string) string {
		if m.baseline && !m.alpha1 && action == "Pass" {
			return "Deny"
		}
		return action
	})),
	misread("what is allowed is judged by NetworkPolicy all the same", "59", actions(func(m manifest, action string) string {
		if !m.baseline && action == m.allow() {
			return "Pass"
		}
		return action
	})),
	misread("a NetworkPolicy can allow what is denied", "60", inAdmin("Deny", func(manifest) string { return "Pass" })),
	wrongAnswer("what the egress of the source allows is not judged by ingress", "59", func(o *oracle.Oracle, _ cluster.State, f api.Flow) bool {
		v := o.Verdict(f)
		byAdmin := func(r oracle.SubjectResult) bool { return r.DecidedBy == oracle.AdminTier }
		return v.Allowed || v.Egress.Allowed && slices.ContainsFunc(v.Egress.Subjects, byAdmin)
	}),
	wrongAnswer("a pod's own node is exempt from the rules of administrators", "39", func(o *oracle.Oracle, s cluster.State, f api.Flow) bool {
		return o.Allowed(f) || isOwnNode(s, o, f.Src, f.Dst)
	}),
	misread("a rule with an unknown action is left out", "77", tierRules(func(m manifest, _ string, rule tree) []tree {
		known := []any{m.allow(), "Deny", "Pass"}
		if m.alpha1 && m.baseline {
			known = known[:2]
		}
		if !slices.Contains(known, rule["action"]) {
			return nil
		}
		return []tree{rule}
	})),
}

// inAdmin puts another action in the place of one, in the admin tier.
func inAdmin(action string, now func(manifest) string) edit {
	return actions(func(m manifest, a string) string {
		if !m.baseline && a == action {
			return now(m)
		}
		return a
	})
}

// isOwnNode reports whether a flow that leaves a pod is to the node that the pod is on.
func isOwnNode(s cluster.State, o *oracle.Oracle, src, dst netip.Addr) bool {
	for _, id := range o.PodsAt(src) {
		for _, p := range s.Pods {
			if p.Namespace != id.Namespace || p.Name != id.Name {
				continue
			}
			i := slices.IndexFunc(s.Nodes, func(n *corev1.Node) bool { return n.Name == p.Spec.NodeName })
			if i >= 0 && isNode(cluster.State{Nodes: s.Nodes[i : i+1]}, dst) {
				return true
			}
		}
	}
	return false
}

// passedBy returns the rules of the admin tier by which an end left it.
func passedBy(s cluster.State, v oracle.DirectionVerdict) []api.Origin {
	var out []api.Origin
	for _, r := range v.Subjects {
		for _, origin := range r.PassedBy {
			baseline := func(p *v1alpha2.ClusterNetworkPolicy) bool { return p.Name == origin.Policy.Name && inBaseline(p) }
			if origin.Policy.Kind != api.ClusterNetworkPolicy || !slices.ContainsFunc(s.ClusterPolicies, baseline) {
				out = append(out, origin)
			}
		}
	}
	return out
}

// passEndsAPolicy asks again without the policies that passed on, for as long as there
// are some.
func passEndsAPolicy(s cluster.State) decision {
	o := oracle.New(s)
	without := map[api.Origin]decision{}
	return func(f api.Flow) bool {
		v := o.Verdict(f)
		passed := append(passedBy(s, v.Egress), passedBy(s, v.Ingress)...)
		if len(passed) == 0 {
			return v.Allowed
		}
		left := passed[0]
		left.Rule = 0
		if without[left] == nil {
			without[left] = passEndsAPolicy(edited(s, []edit{withoutDirection(left)}))
		}
		return without[left](f)
	}
}

// withoutDirection drops the rules that a policy has for a direction.
func withoutDirection(of api.Origin) edit {
	return func(s *cluster.State) {
		for _, p := range s.AdminPolicies {
			if of.Policy.Kind == api.AdminNetworkPolicy && p.Name == of.Policy.Name {
				dropRules(of.Direction, &p.Spec.Ingress, &p.Spec.Egress)
			}
		}
		for _, p := range s.ClusterPolicies {
			if of.Policy.Kind == api.ClusterNetworkPolicy && p.Name == of.Policy.Name {
				dropRules(of.Direction, &p.Spec.Ingress, &p.Spec.Egress)
			}
		}
	}
}

func dropRules[I, E any](d api.Direction, ingress *[]I, egress *[]E) {
	if d == api.Ingress {
		*ingress = nil
	} else {
		*egress = nil
	}
}

// passSkipsNetworkPolicy judges the ends that left the admin tier as if there were no
// NetworkPolicies.
func passSkipsNetworkPolicy(s cluster.State) decision {
	right := oracle.New(s)
	s.Policies = nil
	without := oracle.New(s)
	return func(f api.Flow) bool {
		v, w := right.Verdict(f), without.Verdict(f)
		if len(passedBy(s, v.Egress)) > 0 {
			v.Egress = w.Egress
		}
		if len(passedBy(s, v.Ingress)) > 0 {
			v.Ingress = w.Ingress
		}
		return v.Egress.Allowed && v.Ingress.Allowed
	}
}
