package oracle

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
)

// State is a cluster at one moment. The order of the slices is irrelevant; of two objects with one
// name the last wins; nil entries are skipped.
type State struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
	// Nodes are peers of admin policies by the addresses of their status. They also add the
	// addresses of a pod's own node to those in the pod's status.
	Nodes []*corev1.Node
	// The admin policies, which form the tiers around NetworkPolicy.
	AdminPolicies    []*v1alpha1.AdminNetworkPolicy
	BaselinePolicies []*v1alpha1.BaselineAdminNetworkPolicy
	ClusterPolicies  []*v1alpha2.ClusterNetworkPolicy
}

// Add adds an object of a supported kind; it returns false for any other.
func (s *State) Add(object any) bool {
	switch o := object.(type) {
	case *corev1.Namespace:
		s.Namespaces = append(s.Namespaces, o)
	case *corev1.Pod:
		s.Pods = append(s.Pods, o)
	case *corev1.Node:
		s.Nodes = append(s.Nodes, o)
	case *networkingv1.NetworkPolicy:
		s.Policies = append(s.Policies, o)
	case *v1alpha1.AdminNetworkPolicy:
		s.AdminPolicies = append(s.AdminPolicies, o)
	case *v1alpha1.BaselineAdminNetworkPolicy:
		s.BaselinePolicies = append(s.BaselinePolicies, o)
	case *v1alpha2.ClusterNetworkPolicy:
		s.ClusterPolicies = append(s.ClusterPolicies, o)
	default:
		return false
	}
	return true
}

// Option changes how an Oracle decides.
type Option func(*Oracle)

// AllowNodeTraffic sets whether traffic between a pod and its own node is exempt from isolation, in
// both directions. By default it is.
func AllowNodeTraffic(allow bool) Option {
	return func(o *Oracle) { o.allowNode = allow }
}

// Oracle answers queries about one State.
type Oracle struct {
	// namespaces holds the labels of the namespaces whose object is known. A namespace that is
	// missing here is matched by no selector, not even by {}.
	namespaces map[string]labels.Set
	pods       map[api.PodID]*pod
	holders    map[netip.Addr][]*pod // pods to which policies apply, sorted
	policies   map[string][]policy   // sorted by name
	nodes      map[string]*corev1.Node
	tiers      tiers
	nodesAt    map[netip.Addr][]*corev1.Node // only with admin policies, sorted
	allowNode  bool
	audits     bool // some policy is in audit mode
}

// New returns an oracle for the state.
func New(s State, opts ...Option) *Oracle {
	o := (&Oracle{allowNode: true}).With(s)
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// With returns an oracle for the state with these objects added; each replaces the object of its
// kind and name. The two oracles share what stays the same.
func (o *Oracle) With(s State) *Oracle {
	out := *o
	out.namespaces = with(o.namespaces, s.Namespaces, func(ns *corev1.Namespace) (string, labels.Set) {
		return ns.Name, namespaceLabels(ns.Name, ns.Labels)
	})
	out.nodes = with(o.nodes, s.Nodes, func(n *corev1.Node) (string, *corev1.Node) { return n.Name, n })
	out.pods = with(o.pods, s.Pods, func(p *corev1.Pod) (api.PodID, *pod) {
		id := api.PodID{Namespace: p.Namespace, Name: p.Name}
		return id, &pod{id: id, obj: p, addrs: podAddresses(p)}
	})
	if len(s.Pods) > 0 {
		out.holders = holdersOf(out.pods)
	}
	admins := len(s.AdminPolicies) + len(s.BaselinePolicies) + len(s.ClusterPolicies)
	if len(s.Policies) > 0 {
		out.policies = withPolicies(o.policies, s.Policies)
	}
	if admins > 0 {
		out.tiers = o.tiers.with(s)
	}
	if len(s.Policies)+admins > 0 {
		out.audits = out.hasAudits()
	}
	if out.tiers.any() && (o.nodesAt == nil || len(s.Nodes) > 0) {
		out.nodesAt = nodesByAddress(out.nodes)
	}
	return &out
}

// Enforced returns an oracle without the policies in audit mode. Its verdicts are the same, but do
// not say what these policies would deny.
func (o *Oracle) Enforced() *Oracle {
	if !o.audits {
		return o
	}
	out := *o
	out.audits, out.policies = false, make(map[string][]policy, len(o.policies))
	for namespace, list := range o.policies {
		out.policies[namespace] = slices.DeleteFunc(slices.Clone(list), func(p policy) bool { return p.audit })
	}
	audited := func(p *tierPolicy) bool { return p.audit }
	out.tiers.admin = slices.DeleteFunc(slices.Clone(o.tiers.admin), audited)
	out.tiers.baseline = slices.DeleteFunc(slices.Clone(o.tiers.baseline), audited)
	return &out
}

// hasAudits reports whether some policy is in audit mode.
func (o *Oracle) hasAudits() bool {
	audits := func(p policy) bool { return p.audit }
	for _, list := range o.policies {
		if slices.ContainsFunc(list, audits) {
			return true
		}
	}
	return slices.ContainsFunc(slices.Concat(o.tiers.admin, o.tiers.baseline), func(p *tierPolicy) bool { return p.audit })
}

// with returns a copy of m with an entry for every object.
func with[K comparable, V, T any](m map[K]V, objects []*T, entry func(*T) (K, V)) map[K]V {
	if len(objects) == 0 {
		return m
	}
	out := make(map[K]V, len(m)+len(objects))
	maps.Copy(out, m)
	for _, o := range objects {
		if o != nil {
			k, v := entry(o)
			out[k] = v
		}
	}
	return out
}

// Around returns an oracle that knows only the pods of these endpoints and the NetworkPolicies of
// their namespaces. Its verdicts on flows between them are the same.
func (o *Oracle) Around(ends ...Endpoint) *Oracle {
	out := *o
	out.pods, out.policies = map[api.PodID]*pod{}, map[string][]policy{}
	add := func(p *pod) {
		out.pods[p.id] = p
		out.policies[p.id.Namespace] = o.policies[p.id.Namespace]
	}
	for _, e := range ends {
		if p := o.pods[e.Pod]; p != nil {
			add(p)
		}
		for _, p := range o.holders[e.Addr.Unmap()] {
			add(p)
		}
	}
	out.holders = holdersOf(out.pods)
	return &out
}

// namespaceLabels adds the label that the API server sets on every namespace.
func namespaceLabels(name string, set map[string]string) labels.Set {
	out := make(labels.Set, len(set)+1)
	maps.Copy(out, set)
	out[corev1.LabelMetadataName] = name
	return out
}

// holdersOf returns the pods to which policies apply, by address.
func holdersOf(pods map[api.PodID]*pod) map[netip.Addr][]*pod {
	out := make(map[netip.Addr][]*pod, len(pods))
	for _, p := range pods {
		if p.hidden() != "" {
			continue
		}
		for _, a := range p.addrs {
			out[a] = append(out[a], p)
		}
	}
	for _, held := range out {
		slices.SortFunc(held, func(a, b *pod) int { return a.id.Compare(b.id) })
	}
	return out
}

// withPolicies returns the policies of all namespaces with the added ones.
func withPolicies(policies map[string][]policy, added []*networkingv1.NetworkPolicy) map[string][]policy {
	last := make(map[api.PolicyID]*networkingv1.NetworkPolicy, len(added))
	for _, np := range added {
		if np != nil {
			last[policyID(np)] = np
		}
	}
	lists := map[string][]policy{}
	for _, np := range last {
		lists[np.Namespace] = append(lists[np.Namespace], newPolicy(np))
	}
	out := make(map[string][]policy, len(policies)+len(lists))
	maps.Copy(out, policies)
	for namespace, list := range lists {
		slices.SortFunc(list, compareNames)
		out[namespace] = merged(policies[namespace], list)
	}
	return out
}

// merged merges two lists that are sorted by name. Of two policies with one name the second list's
// wins.
func merged(list, added []policy) []policy {
	out := make([]policy, 0, len(list)+len(added))
	for len(list) > 0 && len(added) > 0 {
		c := compareNames(list[0], added[0])
		if c < 0 {
			out, list = append(out, list[0]), list[1:]
			continue
		}
		if c == 0 {
			list = list[1:]
		}
		out, added = append(out, added[0]), added[1:]
	}
	return append(append(out, list...), added...)
}

func policyID(np *networkingv1.NetworkPolicy) api.PolicyID {
	return api.PolicyID{Kind: api.NetworkPolicy, Namespace: np.Namespace, Name: np.Name}
}

// NetworkPolicy returns a policy of the state, or nil.
func (o *Oracle) NetworkPolicy(id api.PolicyID) *networkingv1.NetworkPolicy {
	list := o.policies[id.Namespace]
	i, found := slices.BinarySearchFunc(list, id.Name, func(p policy, name string) int { return strings.Compare(p.obj.Name, name) })
	if !found {
		return nil
	}
	return list[i].obj
}

// AdminPolicy returns a valid admin policy, as the object of its kind, or nil.
func (o *Oracle) AdminPolicy(id api.PolicyID) any {
	for _, p := range slices.Concat(o.tiers.admin, o.tiers.baseline) {
		if p.id == id {
			return p.obj
		}
	}
	return nil
}

// AdminPoliciesOf returns the admin policies that apply to a pod, in the order of evaluation.
func (o *Oracle) AdminPoliciesOf(id api.PodID) []api.PolicyID {
	var out []api.PolicyID
	for _, p := range slices.Concat(o.tiers.admin, o.tiers.baseline) {
		if p.subject.matches(o, o.pods[id]) {
			out = append(out, p.id)
		}
	}
	return out
}

// Pod returns a pod of the state, or nil.
func (o *Oracle) Pod(id api.PodID) *corev1.Pod {
	if p := o.pods[id]; p != nil {
		return p.obj
	}
	return nil
}

// NamespaceLabels returns the labels of a namespace, if its object is known.
func (o *Oracle) NamespaceLabels(name string) (set labels.Set, known bool) {
	set, known = o.namespaces[name]
	return set, known
}
