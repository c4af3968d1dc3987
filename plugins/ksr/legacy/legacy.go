// Package legacy converts manifests from before Kubernetes 1.7 to the current form, with their
// meaning at that time. An annotation isolated a namespace, and policies of extensions/v1beta1
// allowed traffic within it. The package has no part in the flow of a cluster's state: only sources
// that are configured to do so read such manifests.
package legacy

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// Version is the apiVersion of policies before Kubernetes 1.7; clusters up to
// 1.15 served it.
const Version = "extensions/v1beta1"

// Policy is a NetworkPolicy of extensions/v1beta1 as written. Its meaning depends on its namespace,
// see Modernise; package convert rejects it. A missing list is nil and an empty list is not: they
// mean different things.
type Policy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              networkingv1.NetworkPolicySpec `json:"spec"`
}

// ID returns the ID of the policy, for package kinds.
func (p *Policy) ID() model.ID {
	if p == nil {
		return model.ID{}
	}
	return Kind.IDOf(p)
}

// Kind describes how a legacy policy is read. Package kinds does not contain it: that has one
// version per kind, and legacy policies are read only on request.
var Kind = kinds.Kind{Kind: model.KindNetworkPolicy, Version: Version, Lenient: kinds.Written, Type: reflect.TypeFor[*Policy]()}

// Is reports whether a version and a kind are those of legacy policies, or of a list of them.
func Is(version, kind string) bool {
	return version == Version && strings.TrimSuffix(kind, "List") == model.KindNetworkPolicy.String()
}

// Remedy describes what users can do with legacy manifests.
const Remedy = `convert the manifests with "sluicectl convert", or accept them with --accept-legacy`

// Refusal explains why a legacy policy is not converted.
func Refusal() string {
	return fmt.Sprintf("%s is a legacy version, whose meaning depends on the namespace: %s", model.Quoted(Version), Remedy)
}

// hasNewerFields reports whether a policy has fields that only Kubernetes 1.7 and later know: its
// lists and its isolation then have today's meaning, whatever its version.
func (p *Policy) hasNewerFields() bool {
	if p.Spec.PolicyTypes != nil || p.Spec.Egress != nil {
		return true
	}
	for _, r := range p.Spec.Ingress {
		for _, peer := range r.From {
			if peer.IPBlock != nil || peer.PodSelector != nil && peer.NamespaceSelector != nil {
				return true
			}
		}
	}
	return false
}

// NewerField names a field that no server of this version had, so that it is unknown whether it
// ever was in force.
func (p *Policy) NewerField() *strict.FieldError {
	for i, r := range p.Spec.Ingress {
		if err := noRanges(r.Ports, "ingress", i); err != nil {
			return err
		}
	}
	for i, r := range p.Spec.Egress {
		if err := noRanges(r.Ports, "egress", i); err != nil {
			return err
		}
	}
	return nil
}

func noRanges(ports []networkingv1.NetworkPolicyPort, list string, rule int) *strict.FieldError {
	for i := range ports {
		if ports[i].EndPort != nil {
			return &strict.FieldError{Path: fmt.Sprintf("spec.%s[%d].ports[%d].endPort", list, rule, i), Reason: "is no field of " + Version + ": write " + kinds.NetworkingV1}
		}
	}
	return nil
}

// today returns a current policy with the same spec.
func (p *Policy) today() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: kinds.NetworkingV1, Kind: p.Kind},
		ObjectMeta: p.ObjectMeta,
		Spec:       p.Spec,
	}
}

// meaning returns a current policy with the meaning that the legacy policy had in an isolated
// namespace. It drops rules with an empty list, which matched nothing.
func (p *Policy) meaning() *networkingv1.NetworkPolicy {
	out := p.today()
	if p.hasNewerFields() {
		return out
	}
	out.Spec = networkingv1.NetworkPolicySpec{PodSelector: p.Spec.PodSelector, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}
	for _, r := range p.Spec.Ingress {
		if emptyList(r) == "" {
			out.Spec.Ingress = append(out.Spec.Ingress, r)
		}
	}
	return out
}

// emptyList returns the name of the empty list of a legacy rule, or "" if there is none.
func emptyList(r networkingv1.NetworkPolicyIngressRule) string {
	switch {
	case r.From != nil && len(r.From) == 0:
		return "from"
	case r.Ports != nil && len(r.Ports) == 0:
		return "ports"
	}
	return ""
}

// Annotation is the annotation by which a namespace configured, before Kubernetes 1.7, the
// isolation of its pods.
const Annotation = "net.beta.kubernetes.io/network-policy"

// defaultDeny is the only kind of isolation that ever existed.
const defaultDeny = "DefaultDeny"

// Isolates reports whether a namespace requests isolation. An invalid annotation does, and the
// error explains why it is invalid.
func Isolates(ns *corev1.Namespace) (bool, *strict.FieldError) {
	text, ok := ns.Annotations[Annotation]
	if !ok {
		return false, nil
	}
	var policy struct {
		Ingress *struct {
			Isolation *string `json:"isolation"`
		} `json:"ingress"`
	}
	wrong := func(reason string) (bool, *strict.FieldError) {
		return true, &strict.FieldError{Path: "metadata.annotations[" + Annotation + "]", Reason: reason + "; the namespace is treated as isolated"}
	}
	if !json.Valid([]byte(text)) {
		return wrong(model.Quoted(text) + " is not JSON")
	}
	tree, err := strict.Tree([]byte(text))
	if err != nil {
		return wrong(model.Quoted(text) + " is not an object with each field once")
	}
	if err := strict.NewDecoder().Decode(tree, &policy, nil); err != nil {
		return wrong(err.Error())
	}
	switch {
	case policy.Ingress == nil || policy.Ingress.Isolation == nil:
		return false, nil
	case *policy.Ingress.Isolation != defaultDeny:
		return wrong(model.Quoted(*policy.Ingress.Isolation) + " is not an isolation: want " + defaultDeny)
	}
	return true, nil
}

// withoutIsolation returns the namespace without the annotation. It does not modify ns.
func withoutIsolation(ns *corev1.Namespace) *corev1.Namespace {
	if _, ok := ns.Annotations[Annotation]; !ok {
		return ns
	}
	out := *ns
	out.Annotations = maps.Clone(ns.Annotations)
	delete(out.Annotations, Annotation)
	return &out
}

// Current returns the current form of an object for storage.
func Current(o kinds.Object) kinds.Object {
	switch obj := o.Object.(type) {
	case *corev1.Namespace:
		o.Object = withoutIsolation(obj)
	case *Policy:
		o.Object = obj.meaning()
	}
	return o
}
