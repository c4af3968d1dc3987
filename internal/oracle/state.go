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

// State is a cluster at one moment. The order of the slices means nothing; of
// two objects with one name the last counts; nil entries are skipped.
type State struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
	// Nodes are peers of administrators' policies by the addresses of their status.
	// They also add the addresses of a pod's own node to those that the pod's status
	// names.
	Nodes []*corev1.Node
	// The policies of administrators, which make the tiers around NetworkPolicy.
	AdminPolicies    []*v1alpha1.AdminNetworkPolicy
	BaselinePolicies []*v1alpha1.BaselineAdminNetworkPolicy
	ClusterPolicies  []*v1alpha2.ClusterNetworkPolicy
}

// Add adds an object of a kind that the state has; false for any other.
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

// AllowNodeTraffic says whether traffic between a pod and its own node is
// exempt from isolation, in both directions. It is unless told otherwise.
func AllowNodeTraffic(allow bool) Option {
	return func(o *Oracle) { o.allowNode = allow }
}

// Oracle answers questions about one State.
type Oracle struct {
	// namespaces holds the labels of the namespaces whose object is known. A
	// namespace that is missing here is matched by no selector, not even by {}.
	namespaces map[string]labels.Set
	pods       map[api.PodID]*pod
	holders    map[netip.Addr][]*pod // pods that policies see, sorted
	policies   map[string][]policy   // sorted by name
	nodes      map[string]*corev1.Node
	tiers      tiers
	nodesAt    map[netip.Addr][]*corev1.Node // with policies of administrators only, sorted
	allowNode  bool
	edited     edits // over the state; none, unless a change is tried
}

// New returns an oracle for the state.
func New(s State, opts ...Option) *Oracle {
	o := &Oracle{
		namespaces: make(map[string]labels.Set),
		pods:       make(map[api.PodID]*pod),
		policies:   make(map[string][]policy),
		nodes:      make(map[string]*corev1.Node),
		allowNode:  true,
	}
	for _, ns := range s.Namespaces {
		if ns != nil {
			o.namespaces[ns.Name] = namespaceLabels(ns.Name, ns.Labels)
		}
	}
	for _, n := range s.Nodes {
		if n != nil {
			o.nodes[n.Name] = n
		}
	}
	for _, p := range s.Pods {
		if p != nil {
			id := api.PodID{Namespace: p.Namespace, Name: p.Name}
			o.pods[id] = &pod{id: id, obj: p, addrs: podAddresses(p)}
		}
	}
	o.indexHolders()
	o.indexPolicies(s.Policies)
	o.indexTiers(s)
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// namespaceLabels adds the label that the API server keeps on every namespace.
func namespaceLabels(name string, set map[string]string) labels.Set {
	out := make(labels.Set, len(set)+1)
	maps.Copy(out, set)
	out[corev1.LabelMetadataName] = name
	return out
}

func (o *Oracle) indexHolders() {
	o.holders = make(map[netip.Addr][]*pod)
	for _, p := range o.pods {
		if p.hidden() != "" {
			continue
		}
		for _, a := range p.addrs {
			o.holders[a] = append(o.holders[a], p)
		}
	}
	for _, held := range o.holders {
		slices.SortFunc(held, func(a, b *pod) int { return a.id.Compare(b.id) })
	}
}

func (o *Oracle) indexPolicies(policies []*networkingv1.NetworkPolicy) {
	last := make(map[api.PolicyID]*networkingv1.NetworkPolicy, len(policies))
	for _, np := range policies {
		if np != nil {
			last[policyID(np)] = np
		}
	}
	for _, np := range last {
		o.policies[np.Namespace] = append(o.policies[np.Namespace], newPolicy(np))
	}
	for _, list := range o.policies {
		slices.SortFunc(list, compareNames)
	}
}

func policyID(np *networkingv1.NetworkPolicy) api.PolicyID {
	return api.PolicyID{Kind: api.NetworkPolicy, Namespace: np.Namespace, Name: np.Name}
}

// policiesIn returns the policies of a namespace, sorted by name.
func (o *Oracle) policiesIn(namespace string) []policy {
	if list, ok := o.edited.policies[namespace]; ok {
		return list
	}
	return o.policies[namespace]
}

// policy returns a policy of the state, which must have it.
func (o *Oracle) policy(id api.PolicyID) *networkingv1.NetworkPolicy {
	list := o.policiesIn(id.Namespace)
	i, _ := slices.BinarySearchFunc(list, id.Name, func(p policy, name string) int { return strings.Compare(p.obj.Name, name) })
	return list[i].obj
}

// pod returns a pod of the state, or nil.
func (o *Oracle) pod(id api.PodID) *pod {
	if p := o.edited.pods[id]; p != nil {
		return p
	}
	return o.pods[id]
}

// heldBy returns the pods that have the address and that policies see, sorted.
func (o *Oracle) heldBy(addr netip.Addr) []*pod {
	held := o.holders[addr]
	if len(o.edited.pods) == 0 || len(held) == 0 {
		return held
	}
	out := make([]*pod, len(held))
	for i, p := range held {
		out[i] = o.pod(p.id)
	}
	return out
}

// namespaceLabels returns the labels of a namespace, if its object is known.
func (o *Oracle) namespaceLabels(name string) (labels.Set, bool) {
	if set, ok := o.edited.namespaces[name]; ok {
		return set, true
	}
	set, ok := o.namespaces[name]
	return set, ok
}
