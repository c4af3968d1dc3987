package suggest

import (
	"encoding/json"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// adminPolicy is an admin policy. Its rules are edited as the fields of a
// manifest, where the kinds are nearly equal, other than in Go.
type adminPolicy struct {
	id  api.PolicyID
	obj any
}

// newAdminPolicy returns a policy that is in force.
func newAdminPolicy(o *oracle.Oracle, id api.PolicyID) adminPolicy {
	return adminPolicy{id: id, obj: o.AdminPolicy(id)}
}

// fields are a part of a manifest.
type fields = map[string]any

// convert makes one type of another by way of their JSON.
func convert(from, into any) bool {
	text, err := json.Marshal(from)
	return err == nil && json.Unmarshal(text, into) == nil
}

// allow is the action that allows, as the kind of the policy calls it.
func (p adminPolicy) allow() oracle.Action {
	if p.id.Kind == api.ClusterNetworkPolicy {
		return oracle.Accept
	}
	return oracle.Allow
}

// breadth is more than that of any NetworkPolicy, and less with every requirement.
func (p adminPolicy) breadth() int {
	n := 100
	for _, sel := range p.subject() {
		if s, err := metav1.LabelSelectorAsSelector(sel); err == nil {
			requirements, _ := s.Requirements()
			n -= 2 * len(requirements)
		}
	}
	return n
}

// subject returns the selectors of the pods that the policy is for.
func (p adminPolicy) subject() []*metav1.LabelSelector {
	var s v1alpha1.AdminNetworkPolicySubject
	switch obj := p.obj.(type) {
	case *v1alpha1.AdminNetworkPolicy:
		s = obj.Spec.Subject
	case *v1alpha1.BaselineAdminNetworkPolicy:
		s = obj.Spec.Subject
	case *v1alpha2.ClusterNetworkPolicy:
		s.Namespaces = obj.Spec.Subject.Namespaces
		if pods := obj.Spec.Subject.Pods; pods != nil {
			return []*metav1.LabelSelector{&pods.NamespaceSelector, &pods.PodSelector}
		}
	}
	if s.Pods != nil {
		return []*metav1.LabelSelector{&s.Pods.NamespaceSelector, &s.Pods.PodSelector}
	}
	return []*metav1.LabelSelector{s.Namespaces}
}

// spec returns the spec as fields.
func (p adminPolicy) spec() fields {
	out := fields{}
	switch obj := p.obj.(type) {
	case *v1alpha1.AdminNetworkPolicy:
		convert(obj.Spec, &out)
	case *v1alpha1.BaselineAdminNetworkPolicy:
		convert(obj.Spec, &out)
	case *v1alpha2.ClusterNetworkPolicy:
		convert(obj.Spec, &out)
	}
	return out
}

// with returns a state that has the policy with another spec.
func (p adminPolicy) with(spec fields) (s oracle.State) {
	switch obj := p.obj.(type) {
	case *v1alpha1.AdminNetworkPolicy:
		out := &v1alpha1.AdminNetworkPolicy{ObjectMeta: obj.ObjectMeta}
		convert(spec, &out.Spec)
		s.AdminPolicies = append(s.AdminPolicies, out)
	case *v1alpha1.BaselineAdminNetworkPolicy:
		out := &v1alpha1.BaselineAdminNetworkPolicy{ObjectMeta: obj.ObjectMeta}
		convert(spec, &out.Spec)
		s.BaselinePolicies = append(s.BaselinePolicies, out)
	case *v1alpha2.ClusterNetworkPolicy:
		out := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: obj.ObjectMeta}
		convert(spec, &out.Spec)
		s.ClusterPolicies = append(s.ClusterPolicies, out)
	}
	return s
}

// lists names the lists of peers and ports of a rule.
func (p adminPolicy) lists(d api.Direction) (peers, ports string) {
	peers, ports = "to", "ports"
	if d == api.Ingress {
		peers = "from"
	}
	if p.id.Kind == api.ClusterNetworkPolicy {
		ports = "protocols"
	}
	return peers, ports
}

// rule returns the peers and the ports of a rule, none where it names none.
func (p adminPolicy) rule(d api.Direction, index int) (peers, ports []any) {
	rule := listIn(p.spec(), d.String())[index].(fields)
	peersOf, portsOf := p.lists(d)
	return listIn(rule, peersOf), listIn(rule, portsOf)
}

// edited returns a state that has the policy with the change of one of its rules.
func (p adminPolicy) edited(c Change, index int) oracle.State {
	spec := p.spec()
	rules := listIn(spec, c.Direction.String())
	rule := rules[index].(fields)
	peers, ports := p.lists(c.Direction)
	switch c.Kind {
	case RemoveRules:
		rules = slices.Delete(rules, index, index+1)
	case AddRuleBefore:
		added := fields{"action": c.Action, peers: []any{peerFields(c.Peer)}}
		if c.Port != nil {
			added[ports] = []any{p.portFields(c.Port)}
		}
		rules = slices.Insert(rules, index, any(added))
	case AddPeer:
		rule[peers] = append(listIn(rule, peers), peerFields(c.Peer))
	case AddPort:
		rule[ports] = append(listIn(rule, ports), p.portFields(c.Port))
	case RemovePeers:
		rule[peers] = without(listIn(rule, peers), c.Terms)
	case RemovePorts:
		rule[ports] = without(listIn(rule, ports), c.Terms)
	default:
	}
	spec[c.Direction.String()] = rules
	return p.with(spec)
}

func listIn(f fields, name string) []any {
	list, _ := f[name].([]any)
	return list
}

// selectorsOf returns the selectors of a peer that is pods; ok is false for any other.
func selectorsOf(peer any) (namespaces, pods *metav1.LabelSelector, ok bool) {
	var p struct {
		Namespaces *metav1.LabelSelector
		Pods       *v1alpha1.NamespacedPod
	}
	if f, _ := peer.(fields); len(f) != 1 || !convert(f, &p) {
		return nil, nil, false
	}
	switch {
	case p.Pods != nil:
		return &p.Pods.NamespaceSelector, &p.Pods.PodSelector, true
	case p.Namespaces != nil:
		return p.Namespaces, &metav1.LabelSelector{}, true
	}
	return nil, nil, false
}

// peerFields writes a peer of a change.
func peerFields(p *networkingv1.NetworkPolicyPeer) fields {
	if p.IPBlock != nil {
		return fields{"networks": []string{p.IPBlock.CIDR}}
	}
	return fields{"pods": v1alpha1.NamespacedPod{NamespaceSelector: *p.NamespaceSelector, PodSelector: *p.PodSelector}}
}

// portFields writes a port of a change. A number of 0 would be no number in v1alpha2.
func (p adminPolicy) portFields(port *networkingv1.NetworkPolicyPort) fields {
	n := port.Port.IntVal
	switch {
	case p.id.Kind != api.ClusterNetworkPolicy:
		return fields{"portNumber": fields{"protocol": *port.Protocol, "port": n}}
	case n == 0:
		return fields{strings.ToLower(string(*port.Protocol)): fields{"destinationPort": fields{"range": fields{"start": 0, "end": 0}}}}
	}
	return fields{strings.ToLower(string(*port.Protocol)): fields{"destinationPort": fields{"number": n}}}
}
