package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// kinds has a service of each kind, and policies about their clients: friends may connect to
// servers, and servers let friends in, and the outside by its own address. "far" and "near" are the
// nodes of pods.
const kinds = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server}
spec:
  podSelector: {matchLabels: {app: server}}
  policyTypes: [Ingress, Egress]
  ingress:
  - from: [{podSelector: {matchLabels: {app: friend}}}]
  - from: [{ipBlock: {cidr: OUTSIDE}}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friend}
spec:
  podSelector: {matchLabels: {app: friend}}
  policyTypes: [Egress]
  egress:
  - to: [{podSelector: {matchLabels: {app: server}}}]
  - to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: noderunner}
spec:
  podSelector: {matchLabels: {app: noderunner}}
  policyTypes: [Egress]
  egress: [{to: [{ipBlock: {cidr: FARNODE}}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: silent}
spec:
  podSelector: {matchLabels: {app: silent}}
  policyTypes: [Egress]
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec: {sessionAffinity: ClientIP, selector: {app: server}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, selector: {app: server}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {selector: {app: none}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: alone}
spec: {selector: {one: alone}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: local}
spec: {type: NodePort, externalTrafficPolicy: Local, selector: {one: alone}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: cluster}
spec: {type: NodePort, selector: {one: alone}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: outer}
spec: {externalIPs: [EXTERNAL], selector: {one: alone}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: hosted}
spec: {selector: {app: hosted}, ports: [{port: 80, targetPort: 18080}]}
`

// hosted is a pod on the host network.
func hosted(name string, node int) string {
	text := server(name, "hosted", node)
	text = strings.Replace(text, "spec:\n", "spec:\n  hostNetwork: true\n", 1)
	return strings.Replace(strings.ReplaceAll(text, "8080", "18080"), "netexec,", "netexec, --udp-port=18081,", 1)
}

// TestClusterServesEveryKindOfService connects through services of each kind, from permitted and
// from denied pods.
func TestClusterServesEveryKindOfService(t *testing.T) {
	const external, hostPort = 77, "18090"
	s := newSpace(t, "kinds")
	if s.onVPP() {
		t.Skip("VPP's translation knows no affinity and no external addresses, and leads no pod back to itself: docs/guide/kube.md")
	}
	f := s.main()
	externalIP := fmt.Sprintf(f.machine, external)
	one := func(a string) string {
		if strings.Contains(a, ":") {
			return a + "/128"
		}
		return a + "/32"
	}
	alone := strings.ReplaceAll(server("alone", "server", 1), "labels: {", "labels: {one: alone, ")
	ported := strings.ReplaceAll(server("ported", "server", 2), "    args:", "    ports: [{containerPort: 8080, hostPort: "+hostPort+"}]\n    args:")
	s.apply(strings.NewReplacer("OUTSIDE", one(f.control()), "EXTERNAL", externalIP, "FARNODE", one(f.nodeIP(2))).Replace(kinds) +
		alone + ported + hosted("hosted", 2) + server("friend", "friend", 1) + server("far", "friend", 2) + server("stranger", "stranger", 1) +
		server("runner", "noderunner", 1) + server("silent", "silent", 1))
	s.ready()
	ip := func(name string) string { return net.JoinHostPort(s.get("service/"+name, ".spec.clusterIP"), "80") }
	nodePort := func(name string, n int) string {
		return net.JoinHostPort(f.nodeIP(n), s.get("service/"+name, ".spec.ports[0].nodePort"))
	}
	at := func(host, port string) string { return net.JoinHostPort(host, port) }

	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"alone", ip("alone"), true}, // itself, by its service, though it may send nothing
		{"alone", at(s.get("pod/ported", ".status.podIP"), httpPort), false},
		{"friend", ip("alone"), true},
		{"friend", ip("sticky"), true},
		{"stranger", ip("sticky"), false},
		{"friend", at(s.get("pod/ported", ".status.podIP"), httpPort), true}, // as a headless service is resolved
		{"stranger", at(s.get("pod/ported", ".status.podIP"), httpPort), false},
		{"friend", ip("empty"), false},
		{"stranger", ip("empty"), false},
		{control, nodePort("local", 1), true},
		{control, nodePort("local", 2), false}, // it has no endpoint there
		{control, nodePort("cluster", 1), true},
		{nodeName(2), nodePort("local", 1), false},
		{"stranger", nodePort("local", 1), false},
		{"friend", nodePort("local", 1), true},
		{"far", nodePort("cluster", 2), false}, // its node has the endpoint's node believe that the node sends
		{"friend", at(externalIP, "80"), true},
		{"stranger", at(externalIP, "80"), false},
		{"runner", ip("hosted"), true},
		{"runner", at(f.nodeIP(2), "18080"), true},
		{"friend", ip("hosted"), false},
		{"silent", ip("hosted"), false},
		{"stranger", ip("hosted"), true},
		{control, at(f.nodeIP(2), hostPort), true},
		{"far", at(f.nodeIP(2), hostPort), true},
		{"friend", at(f.nodeIP(2), hostPort), false}, // to its own node that is a node, which it may not send to
		{"stranger", at(f.nodeIP(2), hostPort), false},
		{"runner", at(f.nodeIP(2), hostPort), false}, // behind the port is a pod, and no node
		{"silent", at(f.nodeIP(2), hostPort), false},
	} {
		wait := permittedWait
		if !c.want {
			wait = deniedWait
		}
		if answer, err := ask(s.network(c.from), "tcp", c.to, wait); (err == nil) != c.want {
			t.Errorf("%s reaches %s: %q, %v; want %t", c.from, c.to, answer, err, c.want)
		}
	}
	if first, err := ask(s.network("friend"), "tcp", ip("sticky"), permittedWait); err != nil {
		t.Error(err)
	} else {
		for range 20 {
			if next, err := ask(s.network("friend"), "tcp", ip("sticky"), permittedWait); err != nil || next != first {
				t.Errorf("the service with affinity is answered by %q, %v, and was by %q", next, err, first)
			}
		}
	}
	for _, name := range []string{"headless:8080", "alone:80"} {
		if !s.connects("friend", name) || s.connects("stranger", name) {
			t.Errorf("%s is reached by others than friends, or not by them", name)
		}
	}
	s.asksAServiceThatLosesItsEndpoints(ip("alone"))
}

// asksAServiceThatLosesItsEndpoints checks that forwarded connections continue or end, and that no
// other pod gets them.
func (s space) asksAServiceThatLosesItsEndpoints(to string) {
	s.t.Helper()
	s.must(s.kube("", "-n", s.name, "label", "pod/alone", "one-"))
	if err := await("the end of the service", func() error {
		if _, err := ask(s.network("friend"), "tcp", to, deniedWait); err == nil {
			return errors.New("it is answered")
		}
		return nil
	}); err != nil {
		s.t.Error(err)
	}
	s.must(s.kube("", "-n", s.name, "label", "pod/ported", "one=alone"))
	if err := await("the next endpoint", func() error {
		_, err := ask(s.network("friend"), "tcp", to, permittedWait)
		return err
	}); err != nil {
		s.t.Error(err)
	}
	if _, err := ask(s.network("stranger"), "tcp", to, deniedWait); err == nil {
		s.t.Error("a stranger reaches the next endpoint")
	}
}

// TestClusterServesDNSOfNode has a resolver at an address of the node that no interface of the
// cluster has, as NodeLocal DNSCache: it is the node, which every pod may ask.
func TestClusterServesDNSOfNode(t *testing.T) {
	s := newSpace(t, "node-dns")
	if s.onVPP() {
		t.Skip("VPP does not know the address of this resolver: it is of the node's kernel")
	}
	local := "169.254.20.10"
	if s.Family == "ipv6" {
		local = "fd00:20::10"
	}
	s.must(s.run(nodeName(1), "", "ip", "link", "add", "nodelocaldns", "type", "bridge"))
	t.Cleanup(func() { s.must(s.run(nodeName(1), "", "ip", "link", "del", "nodelocaldns")) })
	s.must(s.run(nodeName(1), "", "ip", "addr", "add", local, "dev", "nodelocaldns"))
	s.must(s.run(nodeName(1), "", "ip", "link", "set", "nodelocaldns", "up"))
	s.apply(kindsOnly(t, "silent") + hosted("cache", 1) + server("silent", "silent", 1) + server("stranger", "stranger", 1))
	s.ready()
	for _, pod := range []string{"silent", "stranger"} {
		if err := await(pod+" and the resolver of its node", func() error {
			_, err := ask(s.network(pod), "tcp", net.JoinHostPort(local, "18080"), permittedWait)
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	if _, err := ask(s.network("silent"), "tcp", s.address("stranger", httpPort), deniedWait); err == nil {
		t.Error("a pod that may send nothing reaches another one")
	}
}

// kindsOnly returns one object of kinds.
func kindsOnly(t *testing.T, name string) string {
	t.Helper()
	for part := range strings.SplitSeq(kinds, "---\n") {
		if strings.Contains(part, "metadata: {name: "+name+"}") {
			return part
		}
	}
	t.Fatalf("there is no %s", name)
	return ""
}
