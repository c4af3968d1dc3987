// Package kinds lists the kinds of Kubernetes objects that policy needs, and their common
// properties: versions, Go types, IDs and names.
package kinds

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api/model"
)

// Kind describes how the objects of one kind are read.
type Kind struct {
	Kind    model.Kind
	Version string // the apiVersion, see Reads
	// Lenient lists the top-level fields below which unknown fields are ignored: newer clusters
	// have more of them.
	Lenient []string
	Type    reflect.Type // of the Go type of its objects, a pointer
}

// New returns an empty object of the kind.
func (k Kind) New() any { return reflect.New(k.Type.Elem()).Interface() }

// Reads reports whether objects of an apiVersion are read: that of the kind, or an earlier one with
// the same fields.
func (k Kind) Reads(version string) bool {
	return version == k.Version || k.Version == policyBeta1 && version == policyAlpha2
}

// The supported apiVersions.
const (
	coreV1       = "v1"
	NetworkingV1 = "networking.k8s.io/v1"
	policyAlpha1 = "policy.networking.k8s.io/v1alpha1"
	policyAlpha2 = "policy.networking.k8s.io/v1alpha2"
	policyBeta1  = "policy.networking.k8s.io/v1beta1"
	DiscoveryV1  = "discovery.k8s.io/v1"
)

var (
	// Every Kubernetes version adds fields to pods, namespaces and nodes.
	growing = []string{"spec", "status"}
	// Written is for policies: no unknown field of the spec is ignored, because it would narrow or
	// widen the policy. The status is not read: clusters of 2022 and 2023 wrote that of
	// NetworkPolicies, and implementations write that of cluster-scoped policies.
	Written = []string{"status"}
	// Unknown fields of an endpoint do not affect its addresses.
	endpointParts = []string{"endpoints", "ports", "subsets"}
)

// all lists the supported kinds. A new kind needs a line here, a model message, and a function in
// package convert.
var all = []Kind{
	{model.KindNode, coreV1, growing, reflect.TypeFor[*corev1.Node]()},
	{model.KindNamespace, coreV1, growing, reflect.TypeFor[*corev1.Namespace]()},
	{model.KindPod, coreV1, growing, reflect.TypeFor[*corev1.Pod]()},
	{model.KindNetworkPolicy, NetworkingV1, Written, reflect.TypeFor[*networkingv1.NetworkPolicy]()},
	{model.KindAdminNetworkPolicy, policyAlpha1, Written, reflect.TypeFor[*v1alpha1.AdminNetworkPolicy]()},
	{model.KindBaselineAdminNetworkPolicy, policyAlpha1, Written, reflect.TypeFor[*v1alpha1.BaselineAdminNetworkPolicy]()},
	{model.KindClusterNetworkPolicy, policyBeta1, Written, reflect.TypeFor[*v1alpha2.ClusterNetworkPolicy]()},
	{model.KindService, coreV1, growing, reflect.TypeFor[*corev1.Service]()},
	{model.KindEndpointSlice, DiscoveryV1, endpointParts, reflect.TypeFor[*discoveryv1.EndpointSlice]()},
}

// Endpoints is the predecessor of EndpointSlice. An API server creates slices from objects of this
// form; an object in a manifest becomes one slice with its name.
const Endpoints = "Endpoints"

// ByName maps the names of kinds in manifests to the kinds.
var ByName = func() map[string]Kind {
	endpoints := Kind{model.KindEndpointSlice, coreV1, endpointParts, reflect.TypeFor[*corev1.Endpoints]()} //nolint:staticcheck // deprecated, but still written
	out := map[string]Kind{Endpoints: endpoints}
	for _, k := range all {
		out[k.Kind.String()] = k
	}
	return out
}()

// byType maps Go types of objects to the kinds.
var byType = func() map[reflect.Type]Kind {
	out := map[reflect.Type]Kind{}
	for _, k := range ByName {
		out[k.Type] = k
	}
	return out
}()
