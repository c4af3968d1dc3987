package oracle

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// State is a cluster at one moment. The order of the slices means nothing; of
// two objects with one name the last counts; nil entries are skipped.
type State struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
	// Nodes is optional: it adds the addresses of a pod's own node to those that
	// the pod's status names.
	Nodes []*corev1.Node
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
	policies   map[string][]*networkingv1.NetworkPolicy
	nodes      map[string]*corev1.Node
	allowNode  bool
}

// New returns an oracle for the state.
func New(s State, opts ...Option) *Oracle {
	o := &Oracle{
		namespaces: make(map[string]labels.Set),
		pods:       make(map[api.PodID]*pod),
		policies:   make(map[string][]*networkingv1.NetworkPolicy),
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
		o.policies[np.Namespace] = append(o.policies[np.Namespace], np)
	}
	for _, list := range o.policies {
		slices.SortFunc(list, func(a, b *networkingv1.NetworkPolicy) int { return strings.Compare(a.Name, b.Name) })
	}
}

func policyID(np *networkingv1.NetworkPolicy) api.PolicyID {
	return api.PolicyID{Kind: api.NetworkPolicy, Namespace: np.Namespace, Name: np.Name}
}

// policy returns a policy of the state, which must have it.
func (o *Oracle) policy(id api.PolicyID) *networkingv1.NetworkPolicy {
	list := o.policies[id.Namespace]
	i := slices.IndexFunc(list, func(np *networkingv1.NetworkPolicy) bool { return np.Name == id.Name })
	return list[i]
}

// withPodLabels returns an oracle for the same state, but for the labels of one
// pod. It shares everything else.
func (o *Oracle) withPodLabels(id api.PodID, set map[string]string) *Oracle {
	out := *o
	out.pods = maps.Clone(o.pods)
	p := *o.pods[id]
	obj := *p.obj
	obj.Labels = set
	p.obj = &obj
	out.pods[id] = &p
	out.indexHolders()
	return &out
}

// withNamespaceLabels is withPodLabels for a namespace.
func (o *Oracle) withNamespaceLabels(name string, set map[string]string) *Oracle {
	out := *o
	out.namespaces = maps.Clone(o.namespaces)
	out.namespaces[name] = namespaceLabels(name, set)
	return &out
}
