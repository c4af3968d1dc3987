package main

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// endpoints has services whose endpoints change. Friends may connect to servers.
const endpoints = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec: {sessionAffinity: ClientIP, selector: {app: server}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: alone}
spec: {selector: {one: alone}, ports: [{port: 80, targetPort: 8080}]}
`

// silent has some pods send nothing.
const silent = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: silent}
spec:
  podSelector: {matchLabels: {app: silent}}
  policyTypes: [Egress]
`

// hosted is a pod on the host network.
func hosted(name string, node int) string {
	text := server(name, "hosted", node)
	text = strings.Replace(text, "spec:\n", "spec:\n  hostNetwork: true\n", 1)
	return strings.Replace(strings.ReplaceAll(text, "8080", "18080"), "netexec,", "netexec, --udp-port=18081,", 1)
}

// TestClusterFollowsEndpoints has services with affinity, and with endpoints that come and go.
func TestClusterFollowsEndpoints(t *testing.T) {
	s := newSpace(t, "endpoints")
	if s.onVPP() {
		t.Skip("VPP's translation knows no affinity: docs/guide/kube.md")
	}
	s.apply(endpoints + strings.ReplaceAll(server("alone", "server", 1), "labels: {", "labels: {one: alone, ") +
		server("other", "server", 2) + server("friend", "friend", 1) + server("stranger", "stranger", 1))
	s.ready()
	ip := func(name string) string { return net.JoinHostPort(s.get("service/"+name, ".spec.clusterIP"), "80") }
	friend := s.network("friend")
	var first string
	if err := await("the service with affinity", func() (err error) {
		first, err = ask(friend, "tcp", ip("sticky"), permittedWait)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if next, err := ask(friend, "tcp", ip("sticky"), permittedWait); err != nil || next != first {
			t.Errorf("the service with affinity is answered by %q, %v, and was by %q", next, err, first)
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
	s.must(s.kube("", "-n", s.name, "label", "pod/other", "one=alone"))
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
	s.apply(silent + hosted("cache", 1) + server("silent", "silent", 1) + server("stranger", "stranger", 1))
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
