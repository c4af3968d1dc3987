// Package kinds names the kinds of Kubernetes objects that policy needs, and what is the same for
// all of them: their versions, Go types, IDs and names.
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

// Kind is how the objects of one kind are read.
type Kind struct {
	Kind    model.Kind
	Version string // the one apiVersion in which it is read
	// Lenient names the parts of an object in which fields that are not known here
	// are passed over: newer clusters have more of them.
	Lenient []string
	Type    reflect.Type // of the Go type of its objects, a pointer
}

// New returns an empty object of the kind.
func (k Kind) New() any { return reflect.New(k.Type.Elem()).Interface() }

// The apiVersions that are read.
const (
	coreV1       = "v1"
	NetworkingV1 = "networking.k8s.io/v1"
	policyAlpha1 = "policy.networking.k8s.io/v1alpha1"
	policyAlpha2 = "policy.networking.k8s.io/v1alpha2"
	DiscoveryV1  = "discovery.k8s.io/v1"
)

var (
	// Kubernetes adds fields to pods, namespaces and nodes with every version.
	growing = []string{"spec", "status"}
	// Written is for policies: of one no unknown field is passed over, because it would narrow or
	// widen what the policy says. The status is not read: that of a NetworkPolicy was written by
	// clusters of 2022 and 2023, and those of cluster-scoped policies are written by whoever
	// enforces them.
	Written = []string{"status"}
	// What is not known of an endpoint says nothing about its address.
	endpointParts = []string{"endpoints", "ports", "subsets"}
)

// all are the kinds that are read. A new kind is a line here, a model message, and a function of
// package convert.
var all = []Kind{
	{model.KindNode, coreV1, growing, reflect.TypeFor[*corev1.Node]()},
	{model.KindNamespace, coreV1, growing, reflect.TypeFor[*corev1.Namespace]()},
	{model.KindPod, coreV1, growing, reflect.TypeFor[*corev1.Pod]()},
	{model.KindNetworkPolicy, NetworkingV1, Written, reflect.TypeFor[*networkingv1.NetworkPolicy]()},
	{model.KindAdminNetworkPolicy, policyAlpha1, Written, reflect.TypeFor[*v1alpha1.AdminNetworkPolicy]()},
	{model.KindBaselineAdminNetworkPolicy, policyAlpha1, Written, reflect.TypeFor[*v1alpha1.BaselineAdminNetworkPolicy]()},
	{model.KindClusterNetworkPolicy, policyAlpha2, Written, reflect.TypeFor[*v1alpha2.ClusterNetworkPolicy]()},
	{model.KindService, coreV1, growing, reflect.TypeFor[*corev1.Service]()},
	{model.KindEndpointSlice, DiscoveryV1, endpointParts, reflect.TypeFor[*discoveryv1.EndpointSlice]()},
}

// Endpoints is what EndpointSlice was before. An API server makes slices of what somebody
// writes in this form; of manifests it becomes one slice with its name.
const Endpoints = "Endpoints"

// ByName are the kinds by the name that manifests call them by.
var ByName = func() map[string]Kind {
	endpoints := Kind{model.KindEndpointSlice, coreV1, endpointParts, reflect.TypeFor[*corev1.Endpoints]()} //nolint:staticcheck // deprecated, and still written
	out := map[string]Kind{Endpoints: endpoints}
	for _, k := range all {
		out[k.Kind.String()] = k
	}
	return out
}()

// byType are the same by the Go type of an object.
var byType = func() map[reflect.Type]Kind {
	out := map[reflect.Type]Kind{}
	for _, k := range ByName {
		out[k.Type] = k
	}
	return out
}()
