package oracle_test

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
	"github.com/sluice-net/sluice/internal/oracle"
)

// scenario is a statement about one row of the semantics: under these policies
// these flows get these verdicts.
type scenario struct {
	row      int
	name     string
	policies string // YAML documents of NetworkPolicies, without kind
	tiers    string // YAML documents of administrators' policies, see anp, banp and cnp
	edit     func(*oracle.State)
	opts     []oracle.Option
	want     []string // "src > dst port/protocol allow" or "... deny"
}

// elsewhere lists the rows that no verdict about a first packet can show.
var elsewhere = map[int]string{
	48: "the time before a policy is handled is a matter of the agent",
	50: "established flows are a matter of the renderers",
	51: "how a packet is dropped is a matter of the renderers",
	53: "related ICMP errors are a matter of connection state",
	54: "address resolution is never asked about",
	55: "fragments are a matter of the renderers",
}

func TestSemantics(t *testing.T) {
	all := slices.Concat(structureRows, portRows, blockRows, podRows, adminOrderRows, adminPeerRows, adminPodRows, adminPortRows)
	for row := 1; row <= 80; row++ {
		has := slices.ContainsFunc(all, func(s scenario) bool { return s.row == row })
		if has == (elsewhere[row] != "") {
			t.Errorf("row %d must have a scenario or a reason why not", row)
		}
	}
	for _, s := range all {
		t.Run(fmt.Sprintf("row %02d %s", s.row, s.name), func(t *testing.T) { s.run(t) })
	}
}

func (s scenario) run(t *testing.T) {
	t.Helper()
	st := shop()
	st.Policies = parsePolicies(t, s.policies)
	addTiers(t, &st, s.tiers)
	if s.edit != nil {
		s.edit(&st)
	}
	o := oracle.New(st, s.opts...)
	for _, w := range s.want {
		q := parseQuestion(t, o, w)
		v := o.VerdictPods(q.src, q.dst, q.protocol, q.port)
		if v.Allowed != q.allow {
			t.Errorf("%s: got the contrary\n%s", w, v)
		}
	}
}

type question struct {
	src, dst oracle.Endpoint
	protocol api.Protocol
	port     uint16
	allow    bool
}

// parseQuestion reads "shop/web > 203.0.113.9 443/tcp deny".
func parseQuestion(t *testing.T, o *oracle.Oracle, text string) question {
	t.Helper()
	f := strings.Fields(text)
	if len(f) != 5 || f[1] != ">" || f[4] != "allow" && f[4] != "deny" {
		t.Fatalf("%q is not a question", text)
	}
	q := question{src: endpoint(t, o, f[0]), dst: endpoint(t, o, f[2]), allow: f[4] == "allow"}
	port, protocol, found := strings.Cut(f[3], "/")
	if !found {
		port, protocol = "0", f[3]
	}
	if _, err := fmt.Sscan(port, &q.port); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	var err error
	if q.protocol, err = api.ParseProtocol(protocol); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return q
}

// endpoint reads "ns/pod", an address, or "ns/pod@address".
func endpoint(t *testing.T, o *oracle.Oracle, text string) oracle.Endpoint {
	t.Helper()
	name, at, hasAddr := strings.Cut(text, "@")
	e, err := o.Resolve(name)
	if err != nil {
		t.Fatal(err)
	}
	if hasAddr {
		e.Addr = netip.MustParseAddr(at)
	}
	return e
}

func parsePolicies(t *testing.T, text string) []*networkingv1.NetworkPolicy {
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

// shop is the cluster of all scenarios. The object of namespace ghost is not
// known.
func shop() oracle.State {
	return oracle.State{
		Namespaces: []*corev1.Namespace{
			namespace("shop", map[string]string{"team": "a"}),
			namespace("infra", map[string]string{"team": "b"}),
			namespace("ops", map[string]string{"team": "a", "env": ""}),
		},
		Nodes: []*corev1.Node{node("n1", "192.168.0.1", "203.0.113.201"), node("n2", "192.168.0.2")},
		Pods: []*corev1.Pod{
			newPod("shop", "web", "app=web", "n1", []string{"10.0.1.1", "fd00::1:1"}, "http 8080 TCP"),
			newPod("shop", "api", "app=api,role=", "n2", []string{"10.0.1.2", "fd00::1:2"}, "http 9090 TCP"),
			newPod("shop", "db", "app=db", "n1", []string{"10.0.1.3", "fd00::1:3"}, "pg 5432 TCP", "dns 53 UDP", "dns 5353 TCP", "sql 5432 TCP"),
			newPod("infra", "web", "app=web", "n1", []string{"10.0.2.1"}, "http 8081 TCP"),
			newPod("infra", "mon", "app=mon", "n2", []string{"10.0.2.2"}),
			newPod("ops", "cli", "app=cli", "n1", []string{"10.0.3.1"}),
			newPod("ghost", "web", "app=web", "n2", []string{"10.0.4.1"}),
		},
	}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func node(name string, addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	return n
}

func newPod(ns, name, labels, nodeName string, ips []string, ports ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{}}}
	for kv := range strings.SplitSeq(labels, ",") {
		k, v, _ := strings.Cut(kv, "=")
		p.Labels[k] = v
	}
	p.Spec.NodeName = nodeName
	p.Spec.Containers = []corev1.Container{container(ports...)}
	p.Status.Phase = corev1.PodRunning
	setIPs(p, ips...)
	return p
}

func setIPs(p *corev1.Pod, ips ...string) {
	p.Status.PodIP, p.Status.PodIPs = "", nil
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		p.Status.PodIP = ips[0]
	}
}

// container returns a container with ports written as "name number protocol".
func container(ports ...string) corev1.Container {
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

// podOf returns a pod of the state, for edits.
func podOf(s *oracle.State, id string) *corev1.Pod {
	i := slices.IndexFunc(s.Pods, func(p *corev1.Pod) bool { return p.Namespace+"/"+p.Name == id })
	return s.Pods[i]
}

// namespaceOf returns a namespace of the state, for edits.
func namespaceOf(s *oracle.State, name string) *corev1.Namespace {
	i := slices.IndexFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name })
	return s.Namespaces[i]
}
