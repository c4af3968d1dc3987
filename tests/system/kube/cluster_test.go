package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// running is the cluster of the tests: up started it, and SLUICE_KUBE names its folder. They leave
// it as it was.
func running(t testing.TB) *lab {
	t.Helper()
	l := &lab{site: site{dir: os.Getenv("SLUICE_KUBE")}}
	if l.dir == "" {
		t.Skip("SLUICE_KUBE names no cluster: make test-kube starts one")
	}
	if err := l.load(); err != nil {
		t.Fatal(err)
	}
	return l
}

// space is a namespace of the cluster, which is gone with the test.
type space struct {
	*lab
	t    testing.TB
	name string
}

func newSpace(t testing.TB, name string) space {
	t.Helper()
	s := space{running(t), t, name}
	s.must(s.kube("", "create", "namespace", name))
	t.Cleanup(func() { s.must(s.kube("", "delete", "namespace", name, "--timeout", patience.String())) })
	return s
}

func (s space) must(out string, err error) string {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (s space) apply(text string) {
	s.t.Helper()
	s.must(s.kube(text, "-n", s.name, "apply", "-f", "-"))
}

func (s space) get(what, field string) string {
	s.t.Helper()
	return s.must(s.kube("", "-n", s.name, "get", what, "-o", "jsonpath={"+field+"}"))
}

// server returns a pod that answers, and is probed all the time. Its probes have time: machines may
// be busy.
func server(name, app string, node int) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    args: [netexec, --http-port=8080]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, timeoutSeconds: 20}
    livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, timeoutSeconds: 20}
`, name, app, nodeName(node), agnhostImage)
}

// client returns a pod that connects once, with its first instructions.
func client(name, app, to string, node int) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s, once: "true"}}
spec:
  nodeName: %s
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: %q, args: [connect, --timeout=5s, %q]}
`, name, app, nodeName(node), agnhostImage, to)
}

// phases waits until all clients have ended, and counts how.
func (s space) phases() (out map[string]int) {
	s.t.Helper()
	if err := await("the end of the clients", func() error {
		text, err := s.kube("", "-n", s.name, "get", "pods", "-l", "once=true", "-o", "jsonpath={.items[*].status.phase}")
		out = map[string]int{}
		for phase := range strings.FieldsSeq(text) {
			out[phase]++
		}
		if err == nil && out["Succeeded"]+out["Failed"] == 0 || out["Pending"]+out["Running"] > 0 {
			err = fmt.Errorf("phases are %v", out)
		}
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// connects reports whether a pod, or a machine if it is called so, reaches an address.
func (s space) connects(from, to string) bool {
	s.t.Helper()
	var err error
	if from == control || strings.HasPrefix(from, "node-") {
		_, err = s.run(from, "", s.Kube+"/agnhost", "connect", "--timeout=2s", to)
	} else {
		_, err = s.kube("", "-n", s.name, "exec", from, "--", "/agnhost", "connect", "--timeout=2s", to)
	}
	return err == nil
}

// service is one of the pods that are labelled as servers, in all families.
const service = `---
apiVersion: v1
kind: Service
metadata: {name: server}
spec: {type: NodePort, ipFamilyPolicy: PreferDualStack, selector: {app: server}, ports: [{port: 80, targetPort: 8080}]}
`

// shop lets friends in to servers, whose own connections are all forbidden, and friends out to
// servers. Barred pods may send to all addresses but those of pods. Strangers have no policy.
const shop = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server}
spec:
  podSelector: {matchLabels: {app: server}}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friend}
spec:
  podSelector: {matchLabels: {app: friend}}
  policyTypes: [Egress]
  egress: [{to: [{podSelector: {matchLabels: {app: server}}}]}]
` + service + `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: barred}
spec:
  podSelector: {matchLabels: {app: barred}}
  policyTypes: [Egress]
  egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.244.0.0/16]}}, {ipBlock: {cidr: "::/0", except: ["fd00:10:244::/48"]}}]}]
---
apiVersion: v1
kind: Service
metadata: {name: pinned}
spec: {type: NodePort, ipFamilyPolicy: PreferDualStack, selector: {pinned: "true"}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: free}
spec: {type: NodePort, ipFamilyPolicy: PreferDualStack, selector: {app: stranger}, ports: [{port: 80, targetPort: 8080}]}
`

// TestClusterEnforcesBySender asks with all settings as they are in deploy/: kubelets and probes
// and, on VPP, addresses of pods, services and nodes. TestClusterServesEveryKindOfService asks them
// on the kernel dataplane.
func TestClusterEnforcesBySender(t *testing.T) {
	s := newSpace(t, "who-sends")
	pinned := strings.ReplaceAll(server("server", "server", 1), "labels: {", `labels: {pinned: "true", `)
	s.apply(shop + pinned + server("other", "server", 2) + server("friend", "friend", 1) + server("stranger", "stranger", 1) + server("far", "stranger", 2) +
		server("barred", "barred", 1))
	s.must(s.kube("", "-n", s.name, "wait", "--for=condition=Ready", "pods", "--all", "--timeout", patience.String()))
	port, freePort := s.get("service/pinned", ".spec.ports[0].nodePort"), s.get("service/free", ".spec.ports[0].nodePort")
	for i, f := range families[s.Family] {
		s.asksKubelets(f)
		if s.onVPP() {
			s.askByWhoSends(i, f, port, freePort)
		}
	}
	if n := s.get("pods", ".items[*].status.containerStatuses[*].restartCount"); strings.Trim(n, "0 ") != "" {
		t.Errorf("containers of probed pods were restarted: %s times", n)
	}
	s.must(s.kube("", "-n", s.name, "delete", "networkpolicies", "--all"))
	open := net.JoinHostPort(s.main().nodeIP(1), port)
	if err := await("the end of isolation", func() error {
		if !s.connects(control, open) {
			return fmt.Errorf("the outside does not reach %s", open)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// askByWhoSends asks by the addresses of one family, which is the i-th of the cluster.
func (s space) askByWhoSends(i int, f family, nodePort, freeNodePort string) {
	s.t.Helper()
	pod := func(name string) string {
		return net.JoinHostPort(s.get("pod/"+name, fmt.Sprintf(".status.podIPs[%d].ip", i)), "8080")
	}
	clusterIP := func(name string) string {
		return net.JoinHostPort(s.get("service/"+name, fmt.Sprintf(".spec.clusterIPs[%d]", i)), "80")
	}
	service, free := clusterIP("server"), clusterIP("free")
	port := func(n int) string { return net.JoinHostPort(f.nodeIP(n), nodePort) }
	freePort := func(n int) string { return net.JoinHostPort(f.nodeIP(n), freeNodePort) }
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"friend", pod("server"), true},
		{"friend", pod("other"), true},
		{"friend", pod("stranger"), false},
		{"stranger", pod("server"), false},
		{"stranger", pod("other"), false},
		{"friend", service, true},
		{"friend", port(1), true}, // its own node translates it
		{"friend", free, false},
		{"friend", freePort(1), false},
		{"barred", free, false},
		{"barred", freePort(1), false},
		{"barred", pod("stranger"), false},
		{"stranger", free, true},
		{"stranger", freePort(1), true},
		{"stranger", freePort(2), true},
		{control, freePort(1), true},
		{"server", free, false},
		{"stranger", service, false},
		{"stranger", port(1), false},
		{"stranger", port(2), false},
		{"far", port(1), false},
		{"server", pod("stranger"), false},
		{nodeName(1), pod("server"), true},
		{nodeName(2), pod("server"), false},
		{nodeName(2), pod("other"), true},
		{control, pod("server"), false},
		{control, port(1), false},
		{control, port(2), false},
	} {
		got := s.connects(c.from, c.to)
		// There a service does not lead a pod back to itself, and strangers are endpoints of free.
		for range 15 {
			if c.from == "stranger" && c.want && !got {
				got = s.connects(c.from, c.to)
			}
		}
		if got != c.want {
			s.t.Errorf("%s reaches %s: %t, want %t", c.from, c.to, got, c.want)
		}
	}
}

// asksKubelets lets pods connect to the kubelet of their own node. On VPP the link between VPP and
// the node's kernel has addresses, too. They belong to no pod and no node, so policy decides which
// pods may send there.
func (s space) asksKubelets(f family) {
	s.t.Helper()
	addresses := map[string]map[string]bool{f.nodeIP(1): {"server": true, "stranger": true, "friend": true}}
	if s.onVPP() {
		addresses[f.hostLink(1, 1)] = map[string]bool{"server": false, "stranger": true, "friend": false}
	}
	for a, want := range addresses {
		for from, want := range want {
			if to := net.JoinHostPort(a, "10250"); s.connects(from, to) != want {
				s.t.Errorf("%s reaches the kubelet at %s: %t, want %t", from, to, !want, want)
			}
		}
	}
}

// TestClusterIsolatesFromBirth has pods that connect with their first instructions: those that may
// not do not, and those that may do.
func TestClusterIsolatesFromBirth(t *testing.T) {
	const many = 20
	s := newSpace(t, "birth")
	s.apply(shop + server("target", "target", 1))
	s.must(s.kube("", "-n", s.name, "wait", "--for=condition=Ready", "pods", "--all", "--timeout", patience.String()))
	target := net.JoinHostPort(s.get("pod/target", ".status.podIP"), "8080")
	clients := func(app string) (text string) {
		for i := range many {
			text += client(fmt.Sprint(app, "-", i), app, target, 1+i%s.Nodes)
		}
		return text
	}
	s.apply(clients("friend"))
	if got := s.phases(); got["Failed"] != many {
		t.Errorf("clients that may not: %v, want that %d fail", got, many)
	}
	s.must(s.kube("", "-n", s.name, "delete", "pods", "-l", "once=true"))
	s.apply(clients("anybody"))
	if got := s.phases(); got["Succeeded"] != many {
		t.Errorf("clients that may: %v, want that %d succeed", got, many)
	}
}

// TestClusterResolvesServices has pods on both nodes reach a service by its names.
func TestClusterResolvesServices(t *testing.T) {
	s := newSpace(t, "names")
	s.apply(service + server("server", "server", 1) + server("near", "client", 1) + server("far", "client", 2))
	s.must(s.kube("", "-n", s.name, "wait", "--for=condition=Ready", "pods", "--all", "--timeout", patience.String()))
	for _, c := range []struct {
		name string
		want bool
	}{
		{"server:80", true},
		{"server.names:80", true},
		{"server.names.svc.cluster.local:80", true},
		{"kubernetes.default:443", true},
		{"nobody:80", false},
	} {
		for _, from := range []string{"near", "far"} {
			if got := s.connects(from, c.name); got != c.want {
				t.Errorf("%s reaches %s: %t, want %t", from, c.name, got, c.want)
			}
		}
	}
}
