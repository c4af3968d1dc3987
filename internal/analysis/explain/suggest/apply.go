package suggest

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// after returns an oracle for the state after a change.
func after(o *oracle.Oracle, c Change) *oracle.Oracle {
	switch c.Kind {
	case Together:
		for _, part := range c.Parts {
			o = after(o, part)
		}
		return o
	case LabelPod:
		pod := *o.Pod(c.Pod)
		pod.Labels = c.relabelled(pod.Labels)
		return o.With(oracle.State{Pods: []*corev1.Pod{&pod}})
	case LabelNamespace:
		set, _ := o.NamespaceLabels(c.Namespace)
		ns := &corev1.Namespace{}
		ns.Name, ns.Labels = c.Namespace, c.relabelled(set)
		return o.With(oracle.State{Namespaces: []*corev1.Namespace{ns}})
	case Isolate, AddPolicy:
		return o.With(oracle.State{Policies: []*networkingv1.NetworkPolicy{isolation(o, c)}})
	case AddPort, AddPeer, AddRule, AddRuleBefore, RemoveExcept, OpenPorts, RemovePeers, RemovePorts, AddExcept, RemoveRules:
	}
	for _, g := range slices.Backward(c.Origins) { // so that the indexes of rules stay right
		if g.Policy.Kind != api.NetworkPolicy {
			o = o.With(newAdminPolicy(o, g.Policy).edited(c, g.Rule))
			continue
		}
		np := o.NetworkPolicy(g.Policy).DeepCopy()
		c.edit(np, g.Rule)
		o = o.With(oracle.State{Policies: []*networkingv1.NetworkPolicy{np}})
	}
	return o
}

// relabelled returns labels with what the change sets, without what it removes.
func (c Change) relabelled(set labels.Set) labels.Set {
	out := make(labels.Set, len(set)+len(c.Set))
	maps.Copy(out, set)
	maps.Copy(out, c.Set)
	for _, k := range c.Unset {
		delete(out, k)
	}
	return out
}

// isolation returns the policy that an Isolate or an AddPolicy adds, under a name that
// is free. It selects the pod by all its labels, and with it those that have the same.
func isolation(o *oracle.Oracle, c Change) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{}
	np.Namespace, np.Name = c.Pod.Namespace, "isolate"
	for o.NetworkPolicy(api.PolicyID{Kind: api.NetworkPolicy, Namespace: np.Namespace, Name: np.Name}) != nil {
		np.Name += "-pod"
	}
	np.Spec.PodSelector.MatchLabels = o.Pod(c.Pod).Labels
	np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if c.Direction == api.Egress {
		np.Spec.PolicyTypes[0] = networkingv1.PolicyTypeEgress
	}
	if c.Kind == AddPolicy {
		setRules(np, c.Direction, []oracle.Rule{c.rule()})
	}
	return np
}

// typesOf returns the directions that a policy isolates, with the defaults of the API.
func typesOf(np *networkingv1.NetworkPolicy) []networkingv1.PolicyType {
	var out []networkingv1.PolicyType
	ingress, egress := oracle.Isolates(np)
	if ingress {
		out = append(out, networkingv1.PolicyTypeIngress)
	}
	if egress {
		out = append(out, networkingv1.PolicyTypeEgress)
	}
	return out
}

// edit makes the change of one rule of a policy. The types stay what they are: an
// API server has written the defaults down before an edit.
func (c Change) edit(np *networkingv1.NetworkPolicy, index int) {
	np.Spec.PolicyTypes = typesOf(np)
	rules := oracle.RulesOf(np, c.Direction)
	switch c.Kind {
	case AddRule:
		rules = append(rules, c.rule())
	case RemoveRules:
		rules = slices.Delete(rules, index, index+1)
	default:
		c.editTerms(&rules[index])
	}
	setRules(np, c.Direction, rules)
}

// rule is the rule of the peer and the port of a change.
func (c Change) rule() oracle.Rule {
	r := oracle.Rule{Peers: []networkingv1.NetworkPolicyPeer{*c.Peer}}
	if c.Port != nil {
		r.Ports = []networkingv1.NetworkPolicyPort{*c.Port}
	}
	return r
}

// editTerms changes the peers or the ports of a rule.
func (c Change) editTerms(r *oracle.Rule) {
	switch c.Kind {
	case AddPeer:
		r.Peers = append(r.Peers, *c.Peer)
	case AddPort:
		r.Ports = append(r.Ports, *c.Port)
	case OpenPorts:
		r.Ports = nil
	case RemovePeers:
		r.Peers = without(r.Peers, c.Terms)
	case RemovePorts:
		r.Ports = without(r.Ports, c.Terms)
	case AddExcept, RemoveExcept:
		for _, i := range c.Terms {
			b := r.Peers[i].IPBlock
			if c.Kind == AddExcept {
				b.Except = append(b.Except, c.Except...)
				continue
			}
			b.Except = slices.DeleteFunc(b.Except, func(e string) bool { return slices.Contains(c.Except, e) })
		}
	default:
	}
}

func without[T any](list []T, indexes []int) []T {
	var out []T
	for i, v := range list {
		if !slices.Contains(indexes, i) {
			out = append(out, v)
		}
	}
	return out
}

func setRules(np *networkingv1.NetworkPolicy, d api.Direction, rules []oracle.Rule) {
	if d == api.Egress {
		np.Spec.Egress = nil
		for _, r := range rules {
			np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: r.Peers, Ports: r.Ports})
		}
		return
	}
	np.Spec.Ingress = nil
	for _, r := range rules {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: r.Peers, Ports: r.Ports})
	}
}
