package cluster

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// The kinds of administrators' policies.
const (
	adminKind    = "AdminNetworkPolicy"
	baselineKind = "BaselineAdminNetworkPolicy"
	clusterKind  = "ClusterNetworkPolicy"
)

// adminKinds are drawn from; the first is the simplest.
var adminKinds = []string{clusterKind, clusterKind, adminKind, baselineKind}

// spec is what stands under spec in a manifest. Both versions of the API have nearly
// the same one, but not in Go.
type spec = map[string]any

// manifestOf returns the object of a kind with a spec.
func manifestOf(kind, name string, s spec) metav1.Object {
	var out metav1.Object
	switch kind {
	case adminKind:
		out = &v1alpha1.AdminNetworkPolicy{}
	case baselineKind:
		out = &v1alpha1.BaselineAdminNetworkPolicy{}
	default:
		out = &v1alpha2.ClusterNetworkPolicy{}
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": name}, "spec": s})
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		panic(fmt.Sprintf("a generated %s cannot be read: %v", kind, err)) // a mistake of this file
	}
	return out
}

// specOf is the inverse of manifestOf.
func specOf(o metav1.Object) spec {
	var m struct{ Spec spec }
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		panic(fmt.Sprintf("%T cannot be printed: %v", o, err))
	}
	return m.Spec
}

// kindOf returns the kind of an administrators' policy.
func kindOf(o metav1.Object) string {
	switch o.(type) {
	case *v1alpha1.AdminNetworkPolicy:
		return adminKind
	case *v1alpha1.BaselineAdminNetworkPolicy:
		return baselineKind
	}
	return clusterKind
}

// adminPolicy draws a policy of a kind.
func (b builder) adminPolicy(kind, name string) metav1.Object {
	s := spec{"subject": b.subject(), "ingress": b.adminRules(kind, "from"), "egress": b.adminRules(kind, "to")}
	if kind != baselineKind {
		s["priority"] = b.priority()
	}
	if kind == clusterKind {
		s["tier"] = b.tier()
	}
	return manifestOf(kind, name, s)
}

// priority is often that of another policy.
func (b builder) priority() int {
	if b.cfg.Odd && b.one(24, "odd priority") {
		return pick(b, []int{-1, 1001}, "priority out of range")
	}
	return pick(b, []int{10, 0, 10, 20, 1000}, "priority")
}

func (b builder) tier() string {
	if b.cfg.Odd && b.one(24, "odd tier") {
		return "Middle"
	}
	return pick(b, []string{"Admin", "Admin", "Baseline"}, "tier")
}

func (b builder) subject() spec {
	if b.cfg.Odd && b.one(24, "odd subject") {
		return pick(b, []spec{{}, {"namespaces": spec{}, "pods": b.podsInNamespaces()}}, "subject of none or two fields")
	}
	return b.podsSomewhere()
}

// podsSomewhere draws one of the two ways to select pods.
func (b builder) podsSomewhere() spec {
	if b.one(2, "pods in namespaces") {
		return spec{"pods": b.podsInNamespaces()}
	}
	return spec{"namespaces": b.selector(namespaceKeys)}
}

func (b builder) podsInNamespaces() spec {
	return spec{"namespaceSelector": b.selector(namespaceKeys), "podSelector": b.selector(podLabels)}
}

func (b builder) adminRules(kind, list string) []spec {
	out := []spec{}
	for i := range b.Below(4, "rules "+list) {
		out = append(out, b.adminRule(kind, list, i))
	}
	return out
}

func (b builder) adminRule(kind, list string, i int) spec {
	r := spec{"name": fmt.Sprintf("rule %d", i), "action": b.action(kind), list: b.adminPeers(list)}
	if b.one(3, "any port") {
		return r
	}
	ports := []spec{}
	n := 1 + b.Below(3, "more ports")
	if b.cfg.Odd && b.one(24, "no ports") {
		n = 0
	}
	for range n {
		ports = append(ports, b.adminPort(kind))
	}
	if kind == clusterKind {
		r["protocols"] = ports
	} else {
		r["ports"] = ports
	}
	return r
}

func (b builder) action(kind string) string {
	actions := map[string][]string{
		adminKind: {"Deny", "Allow", "Pass"}, baselineKind: {"Deny", "Allow"}, clusterKind: {"Deny", "Accept", "Pass"},
	}[kind]
	if b.cfg.Odd && b.one(24, "odd action") {
		return pick(b, []string{"Log", "Allow", "Accept", "Pass", ""}, "action of another kind")
	}
	return pick(b, actions, "action")
}

func (b builder) adminPeers(list string) []spec {
	n := 1 + b.Below(3, "more peers")
	if b.cfg.Odd && b.one(24, "no peers") {
		n = 0
	}
	out := []spec{}
	for range n {
		out = append(out, b.adminPeer(list))
	}
	return out
}

func (b builder) adminPeer(list string) spec {
	if b.cfg.Odd && b.one(12, "odd peer") {
		return pick(b, []spec{{}, {"namespaces": spec{}, "pods": b.podsInNamespaces()}, {"nodes": spec{}, "networks": []string{"10.0.0.0/8"}},
			{"domainNames": []string{"example.org", "*.example.com"}}, {"networks": []string{"10.1.0.0/33"}}}, "peer that is not known")
	}
	if list == "to" {
		switch b.Below(6, "peer beside pods") {
		case 3:
			return spec{"nodes": b.selector(nodeKeys)}
		case 4, 5:
			return spec{"networks": b.networks()}
		}
	}
	return b.podsSomewhere()
}

func (b builder) networks() []string {
	texts := blocks4
	if b.cfg.IPv6 && b.one(3, "IPv6 networks") {
		texts = blocks6
	}
	out := []string{pick(b, texts, "network")}
	if b.one(3, "second network") {
		out = append(out, pick(b, texts, "network"))
	}
	return out
}

// adminPort draws a port, a range, or a name. Names may stand beside peers that have
// none.
func (b builder) adminPort(kind string) spec {
	protocol := string(pick(b, protocols, "protocol"))
	first := pick(b, portNumbers, "port")
	last := first + pick(b, []int32{1, 30, 8000, 65535 - first}, "length of range")
	shape := b.Below(4, "kind of port")
	if b.cfg.Odd && b.one(24, "odd port") {
		shape, first, last = 3, 90, 80
	}
	switch {
	case shape == 2 && kind == clusterKind:
		return spec{"destinationNamedPort": pick(b, portNames, "port name")}
	case shape == 2:
		return spec{"namedPort": pick(b, portNames, "port name")}
	case kind == clusterKind && shape == 3:
		return spec{lower(protocol): spec{"destinationPort": spec{"range": spec{"start": first, "end": last}}}}
	case kind == clusterKind:
		return spec{lower(protocol): spec{"destinationPort": spec{"number": first}}}
	case shape == 3:
		return spec{"portRange": spec{"protocol": protocol, "start": first, "end": last}}
	}
	return spec{"portNumber": spec{"protocol": protocol, "port": first}}
}

func lower(protocol string) string {
	return map[string]string{"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}[protocol]
}
