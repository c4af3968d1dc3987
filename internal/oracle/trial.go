package oracle

import (
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// edits lie over a state, which stays as it is. Of a namespace with an edited
// policy, policies holds the whole list.
type edits struct {
	pods       map[api.PodID]*pod
	namespaces map[string]labels.Set
	policies   map[string][]policy
}

// again asks the question of a verdict.
func (o *Oracle) again(v Verdict) Verdict {
	return o.decide(v.Src, v.Dst, api.Flow{Protocol: v.Flow.Protocol, DstPort: v.Flow.DstPort}, false)
}

// keepsIsolation says whether every policy that isolated an end isolates it still.
func keepsIsolation(before, after Verdict) bool {
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		left := before.Direction(d).Policies
		for _, pe := range after.Direction(d).Policies { // both are sorted in one way
			if len(left) > 0 && left[0].Policy == pe.Policy && left[0].Subject == pe.Subject {
				left = left[1:]
			}
		}
		if len(left) > 0 {
			return false
		}
	}
	return true
}

// after returns an oracle for the state after a change. It shares everything that
// the change leaves as it is.
func (o *Oracle) after(c Change) *Oracle {
	switch c.Kind {
	case Together:
		for _, part := range c.Parts {
			o = o.after(part)
		}
		return o
	case LabelPod:
		return o.withPodLabels(c.Pod, relabelled(o.pod(c.Pod).obj.Labels, c))
	case LabelNamespace:
		set, _ := o.namespaceLabels(c.Namespace)
		return o.withNamespaceLabels(c.Namespace, relabelled(set, c))
	case Isolate, AddPolicy:
		return o.withPolicy(o.isolation(c))
	case AddPort, AddPeer, AddRule, AddRuleBefore, RemoveExcept, OpenPorts, RemovePeers, RemovePorts, AddExcept, RemoveRules:
	}
	for _, g := range slices.Backward(c.Origins) { // so that the indexes of rules stay right
		if g.Policy.Kind != api.NetworkPolicy {
			o = o.withTier(c.editTier(o.tiers.policy(g.Policy), g.Rule))
			continue
		}
		np := o.policy(g.Policy).DeepCopy()
		c.edit(np, g.Rule)
		o = o.withPolicy(np)
	}
	return o
}

func relabelled(set labels.Set, c Change) labels.Set {
	out := make(labels.Set, len(set)+len(c.Set))
	maps.Copy(out, set)
	maps.Copy(out, c.Set)
	for _, k := range c.Unset {
		delete(out, k)
	}
	return out
}

func (o *Oracle) withPodLabels(id api.PodID, set labels.Set) *Oracle {
	p := *o.pod(id)
	obj := *p.obj
	obj.Labels = set
	p.obj = &obj
	out := *o
	out.edited.pods = with(o.edited.pods, id, &p)
	return &out
}

func (o *Oracle) withNamespaceLabels(name string, set labels.Set) *Oracle {
	out := *o
	out.edited.namespaces = with(o.edited.namespaces, name, namespaceLabels(name, set))
	return &out
}

// withPolicy replaces a policy, or adds one.
func (o *Oracle) withPolicy(np *networkingv1.NetworkPolicy) *Oracle {
	list := slices.Clone(o.policiesIn(np.Namespace))
	p := newPolicy(np)
	i, found := slices.BinarySearchFunc(list, p, compareNames)
	if found {
		list[i] = p
	} else {
		list = slices.Insert(list, i, p)
	}
	out := *o
	out.edited.policies = with(o.edited.policies, np.Namespace, list)
	return &out
}

// with returns a copy of a map with one more entry.
func with[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	out := make(map[K]V, len(m)+1)
	maps.Copy(out, m)
	out[k] = v
	return out
}

// isolation returns the policy that an Isolate or an AddPolicy adds, under a name that
// is free. It selects the pod by all its labels, and with it those that have the same.
func (o *Oracle) isolation(c Change) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{}
	np.Namespace, np.Name = c.Pod.Namespace, "isolate"
	for slices.ContainsFunc(o.policiesIn(np.Namespace), func(p policy) bool { return p.obj.Name == np.Name }) {
		np.Name += "-pod"
	}
	np.Spec.PodSelector.MatchLabels = o.pod(c.Pod).obj.Labels
	np.Spec.PolicyTypes = []networkingv1.PolicyType{typeOf(c.Direction)}
	if c.Kind == AddPolicy {
		setRules(np, c.Direction, []rule{c.rule()})
	}
	return np
}

func typeOf(d api.Direction) networkingv1.PolicyType {
	if d == api.Ingress {
		return networkingv1.PolicyTypeIngress
	}
	return networkingv1.PolicyTypeEgress
}

// edit makes the change of one rule of a policy. The types stay what they are: an
// API server has written the defaults down before somebody edits.
func (c Change) edit(np *networkingv1.NetworkPolicy, index int) {
	ingress, egress := isolates(np)
	np.Spec.PolicyTypes = nil
	for _, t := range typeNames(ingress, egress) {
		np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyType(t))
	}
	rules := rulesOf(np, c.Direction)
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
func (c Change) rule() rule {
	r := rule{peers: []networkingv1.NetworkPolicyPeer{*c.Peer}}
	if c.Port != nil {
		r.ports = []networkingv1.NetworkPolicyPort{*c.Port}
	}
	return r
}

// editTerms changes the peers or the ports of a rule.
func (c Change) editTerms(r *rule) {
	switch c.Kind {
	case AddPeer:
		r.peers = append(r.peers, *c.Peer)
	case AddPort:
		r.ports = append(r.ports, *c.Port)
	case OpenPorts:
		r.ports = nil
	case RemovePeers:
		r.peers = without(r.peers, c.Terms)
	case RemovePorts:
		r.ports = without(r.ports, c.Terms)
	case AddExcept, RemoveExcept:
		for _, i := range c.Terms {
			b := r.peers[i].IPBlock
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

func setRules(np *networkingv1.NetworkPolicy, d api.Direction, rules []rule) {
	if d == api.Egress {
		np.Spec.Egress = nil
		for _, r := range rules {
			np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: r.peers, Ports: r.ports})
		}
		return
	}
	np.Spec.Ingress = nil
	for _, r := range rules {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: r.peers, Ports: r.ports})
	}
}
