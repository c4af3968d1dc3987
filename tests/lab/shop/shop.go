// Package shop is a small cluster for tests of what policies mean, and of the words about
// it: an application, its database, and others that may or may not talk with it. Policies
// and questions are written as text.
package shop

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// Question is a first packet, and the expected verdict.
type Question struct {
	Src, Dst oracle.Endpoint
	Protocol api.Protocol
	Port     uint16
	Allow    bool
}

// Ask reads "shop/web > 203.0.113.9 443/tcp deny".
func Ask(t *testing.T, text string) Question {
	t.Helper()
	f := strings.Fields(text)
	if len(f) != 5 || f[1] != ">" || f[4] != "allow" && f[4] != "deny" {
		t.Fatalf("%q is not a question", text)
	}
	q := Question{Src: endpoint(t, f[0]), Dst: endpoint(t, f[2]), Allow: f[4] == "allow"}
	port, protocol, found := strings.Cut(f[3], "/")
	if !found {
		port, protocol = "0", f[3]
	}
	if _, err := fmt.Sscan(port, &q.Port); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	var err error
	if q.Protocol, err = api.ParseProtocol(protocol); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return q
}

// endpoint reads "ns/pod", an address, or "ns/pod@address".
func endpoint(t *testing.T, text string) oracle.Endpoint {
	t.Helper()
	name, at, hasAddr := strings.Cut(text, "@")
	if a, err := netip.ParseAddr(name); err == nil {
		return oracle.AddrEndpoint(a)
	}
	id, err := api.ParsePodID(name)
	if err != nil {
		t.Fatal(err)
	}
	e := oracle.Endpoint{Pod: id}
	if hasAddr {
		e.Addr = netip.MustParseAddr(at)
	}
	return e
}

// Policies reads YAML documents of NetworkPolicies, without kind. One without a namespace is of
// shop, and one without a name gets one.
func Policies(t *testing.T, text string) []*networkingv1.NetworkPolicy {
	t.Helper()
	var out []*networkingv1.NetworkPolicy
	for i, doc := range strings.Split(text, "\n---") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		np := &networkingv1.NetworkPolicy{}
		if err := yaml.UnmarshalStrict([]byte(doc), np); err != nil {
			t.Fatalf("%v in policy\n%s", err, doc)
		}
		if np.Namespace == "" {
			np.Namespace = "shop"
		}
		if np.Name == "" {
			np.Name = fmt.Sprintf("p%d", i)
		}
		out = append(out, np)
	}
	return out
}

// Cluster is the cluster of all scenarios. The object of namespace ghost is not
// known.
func Cluster() oracle.State {
	return oracle.State{
		Namespaces: []*corev1.Namespace{
			Namespace("shop", map[string]string{"team": "a"}),
			Namespace("infra", map[string]string{"team": "b"}),
			Namespace("ops", map[string]string{"team": "a", "env": ""}),
		},
		Nodes: []*corev1.Node{Node("n1", "192.168.0.1", "203.0.113.201"), Node("n2", "192.168.0.2")},
		Pods: []*corev1.Pod{
			Pod("shop", "web", "app=web", "n1", []string{"10.0.1.1", "fd00::1:1"}, "http 8080 TCP"),
			Pod("shop", "api", "app=api,role=", "n2", []string{"10.0.1.2", "fd00::1:2"}, "http 9090 TCP"),
			Pod("shop", "db", "app=db", "n1", []string{"10.0.1.3", "fd00::1:3"}, "pg 5432 TCP", "dns 53 UDP", "dns 5353 TCP", "sql 5432 TCP"),
			Pod("infra", "web", "app=web", "n1", []string{"10.0.2.1"}, "http 8081 TCP"),
			Pod("infra", "mon", "app=mon", "n2", []string{"10.0.2.2"}),
			Pod("ops", "cli", "app=cli", "n1", []string{"10.0.3.1"}),
			Pod("ghost", "web", "app=web", "n2", []string{"10.0.4.1"}),
		},
	}
}

// Under returns the cluster under policies of namespace shop and admin policies, with a pod that
// waits for its address.
func Under(t *testing.T, policies, admin string) oracle.State {
	t.Helper()
	s := Cluster()
	s.Pods = append(s.Pods, Pod("ops", "new", "app=new", "", nil))
	s.Policies = Policies(t, policies)
	AddAdmin(t, &s, admin)
	return s
}

// Namespace returns the object of a namespace.
func Namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// Node returns a node with addresses, whose name is one more.
func Node(name string, addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	return n
}

// Pod returns a running pod with labels "a=b,c=d" and ports "name number protocol".
func Pod(ns, name, labels, nodeName string, ips []string, ports ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{}}}
	for kv := range strings.SplitSeq(labels, ",") {
		k, v, _ := strings.Cut(kv, "=")
		p.Labels[k] = v
	}
	p.Spec.NodeName = nodeName
	p.Spec.Containers = []corev1.Container{Container(ports...)}
	p.Status.Phase = corev1.PodRunning
	SetIPs(p, ips...)
	return p
}

// SetIPs gives a pod other addresses.
func SetIPs(p *corev1.Pod, ips ...string) {
	p.Status.PodIP, p.Status.PodIPs = "", nil
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		p.Status.PodIP = ips[0]
	}
}

// Container returns a container with ports written as "name number protocol".
func Container(ports ...string) corev1.Container {
	c := corev1.Container{Name: "c"}
	for _, text := range ports {
		var p corev1.ContainerPort
		if _, err := fmt.Sscan(text, &p.Name, &p.ContainerPort, &p.Protocol); err != nil {
			panic(err)
		}
		c.Ports = append(c.Ports, p)
	}
	return c
}

// PodOf returns a pod of the state, for edits.
func PodOf(s *oracle.State, id string) *corev1.Pod {
	i := slices.IndexFunc(s.Pods, func(p *corev1.Pod) bool { return p.Namespace+"/"+p.Name == id })
	return s.Pods[i]
}

// NamespaceOf returns a namespace of the state, for edits.
func NamespaceOf(s *oracle.State, name string) *corev1.Namespace {
	i := slices.IndexFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name })
	return s.Namespaces[i]
}

// Explained answers a question as Ask reads it, less its verdict, where some policies are in force.
func Explained(t *testing.T, policies, question string) reason.Verdict {
	t.Helper()
	return ExplainedInTiers(t, policies, "", question)
}

// ExplainedInTiers explains a flow where admin policies are in force, too.
func ExplainedInTiers(t *testing.T, policies, tiers, question string) reason.Verdict {
	t.Helper()
	q := Ask(t, question+" deny")
	return reason.Explain(oracle.New(Under(t, policies, tiers)), q.Src, q.Dst, q.Protocol, q.Port)
}
