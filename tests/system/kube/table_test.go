package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"

	policyapi "github.com/sluice-net/sluice/api"
)

// tableServices has a service of each kind. All of them select the same pod, but "empty" selects
// none, and "hosted" one in the network of its node.
const tableServices = `
apiVersion: v1
kind: Service
metadata: {name: cluster}
spec: {ipFamilyPolicy: PreferDualStack, selector: {app: server}, ports: PORTS}
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec: {ipFamilyPolicy: PreferDualStack, sessionAffinity: ClientIP, selector: {app: server}, ports: PORTS}
---
apiVersion: v1
kind: Service
metadata: {name: internal}
spec: {ipFamilyPolicy: PreferDualStack, internalTrafficPolicy: Local, selector: {app: server}, ports: PORTS}
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {ipFamilyPolicy: PreferDualStack, clusterIP: None, selector: {app: server}, ports: PORTS}
---
apiVersion: v1
kind: Service
metadata: {name: nodes}
spec: {ipFamilyPolicy: PreferDualStack, type: NodePort, selector: {app: server}, ports: PORTS}
---
apiVersion: v1
kind: Service
metadata: {name: local}
spec: {ipFamilyPolicy: PreferDualStack, type: NodePort, externalTrafficPolicy: Local, selector: {app: server}, ports: PORTS}
---
apiVersion: v1
kind: Service
metadata: {name: external}
spec: {ipFamilyPolicy: PreferDualStack, externalIPs: [EXTERNAL], selector: {app: server}, ports: PORTS}
---
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec: {ipFamilyPolicy: PreferDualStack, type: LoadBalancer, selector: {app: server}, ports: PORTS}
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {ipFamilyPolicy: PreferDualStack, type: NodePort, selector: {app: none}, ports: PORTS}
---
apiVersion: v1
kind: Service
metadata: {name: hosted}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: hosted}
  ports: [{name: tcp, port: 80, targetPort: 18080}, {name: udp, protocol: UDP, port: 80, targetPort: 18081}]
`

const (
	tablePorts    = "[{name: tcp, port: 80, targetPort: 8080}, {name: udp, protocol: UDP, port: 80, targetPort: 8081}]"
	tableHostPort = "18090"
)

// Nodes to which the outside sends packets for the addresses of the services "external" and
// "balanced". The server is on the first one.
const externalNode, balancedNode = 1, 2

// outer returns an address outside of the cluster, whose packets come to a node.
func (f family) outer(node int) string {
	if f.length == 32 {
		return fmt.Sprintf("198.51.100.%d", node)
	}
	return fmt.Sprintf("2001:db8:100::%x", node)
}

// table is the cluster of TestClusterServesEveryKindOfService.
type table struct {
	space
	families []family
	machines []party // by number of the node; the first is the outside
	clients  []party
	networks map[string]netns.NsHandle // of clients
	services map[string]corev1.Service
	ways     []way
	dns      way
}

// newTable makes the pods and the services. Friends and strangers are on both nodes, and friends in
// another namespace, too.
func newTable(t *testing.T) *table {
	s := newSpace(t, "table")
	if s.onVPP() {
		t.Skip("VPP's translation knows no affinity and no external addresses, and leads no pod back to itself: docs/guide/kube.md")
	}
	other := newSpace(t, "table-other")
	w := &table{space: s, families: families[s.Family], networks: map[string]netns.NsHandle{}, services: map[string]corev1.Service{}}
	w.apply(strings.ReplaceAll(server("server", "server", 1), "    args:",
		"    ports: [{containerPort: 8080, hostPort: "+tableHostPort+"}, {containerPort: 8081, hostPort: "+tableHostPort+", protocol: UDP}]\n    args:") +
		w.hosted(1) + strings.ReplaceAll(w.hosted(2), "app: hosted", "app: far") +
		server("friend-1", "friend", 1) + server("friend-2", "friend", 2) + server("stranger-1", "stranger", 1) + server("stranger-2", "stranger", 2))
	other.apply(server("foreign-1", "friend", 1) + server("foreign-2", "friend", 2))
	w.apply(strings.NewReplacer("PORTS", tablePorts, "EXTERNAL", w.each(func(f family) string { return strconv.Quote(f.outer(externalNode)) })).Replace(tableServices))
	w.must(w.kube("", "-n", w.name, "patch", "service", "balanced", "--subresource=status", "--type=merge", "-p",
		`{"status": {"loadBalancer": {"ingress": [`+w.each(func(f family) string { return fmt.Sprintf(`{"ip": %q}`, f.outer(balancedNode)) })+`]}}}`))
	for _, f := range w.families {
		for _, n := range []int{externalNode, balancedNode} {
			w.must(w.run(control, "", "ip", "route", "add", f.outer(n), "via", f.nodeIP(n)))
			t.Cleanup(func() { w.must(w.run(control, "", "ip", "route", "del", f.outer(n))) })
		}
	}
	w.ready()
	other.ready()
	w.find(other)
	return w
}

// hosted returns a pod on the host network, which answers datagrams from the addresses of its node.
func (w *table) hosted(node int) string {
	at := w.each(func(f family) string { return f.nodeIP(node) })
	return strings.ReplaceAll(hosted(fmt.Sprint("hosted-", node), node), "--udp-port=18081", `--udp-port=18081, "--udp-listen-addresses=`+at+`"`)
}

// read reads a list of objects, with the arguments of kubectl that say which.
func (s space) read(list any, which ...string) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.must(s.kube("", append([]string{"get", "-o", "json"}, which...)...))), list); err != nil {
		s.t.Fatal(err)
	}
}

// find looks up who and what there is.
func (w *table) find(other space) {
	w.t.Helper()
	var services, resolvers corev1.ServiceList
	w.read(&services, "services", "-n", w.name)
	w.read(&resolvers, "services", "-n", "kube-system")
	for _, s := range append(services.Items, resolvers.Items...) {
		w.services[s.Name] = s
	}
	for n, name := range w.lab.machines() {
		p := party{name: name, node: n}
		for _, f := range w.families {
			ip := f.control()
			if n > 0 {
				ip = f.nodeIP(n)
			}
			p.ips = append(p.ips, netip.MustParseAddr(ip))
		}
		w.machines = append(w.machines, p)
		w.addClient(w.space, p)
	}
	var resolver corev1.PodList
	for _, s := range []space{w.space, other} {
		var pods corev1.PodList
		w.read(&pods, "pods", "-n", s.name)
		for _, p := range pods.Items {
			w.addClient(s, w.party(p))
		}
	}
	w.read(&resolver, "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns")
	w.findWays(w.party(resolver.Items[0]))
}

func (w *table) addClient(s space, p party) {
	w.networks[p.name] = s.network(p.name)
	w.clients = append(w.clients, p)
}

// party returns a pod, or the machine in whose network it is.
func (w *table) party(p corev1.Pod) party {
	out := party{name: p.Name, pod: policyapi.PodID{Namespace: p.Namespace, Name: p.Name}}
	for _, m := range w.machines {
		if m.name == p.Spec.NodeName {
			out.node, out.ips = m.node, m.ips
		}
	}
	if p.Spec.HostNetwork {
		out.pod = policyapi.PodID{}
		return out
	}
	out.ips = nil
	for _, ip := range p.Status.PodIPs {
		out.ips = append(out.ips, netip.MustParseAddr(ip.IP))
	}
	return out
}

// findWays lists the ways to servers.
func (w *table) findWays(resolver party) {
	var server, hosted party
	for _, c := range w.clients {
		switch c.name {
		case "server":
			server = c
		case "hosted-1":
			hosted = c
		}
	}
	w.dns = way{name: "dns", kind: clusterIP, service: "kube-dns", to: resolver}
	w.ways = []way{
		w.dns,
		{name: "pod", kind: direct, to: server},
		{name: "headless", kind: named, service: "headless", to: server},
		{name: "ClusterIP", kind: clusterIP, service: "cluster", to: server},
		{name: "ClusterIP with affinity", kind: clusterIP, service: "sticky", to: server},
		{name: "ClusterIP Local", kind: clusterIP, service: "internal", local: true, to: server},
		{name: "external IP", kind: externalIP, service: "external", node: externalNode, to: server},
		{name: "load balancer IP", kind: externalIP, service: "balanced", node: balancedNode, to: server},
		{name: "hostPort", kind: hostPort, node: server.node, to: server},
		{name: "ClusterIP without endpoints", kind: clusterIP, service: "empty"},
		{name: "address of a node", kind: direct, to: hosted},
		{name: "ClusterIP of a node", kind: clusterIP, service: "hosted", to: hosted},
	}
	for _, n := range []int{1, 2} {
		w.ways = append(w.ways,
			way{name: "NodePort of " + nodeName(n), kind: nodePort, service: "nodes", node: n, to: server},
			way{name: "NodePort Local of " + nodeName(n), kind: nodePort, service: "local", node: n, local: true, mirrors: w.Proxy == "iptables", to: server},
			way{name: "NodePort without endpoints of " + nodeName(n), kind: nodePort, service: "empty", node: n})
	}
}

// address returns what clients connect to, by one family and protocol.
func (w *table) address(way way, family int, protocol string) string {
	f, service := w.families[family], w.services[way.service]
	ip, port := "", map[string]string{"tcp": httpPort, "udp": udpPort}[protocol]
	for _, p := range service.Spec.Ports {
		if strings.EqualFold(string(p.Protocol), protocol) {
			if way.kind == nodePort {
				port = fmt.Sprint(p.NodePort)
			} else if way.kind != named {
				port = fmt.Sprint(p.Port)
			}
		}
	}
	switch way.kind {
	case direct, named:
		ip = way.to.ips[family].String()
		if way.to.pod.Name == "" {
			port = "1" + port // of a server in the network of its node
		}
	case clusterIP:
		ip = service.Spec.ClusterIPs[family]
	case externalIP:
		ip = f.outer(way.node)
	case nodePort:
		ip = f.nodeIP(way.node)
	case hostPort:
		ip, port = f.nodeIP(way.node), tableHostPort
	}
	return net.JoinHostPort(ip, port)
}
