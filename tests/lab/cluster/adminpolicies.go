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

// spec is the value of spec in a manifest. Both versions of the API have nearly the same one, but
// not in Go.
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

// adminDrawer draws administrators' policies and what happens to them.
type adminDrawer struct{ draws }

// policy draws a policy of a kind.
func (d adminDrawer) policy(kind, name string) metav1.Object {
	s := spec{"subject": d.subject(), "ingress": d.rules(kind, "from"), "egress": d.rules(kind, "to")}
	if kind != baselineKind {
		s["priority"] = d.priority()
	}
	if kind == clusterKind {
		s["tier"] = d.tier()
	}
	out := manifestOf(kind, name, s)
	out.SetAnnotations(d.mode())
	return out
}

// priority is often that of another policy.
func (d adminDrawer) priority() int {
	if d.cfg.Odd && d.one(24, "odd priority") {
		return pick(d, []int{-1, 1001}, "priority out of range")
	}
	return pick(d, []int{10, 0, 10, 20, 1000}, "priority")
}

func (d adminDrawer) tier() string {
	if d.cfg.Odd && d.one(24, "odd tier") {
		return "Middle"
	}
	return pick(d, []string{"Admin", "Admin", "Baseline"}, "tier")
}

func (d adminDrawer) subject() spec {
	if d.cfg.Odd && d.one(24, "odd subject") {
		return pick(d, []spec{{}, {"namespaces": spec{}, "pods": d.podsInNamespaces()}}, "subject of none or two fields")
	}
	return d.podsSomewhere()
}

// podsSomewhere draws one of the two ways to select pods.
func (d adminDrawer) podsSomewhere() spec {
	if d.one(2, "pods in namespaces") {
		return spec{"pods": d.podsInNamespaces()}
	}
	return spec{"namespaces": d.selector(namespaceKeys)}
}

func (d adminDrawer) podsInNamespaces() spec {
	return spec{"namespaceSelector": d.selector(namespaceKeys), "podSelector": d.selector(podLabels)}
}

func (d adminDrawer) rules(kind, list string) []spec {
	out := []spec{}
	for i := range d.Below(4, "rules "+list) {
		out = append(out, d.rule(kind, list, i))
	}
	return out
}

func (d adminDrawer) rule(kind, list string, i int) spec {
	r := spec{"name": fmt.Sprintf("rule %d", i), "action": d.action(kind), list: d.peers(list)}
	if d.one(3, "any port") {
		return r
	}
	ports := []spec{}
	n := 1 + d.Below(3, "more ports")
	if d.cfg.Odd && d.one(24, "no ports") {
		n = 0
	}
	for range n {
		ports = append(ports, d.port(kind))
	}
	if kind == clusterKind {
		r["protocols"] = ports
	} else {
		r["ports"] = ports
	}
	return r
}

func (d adminDrawer) action(kind string) string {
	actions := map[string][]string{
		adminKind: {"Deny", "Allow", "Pass"}, baselineKind: {"Deny", "Allow"}, clusterKind: {"Deny", "Accept", "Pass"},
	}[kind]
	if d.cfg.Odd && d.one(24, "odd action") {
		return pick(d, []string{"Log", "Allow", "Accept", "Pass", ""}, "action of another kind")
	}
	return pick(d, actions, "action")
}

func (d adminDrawer) peers(list string) []spec {
	n := 1 + d.Below(3, "more peers")
	if d.cfg.Odd && d.one(24, "no peers") {
		n = 0
	}
	out := []spec{}
	for range n {
		out = append(out, d.peer(list))
	}
	return out
}

func (d adminDrawer) peer(list string) spec {
	if d.cfg.Odd && d.one(12, "odd peer") {
		return pick(d, []spec{{}, {"namespaces": spec{}, "pods": d.podsInNamespaces()}, {"nodes": spec{}, "networks": []string{"10.0.0.0/8"}},
			{"domainNames": []string{"example.org", "*.example.com"}}, {"networks": []string{"10.1.0.0/33"}}}, "peer that is not known")
	}
	if list == "to" {
		switch d.Below(6, "peer beside pods") {
		case 3:
			return spec{"nodes": d.selector(nodeKeys)}
		case 4, 5:
			return spec{"networks": d.networks()}
		}
	}
	return d.podsSomewhere()
}

func (d adminDrawer) networks() []string {
	texts := blocks4
	if d.cfg.IPv6 && d.one(3, "IPv6 networks") {
		texts = blocks6
	}
	out := []string{pick(d, texts, "network")}
	if d.one(3, "second network") {
		out = append(out, pick(d, texts, "network"))
	}
	return out
}

// port draws a port, a range, or a name. Names may be combined with peers that have none.
func (d adminDrawer) port(kind string) spec {
	protocol := string(pick(d, protocols, "protocol"))
	first := pick(d, portNumbers, "port")
	last := first + pick(d, []int32{1, 30, 8000, 65535 - first}, "length of range")
	shape := d.Below(4, "kind of port")
	if d.cfg.Odd && d.one(24, "odd port") {
		shape, first, last = 3, 90, 80
	}
	switch {
	case shape == 2 && kind == clusterKind:
		return spec{"destinationNamedPort": pick(d, portNames, "port name")}
	case shape == 2:
		return spec{"namedPort": pick(d, portNames, "port name")}
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
