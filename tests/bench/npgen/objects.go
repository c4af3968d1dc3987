package main

import (
	"fmt"
	"hash/fnv"
	"maps"
)

// The types of this file are the parts of Kubernetes objects that a network policy
// engine looks at. They are not those of k8s.io/api, because the order and the
// presence of their fields are part of the output and must not follow that module.

// labels are those of an object, or those that a selector asks for.
type labels map[string]string

// with returns a copy in which the pairs of keys and values are set.
func (l labels) with(pairs ...string) labels {
	out := make(labels, len(l)+len(pairs)/2)
	maps.Copy(out, l)
	for i := 0; i+1 < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

type metadata struct {
	Name            string `json:"name"`
	Namespace       string `json:"namespace,omitempty"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Labels          labels `json:"labels,omitempty"`
}

// path names the object in digests.
func (m metadata) path() string { return m.Namespace + "/" + m.Name }

type namespace struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Meta       metadata `json:"metadata"`
}

type pod struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Meta       metadata  `json:"metadata"`
	Spec       podSpec   `json:"spec"`
	Status     podStatus `json:"status"`
}

type podSpec struct {
	NodeName   string      `json:"nodeName,omitempty"`
	Containers []container `json:"containers"`
}

type container struct {
	Name  string          `json:"name"`
	Image string          `json:"image"`
	Ports []containerPort `json:"ports,omitempty"`
}

type containerPort struct {
	Name     string `json:"name"`
	Port     int    `json:"containerPort"`
	Protocol string `json:"protocol"`
}

type podStatus struct {
	Phase  string  `json:"phase"`
	PodIP  string  `json:"podIP,omitempty"`
	PodIPs []podIP `json:"podIPs,omitempty"`
}

type podIP struct {
	IP string `json:"ip"`
}

type networkPolicy struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Meta       metadata   `json:"metadata"`
	Spec       policySpec `json:"spec"`
}

type policySpec struct {
	PodSelector selector      `json:"podSelector"`
	PolicyTypes []string      `json:"policyTypes"`
	Ingress     []ingressRule `json:"ingress,omitempty"`
	Egress      []egressRule  `json:"egress,omitempty"`
}

type ingressRule struct {
	Ports []port `json:"ports,omitempty"`
	From  []peer `json:"from,omitempty"`
}

type egressRule struct {
	Ports []port `json:"ports,omitempty"`
	To    []peer `json:"to,omitempty"`
}

// peer has a block, or at least one of the selectors.
type peer struct {
	PodSelector       *selector `json:"podSelector,omitempty"`
	NamespaceSelector *selector `json:"namespaceSelector,omitempty"`
	IPBlock           *ipBlock  `json:"ipBlock,omitempty"`
}

type ipBlock struct {
	CIDR   string   `json:"cidr"`
	Except []string `json:"except,omitempty"`
}

// port is a number (int), a range from Port to EndPort, or a name (string).
type port struct {
	Protocol string `json:"protocol"`
	Port     any    `json:"port,omitempty"`
	EndPort  int    `json:"endPort,omitempty"`
}

// tcp returns a TCP port by number or by name.
func tcp(numberOrName any) port { return port{Protocol: "TCP", Port: numberOrName} }

// adminPolicy is a policy of cluster scope, of any of its kinds.
type adminPolicy struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Meta       metadata `json:"metadata"`
	Spec       object   `json:"spec"`
}

// object is a JSON object whose fields depend on the kind; it is written with its
// keys sorted.
type object map[string]any

// uid derives the identity of an object from its name, in the form of a UUID.
func uid(kind, namespace, name string) string {
	h := fnv.New128a()
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00%s", kind, namespace, name) // a hash never fails
	b := h.Sum(nil)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
