package strict

import (
	"encoding/json"
	"reflect"

	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// demand is a requirement of a custom resource definition that the Go type cannot show: in it a
// missing number is 0, a missing selector selects everything, and an empty list looks missing.
// Convert checks all other requirements, for objects of every source.
type demand struct {
	required []string // fields that must be set; null does not count
	filled   []string // lists that must not be empty
	// fields whose zero values (0 or "") are invisible; each excludes all other fields
	alone []string
}

var demands = map[reflect.Type]demand{
	reflect.TypeFor[v1alpha1.AdminNetworkPolicySpec]():               {required: []string{"priority"}},
	reflect.TypeFor[v1alpha1.NamespacedPod]():                        {required: []string{"namespaceSelector", "podSelector"}},
	reflect.TypeFor[v1alpha1.AdminNetworkPolicyEgressPeer]():         {filled: []string{"networks", "domainNames"}},
	reflect.TypeFor[v1alpha1.BaselineAdminNetworkPolicyEgressPeer](): {filled: []string{"networks"}},
	reflect.TypeFor[v1alpha2.ClusterNetworkPolicySpec]():             {required: []string{"priority"}},
	reflect.TypeFor[v1alpha2.NamespacedPod]():                        {required: []string{"podSelector"}},
	reflect.TypeFor[v1alpha2.ClusterNetworkPolicyEgressPeer]():       {filled: []string{"networks", "domainNames"}},
	reflect.TypeFor[v1alpha2.ClusterNetworkPolicyIngressRule]():      {filled: []string{"protocols"}},
	reflect.TypeFor[v1alpha2.ClusterNetworkPolicyEgressRule]():       {filled: []string{"protocols"}},
	reflect.TypeFor[v1alpha2.ClusterNetworkPolicyProtocol]():         {alone: []string{"destinationNamedPort"}},
	reflect.TypeFor[v1alpha2.Port]():                                 {alone: []string{"number"}},
}

// demanded returns an error if an object of a type violates its requirements.
func (d *Decoder) demanded(object map[string]any, t reflect.Type) *FieldError {
	wants, ok := demands[t]
	if !ok {
		return nil
	}
	for _, name := range wants.required {
		if object[name] == nil {
			d.path = append(d.path, step{name: name})
			return d.errorf("is missing")
		}
	}
	for _, name := range wants.filled {
		if list, ok := object[name].([]any); ok && len(list) == 0 {
			d.path = append(d.path, step{name: name})
			return d.errorf("must not be empty: leave it out, or write an item")
		}
	}
	for _, name := range wants.alone {
		if v := object[name]; len(object) > 1 && (v == "" || v == json.Number("0") || v == json.Number("-0")) {
			d.path = append(d.path, step{name: name})
			return d.errorf("must not be %s beside another field: leave one of them out", found(v))
		}
	}
	return nil
}
