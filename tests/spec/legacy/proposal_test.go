package legacy

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// What follows are the definitions and the pseudo-code of the proposal.

type networkPolicy struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metadata          `json:"metadata"`
	Spec       networkPolicySpec `json:"spec"`
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type networkPolicySpec struct {
	PodSelector metav1.LabelSelector `json:"podSelector"`
	Ingress     []ingressRule        `json:"ingress,omitempty"`
}

type ingressRule struct {
	Ports *[]port `json:"ports,omitempty"`
	From  *[]peer `json:"from,omitempty"`
}

type port struct {
	Protocol *string             `json:"protocol,omitempty"`
	Port     *intstr.IntOrString `json:"port,omitempty"`
}

type peer struct {
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// namespace is one that is among the manifests or, when it is absent, is not.
type namespace struct {
	name       string
	labels     map[string]string
	annotation string // "" for none
	absent     bool
}

type pod struct {
	namespace, name string
	labels          map[string]string
	ip              string
	ports           map[string]uint16 // TCP, by name
}

// world is everything there is.
type world struct {
	namespaces map[string]namespace
	pods       []pod
	policies   []networkPolicy
}

// traffic is the first packet of a connection to a pod.
type traffic struct {
	from     *pod // nil for what is no pod
	kubelet  bool // of the pod's node
	protocol string
	port     uint16
}

// isTrafficAllowed is is_traffic_allowed of the proposal. The default of the cluster
// is to allow.
func (w world) isTrafficAllowed(t traffic, to pod) bool {
	if !w.isolated(to.namespace) {
		return true
	}
	if t.kubelet {
		return true
	}
	for _, policy := range w.policies {
		if policy.Metadata.Namespace != to.namespace || !selects(policy.Spec.PodSelector, to.labels) {
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			if w.ruleMatches(rule, t, to) {
				return true
			}
		}
	}
	return false
}

// isolated reports whether the annotation of a namespace isolates it. Where the namespace
// is not known, its policies count as if it did.
func (w world) isolated(name string) bool {
	ns := w.namespaces[name]
	if ns.absent {
		for _, p := range w.policies {
			if p.Metadata.Namespace == name {
				return true
			}
		}
		return false
	}
	return strings.Contains(ns.annotation, "DefaultDeny")
}

func (w world) ruleMatches(r ingressRule, t traffic, to pod) bool {
	portMatches := r.Ports == nil
	if r.Ports != nil {
		for _, p := range *r.Ports {
			portMatches = portMatches || p.matches(t, to)
		}
	}
	fromMatches := r.From == nil
	if r.From != nil {
		for _, p := range *r.From {
			fromMatches = fromMatches || w.peerMatches(p, t, to)
		}
	}
	return portMatches && fromMatches
}

func (p port) matches(t traffic, to pod) bool {
	protocol := "TCP"
	if p.Protocol != nil {
		protocol = *p.Protocol
	}
	switch {
	case protocol != t.protocol:
		return false
	case p.Port == nil:
		return true
	case p.Port.Type == intstr.Int:
		return uint16(p.Port.IntVal) == t.port
	}
	number, named := to.ports[p.Port.StrVal]
	return named && protocol == "TCP" && number == t.port
}

func (w world) peerMatches(p peer, t traffic, to pod) bool {
	switch {
	case t.from == nil:
		return false // selectors select pods
	case p.PodSelector != nil:
		return t.from.namespace == to.namespace && selects(*p.PodSelector, t.from.labels)
	default:
		return selects(*p.NamespaceSelector, w.namespaces[t.from.namespace].labels)
	}
}

func selects(s metav1.LabelSelector, of map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(&s)
	return err == nil && selector.Matches(labels.Set(of))
}
