package ksr

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api/model"
)

// legacyVersion is the apiVersion of policies before Kubernetes 1.7; clusters up to
// 1.15 served it.
const legacyVersion = "extensions/v1beta1"

// LegacyPolicy is a NetworkPolicy of extensions/v1beta1 as it was written. What it
// means depends on its namespace, see Modernise, and Convert refuses it. A list that
// was not there is nil, and one that was empty is not: they mean different things.
type LegacyPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              networkingv1.NetworkPolicySpec `json:"spec"`
}

// legacyKind is how it is read. It has no place in readKinds, which has one version
// per kind, because it is read only where that is asked for.
var legacyKind = readKind{model.KindNetworkPolicy, legacyVersion, written, goTypeOf((*findings).legacyPolicy)}

// isLegacy says whether an envelope is that of a legacy policy, or of a list of them.
func isLegacy(env envelope) bool {
	return env.version == legacyVersion && strings.TrimSuffix(env.kind, listKind) == model.KindNetworkPolicy.String()
}

const convertFirst = `convert the manifests with "sluicectl convert", or accept them with --accept-legacy`

func (f *findings) legacyPolicy(*LegacyPolicy) *model.NetworkPolicy {
	f.add(field.NewPath("apiVersion"), "%s is a legacy version, whose meaning depends on the namespace: %s", quoted(legacyVersion), convertFirst)
	return nil
}

// saysToday says whether a policy has what only Kubernetes 1.7 and later know: its
// lists and its isolation mean what they mean today, whatever its version is called.
func (p *LegacyPolicy) saysToday() bool {
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

// newerField names a field that no server of this version had, so that it is not
// known whether it was ever in force.
func (p *LegacyPolicy) newerField() *fieldError {
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

func noRanges(ports []networkingv1.NetworkPolicyPort, list string, rule int) *fieldError {
	for i := range ports {
		if ports[i].EndPort != nil {
			return &fieldError{path: fmt.Sprintf("spec.%s[%d].ports[%d].endPort", list, rule, i), reason: "is no field of " + legacyVersion + ": write " + networkingV1}
		}
	}
	return nil
}

// today returns the policy of today with the same spec.
func (p *LegacyPolicy) today() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingV1, Kind: p.Kind},
		ObjectMeta: p.ObjectMeta,
		Spec:       p.Spec,
	}
}

// meaning returns the policy of today that means, in a namespace that is isolated,
// what the legacy policy meant there. Rules with a list that is empty matched nothing
// and are missing.
func (p *LegacyPolicy) meaning() *networkingv1.NetworkPolicy {
	out := p.today()
	if p.saysToday() {
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

// emptyList names the list of a legacy rule that is there and empty, "" when none is.
func emptyList(r networkingv1.NetworkPolicyIngressRule) string {
	switch {
	case r.From != nil && len(r.From) == 0:
		return "from"
	case r.Ports != nil && len(r.Ports) == 0:
		return "ports"
	}
	return ""
}

// isolationAnnotation is where a namespace said, before Kubernetes 1.7, whether its
// pods are isolated.
const isolationAnnotation = "net.beta.kubernetes.io/network-policy"

var isolationPath = field.NewPath("metadata").Child("annotations").Key(isolationAnnotation)

// defaultDeny is the only isolation that there ever was.
const defaultDeny = "DefaultDeny"

// isolated says whether a namespace asks for isolation. What cannot be understood
// does, and the error says why.
func isolated(ns *corev1.Namespace) (bool, *fieldError) {
	text, ok := ns.Annotations[isolationAnnotation]
	if !ok {
		return false, nil
	}
	var policy struct {
		Ingress *struct {
			Isolation *string `json:"isolation"`
		} `json:"ingress"`
	}
	wrong := func(reason string) (bool, *fieldError) {
		return true, &fieldError{path: isolationPath.String(), reason: reason + "; the namespace is treated as isolated"}
	}
	if !json.Valid([]byte(text)) {
		return wrong(quoted(text) + " is not JSON")
	}
	tree, err := parseTree([]byte(text))
	if err != nil {
		return wrong(quoted(text) + " is not an object with each field once")
	}
	d := strict{fields: fieldCache{}}
	if err := d.decode(tree, &policy); err != nil {
		return wrong(err.Error())
	}
	switch {
	case policy.Ingress == nil || policy.Ingress.Isolation == nil:
		return false, nil
	case *policy.Ingress.Isolation != defaultDeny:
		return wrong(quoted(*policy.Ingress.Isolation) + " is not an isolation: want " + defaultDeny)
	}
	return true, nil
}

// withoutIsolation returns the namespace without the annotation. It does not change ns.
func withoutIsolation(ns *corev1.Namespace) *corev1.Namespace {
	if _, ok := ns.Annotations[isolationAnnotation]; !ok {
		return ns
	}
	out := *ns
	out.Annotations = maps.Clone(ns.Annotations)
	delete(out.Annotations, isolationAnnotation)
	return &out
}

// current returns the object of today that an object becomes where it is kept.
func current(o Object) Object {
	switch obj := o.Object.(type) {
	case *corev1.Namespace:
		o.Object = withoutIsolation(obj)
	case *LegacyPolicy:
		o.Object = obj.meaning()
	}
	return o
}
