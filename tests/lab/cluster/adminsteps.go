package cluster

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// AdminPolicies lists the administrators' policies of a state, of every kind.
func AdminPolicies(s State) []metav1.Object {
	var out []metav1.Object
	for _, p := range s.AdminPolicies {
		out = append(out, p)
	}
	for _, p := range s.BaselinePolicies {
		out = append(out, p)
	}
	for _, p := range s.ClusterPolicies {
		out = append(out, p)
	}
	return out
}

// putAdmin puts a policy in the place of that of its kind and name, or adds it.
func putAdmin(s *State, o metav1.Object) {
	switch o := o.(type) {
	case *v1alpha1.AdminNetworkPolicy:
		s.AdminPolicies = replaced(s.AdminPolicies, o)
	case *v1alpha1.BaselineAdminNetworkPolicy:
		s.BaselinePolicies = replaced(s.BaselinePolicies, o)
	case *v1alpha2.ClusterNetworkPolicy:
		s.ClusterPolicies = replaced(s.ClusterPolicies, o)
	}
}

func replaced[T object](list []T, o T) []T {
	i := slices.IndexFunc(list, func(x T) bool { return x.GetName() == o.GetName() })
	if i < 0 {
		return append(list, o)
	}
	list[i] = o
	return list
}

// dropAdmin takes a policy away.
func dropAdmin(s *State, o metav1.Object) {
	switch o := o.(type) {
	case *v1alpha1.AdminNetworkPolicy:
		s.AdminPolicies = slices.DeleteFunc(s.AdminPolicies, func(x *v1alpha1.AdminNetworkPolicy) bool { return x == o })
	case *v1alpha1.BaselineAdminNetworkPolicy:
		s.BaselinePolicies = slices.DeleteFunc(s.BaselinePolicies, func(x *v1alpha1.BaselineAdminNetworkPolicy) bool { return x == o })
	case *v1alpha2.ClusterNetworkPolicy:
		s.ClusterPolicies = slices.DeleteFunc(s.ClusterPolicies, func(x *v1alpha2.ClusterNetworkPolicy) bool { return x == o })
	}
}

// add adds a policy of some kind, or writes one anew.
func (d adminDrawer) add(s *State) string {
	if d.cfg.Admin == 0 {
		return ""
	}
	kind := pick(d, adminKinds, "kind of admin policy")
	name := fmt.Sprintf("admin-%d", d.Below(d.cfg.Admin+1, "name of admin policy"))
	if kind == baselineKind {
		name = "default"
	}
	putAdmin(s, d.policy(kind, name))
	return "put " + kind + " " + name
}

// any draws one of the policies there are, nil for none.
func (d adminDrawer) any(s *State) metav1.Object {
	list := AdminPolicies(*s)
	if len(list) == 0 {
		return nil
	}
	return pick(d, list, "admin policy")
}

func (d adminDrawer) delete(s *State) string {
	o := d.any(s)
	if o == nil {
		return ""
	}
	dropAdmin(s, o)
	return "delete " + kindOf(o) + " " + o.GetName()
}

// tweak changes one thing that an administrator would: the position of a policy, its subject, or
// one rule.
func (d adminDrawer) tweak(s *State) string {
	o := d.any(s)
	if o == nil {
		return d.add(s)
	}
	kind, sp := kindOf(o), specOf(o)
	var what string
	switch d.Below(6, "part of admin policy") {
	case 0:
		if kind == baselineKind {
			return ""
		}
		sp["priority"], what = d.priority(), "priority"
	case 1:
		sp["subject"], what = d.subject(), "subject"
	case 2:
		if kind != clusterKind {
			return ""
		}
		sp["tier"], what = d.tier(), "tier"
	default:
		what = d.tweakRules(kind, sp)
	}
	next := manifestOf(kind, o.GetName(), sp)
	next.SetAnnotations(o.GetAnnotations())
	if d.cfg.Audit && d.one(4, "switch mode") {
		next.SetAnnotations(d.mode())
		what += " and mode"
	}
	putAdmin(s, next)
	return fmt.Sprintf("tweak %s %s: %s", kind, o.GetName(), what)
}

// tweakRules adds, drops, swaps or changes a rule.
func (d adminDrawer) tweakRules(kind string, sp spec) string {
	direction, list := "ingress", "from"
	if d.one(2, "egress") {
		direction, list = "egress", "to"
	}
	rules, _ := sp[direction].([]any)
	rules = slices.Clone(rules)
	i := d.Below(len(rules)+1, "rule")
	what := ""
	switch how := d.Below(4, "tweak of rule"); {
	case i == len(rules):
		rules, what = append(rules, d.rule(kind, list, i)), "adds a rule"
	case how == 0:
		rules[i], what = d.rule(kind, list, i), "writes rule anew"
	case how == 1:
		rules, what = slices.Delete(rules, i, i+1), "drops rule"
	case how == 2:
		j := d.Below(len(rules), "other rule")
		rules[i], rules[j] = rules[j], rules[i]
		what = fmt.Sprintf("swaps with rule %d the rule", j)
	default:
		r, _ := rules[i].(map[string]any)
		r["action"], what = d.action(kind), "changes the action of rule"
	}
	sp[direction] = rules
	return fmt.Sprintf("%s %s %d", direction, what, i)
}
