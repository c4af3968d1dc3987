package services

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
)

// pods of every sort that a selector can meet.
const pods = `
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: a, labels: {app: web, v: "1"}}, spec: {containers: [{ports: [{name: http, containerPort: 8080}, {name: dns, containerPort: 5353, protocol: UDP}]}]}, status: {phase: Running, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: b, labels: {app: web}}, spec: {containers: [{ports: [{name: http, containerPort: 8081}]}, {ports: [{name: http, containerPort: 9081}]}]}, status: {phase: Running, podIP: 10.0.0.2}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: ends, labels: {app: web}, deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {phase: Running, podIP: 10.0.0.3}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: finished, labels: {app: web}}, status: {phase: Succeeded, podIP: 10.0.0.4}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: host, labels: {app: web}}, spec: {hostNetwork: true}, status: {phase: Running, podIP: 192.168.0.1, hostIP: 192.168.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: waits, labels: {app: late}}, status: {phase: Pending}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: other, name: a, labels: {app: web}}, status: {phase: Running, podIP: 10.0.0.5}}
---
`

// clusterOf returns what manifests describe.
func clusterOf(t testing.TB, text string) (c Cluster) {
	t.Helper()
	objs, problems := manifests.Decode(strings.NewReader(text), "f")
	msgs, more := convert.All(objs)
	if len(problems)+len(more) > 0 {
		t.Fatal(problems, more)
	}
	for _, m := range msgs {
		switch m := m.(type) {
		case *model.Service:
			c.Services = append(c.Services, m)
		case *model.EndpointSlice:
			c.Slices = append(c.Slices, m)
		case *model.Pod:
			c.Pods = append(c.Pods, m)
		}
	}
	return c
}

func service(spec string) string {
	return "{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: s}, spec: {" + spec + "}}\n---\n"
}

func slice(name, labels, rest string) string {
	return "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: shop, name: " + name + ", labels: {kubernetes.io/service-name: s" + labels + "}}, addressType: IPv4, " + rest + "}\n---\n"
}

func texts(list []Endpoint) string {
	var out []string
	for _, e := range list {
		text := netip.AddrPortFrom(e.Address, e.Port).String()
		if e.Pod != nil {
			text = e.Pod.GetName() + " " + text
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestEndpointsAreThoseOfKubernetes(t *testing.T) {
	const web = "selector: {app: web}, "
	for name, c := range map[string]struct {
		objects, port, want, note string
	}{
		"number":               {service(web + "ports: [{port: 80, targetPort: 8000}]"), "80", "a 10.0.0.1:8000, a [fd00::1]:8000, b 10.0.0.2:8000, ends 10.0.0.3:8000, host 192.168.0.1:8000", ""},
		"no target port":       {service(web + "ports: [{port: 80}], ipFamilies: [IPv6]"), "80", "a [fd00::1]:80", ""},
		"a name of each pod":   {service(web + "ports: [{port: 80, targetPort: http}]"), "80", "a 10.0.0.1:8080, a [fd00::1]:8080, b 10.0.0.2:8081, b 10.0.0.2:9081", ""},
		"a name of a protocol": {service(web + "ports: [{port: 53, targetPort: dns, protocol: UDP}]"), "53", "a 10.0.0.1:5353, a [fd00::1]:5353", ""},
		"a name of none":       {service(web + "ports: [{port: 53, targetPort: dns}]"), "53", "", `no pod that it selects has a tcp port that is named "dns"`},
		"all labels":           {service("selector: {app: web, v: '1'}, ports: [{port: 1}], ipFamilies: [IPv4]"), "1", "a 10.0.0.1:1", ""},
		"nobody":               {service("selector: {app: none}, ports: [{port: 1}]"), "1", "", "no pod of namespace shop that has not finished has the labels app=none"},
		"nobody yet":           {service("selector: {app: late}, ports: [{port: 1}]"), "1", "", "no pod that it selects has an address of its family yet"},
		"headless, number":     {service(web + "clusterIP: None, ipFamilies: [IPv6], ports: [{name: http, port: 80, targetPort: http}]"), "80", "a [fd00::1]:80", "it is headless: nothing translates port 80 to its target port"},
		"headless, name":       {service(web + "clusterIP: None, ipFamilies: [IPv6], ports: [{name: http, port: 80, targetPort: http}]"), "http", "a [fd00::1]:8080", ""},
		"no selector":          {service("ports: [{port: 1}]"), "1", "", "it has no selector, and no EndpointSlice gives it an address for this port"},
		"slices": {service("ports: [{name: sql, port: 1, targetPort: 7}]") +
			slice("one", "", "endpoints: [{addresses: [192.0.2.2]}, {addresses: [192.0.2.1]}], ports: [{name: sql, port: 5432}, {name: other, port: 9}]") +
			slice("two", "", "endpoints: [{addresses: [192.0.2.2]}, {addresses: [192.0.2.3]}], ports: [{name: sql, port: 5432}, {name: sql, port: 5433, protocol: UDP}]") +
			"{apiVersion: v1, kind: Endpoints, metadata: {namespace: shop, name: s}, subsets: [{addresses: [{ip: 192.0.2.4}], ports: [{name: sql, port: 5432}]}]}",
			"sql", "192.0.2.1:5432, 192.0.2.2:5432, 192.0.2.3:5432, 192.0.2.4:5432", ""},
		"slices and a selector": {service("selector: {app: web, v: '1'}, ipFamilies: [IPv4], ports: [{port: 1}]") +
			slice("theirs", ", endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io", "endpoints: [{addresses: [192.0.2.9]}], ports: [{port: 1}]") +
			slice("mine", ", endpointslice.kubernetes.io/managed-by: me", "endpoints: [{addresses: [192.0.2.1]}, {addresses: [10.0.0.1]}], ports: [{port: 1}]") +
			"{apiVersion: v1, kind: Endpoints, metadata: {namespace: shop, name: s}, subsets: [{addresses: [{ip: 192.0.2.4}], ports: [{port: 1}]}]}",
			"1", "a 10.0.0.1:1, 192.0.2.1:1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := clusterOf(t, pods+c.objects)
			targets, err := cluster.Find("shop", "s", c.port, api.AnyProtocol)
			if err != nil || len(targets) != 1 {
				t.Fatal(targets, err)
			}
			got := cluster.Endpoints(targets[0])
			if diff := cmp.Diff(c.want, texts(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if note := cluster.Note(targets[0], got); note != c.note {
				t.Errorf("the note is %q, want %q", note, c.note)
			}
		})
	}
}

func TestPortsOfAddress(t *testing.T) {
	c := clusterOf(t, `{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: s}, spec: {clusterIPs: [10.96.0.1, "fd00:96::1"], externalIPs: [192.0.2.1], ports: [{port: 53, name: dns, protocol: UDP}, {port: 53, name: dns-tcp}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: other}, spec: {clusterIPs: [10.96.0.2], externalIPs: [192.0.2.1], ports: [{port: 53}, {port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: dns}, spec: {type: ExternalName, externalName: "dns.example"}}
`)
	for _, q := range []struct {
		addr, port string
		p          api.Protocol
		want       string
	}{
		{"10.96.0.1", "53", api.UDP, "shop/s dns (53/udp)"},
		{"fd00:96::1", "dns-tcp", api.TCP, "shop/s dns-tcp (53/tcp)"},
		{"10.96.0.1", "80", api.TCP, "10.96.0.1 is the address of service shop/s, which has no port 80/tcp; it has dns (53/udp), dns-tcp (53/tcp); nothing translates other packets"},
		{"10.96.0.2", "", api.ICMP, "10.96.0.2 is the address of service shop/other, which has no port of icmp; it has 53/tcp, 80/tcp; nothing translates other packets"},
		{"192.0.2.1", "53", api.TCP, "shop/s dns-tcp (53/tcp), shop/other 53/tcp"},
		{"192.0.2.1", "81", api.TCP, ""}, // nothing translates it, and it may be anything
		{"192.0.2.2", "53", api.TCP, ""},
	} {
		targets, err := c.At(netip.MustParseAddr(q.addr), q.port, q.p)
		var got []string
		for _, target := range targets {
			got = append(got, NameOf(target.Service)+" "+PortText(target.Port))
		}
		if text := strings.Join(got, ", "); err == nil && text != q.want || err != nil && err.Error() != q.want {
			t.Errorf("%v: %q, %v", q, text, err)
		}
	}
}

func TestClusterErrorsNameService(t *testing.T) {
	c := clusterOf(t, service("ports: [{port: 80, name: http}, {port: 53, protocol: UDP}]")+
		"{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: x}, spec: {type: ExternalName, externalName: db.example}}")
	for _, q := range []struct {
		ns, name, port string
		p              api.Protocol
		want           string
	}{
		{"shop", "s", "81", api.AnyProtocol, "service shop/s has no port 81; it has http (80/tcp), 53/udp"},
		{"shop", "s", "80", api.UDP, "service shop/s has no port 80/udp; it has http (80/tcp), 53/udp"},
		{"shop", "s", "65616", api.AnyProtocol, "service shop/s has no port 65616;"},
		{"shop", "s", "", api.ICMP, "service shop/s has no icmp: services have ports of tcp, udp and sctp; ask about its pods"},
		{"shop", "x", "80", api.TCP, `service shop/x is of type ExternalName: it is another name for "db.example", and policy sees only addresses`},
		{"shop", "y", "80", api.TCP, "service shop/y is not known; namespace shop has s, x"},
		{"shop", "\x1b[31m", "80", api.TCP, `service shop/"\x1b[31m" is not known`},
		{"none", strings.Repeat("y", 300), "80", api.TCP, "(300 bytes) is not known, and neither is any other of namespace none"},
		{"shop", "s", "\x1b]0;x", api.TCP, `service shop/s has no port "\x1b]0;x"/tcp`},
	} {
		if out, err := c.Find(q.ns, q.name, q.port, q.p); err == nil || !strings.Contains(err.Error(), q.want) {
			t.Errorf("%v: %v, %v", q, out, err)
		}
	}
}

func TestParseName(t *testing.T) {
	for text, want := range map[string]string{
		"svc/shop/web": "shop web", "svc/shop/": "shop ", "svc//web": " web", "svc/a/b/c": "a b/c",
		"svc/web-0": "", "svc/app=web": "", "svc/example.org/app=web": "", "svc/*": "", "shop/web": "", "": "", "svc/": "",
	} {
		ns, name, ok := ParseName(text)
		if got := ns + " " + name; ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t", text, got, ok)
		}
	}
}

// TestClusterIgnoresInvalidPorts: other writers may write to the store.
func TestClusterIgnoresInvalidPorts(t *testing.T) {
	s := &model.Service{Namespace: "shop", Name: "s", Selector: []*model.Label{{Key: "app", Value: "web"}}, Addresses: []string{"x", ""}, Ports: []*model.Service_Port{
		{Port: 70000}, {Port: 80, Protocol: 99}, {Port: 80, Name: "a", Target: &model.Service_Port_TargetNumber{TargetNumber: 1 << 20}}, {Port: 0}, nil,
	}}
	c := clusterOf(t, pods)
	c.Services = []*model.Service{nil, s}
	c.Pods = append(c.Pods, nil, &model.Pod{Namespace: "shop", Name: "z", Labels: s.Selector, Ips: []string{"no", ""}})
	c.Slices = []*model.EndpointSlice{nil, {Namespace: "shop", Service: "s", Subsets: []*model.EndpointSlice_Subset{nil, {Addresses: []string{"no"}, Ports: []*model.EndpointSlice_Port{nil, {Name: "a", Port: 1 << 30}, {Name: "a", Port: 7}}}}}}
	targets, err := c.Find("shop", "s", "80", api.AnyProtocol)
	if err != nil || len(targets) != 1 {
		t.Fatal(targets, err)
	}
	if got := c.Endpoints(targets[0]); len(got) != 0 {
		t.Errorf("endpoints are %s", texts(got))
	}
	if _, err := c.Find("shop", "s", "4464", api.AnyProtocol); err == nil { // 70000 as a number of 16 bits
		t.Error("a port beyond the last is found")
	}
}

// BenchmarkServices measures one query among 1 000 services with 100 000 endpoints.
func BenchmarkServices(b *testing.B) {
	var c Cluster
	for i := range 1000 {
		app := []*model.Label{{Key: "app", Value: fmt.Sprint(i)}}
		c.Services = append(c.Services, &model.Service{Namespace: "shop", Name: fmt.Sprint("s", i), Selector: app, Addresses: []string{fmt.Sprintf("10.96.%d.%d", i>>8, i&255)}, Ports: []*model.Service_Port{{Port: 80}}})
		for j := range 100 {
			c.Pods = append(c.Pods, &model.Pod{Namespace: "shop", Name: fmt.Sprint(i, "-", j), Labels: app, Ips: []string{fmt.Sprintf("10.%d.%d.%d", j, i>>8, i&255)}})
		}
	}
	for b.Loop() {
		targets, err := c.At(netip.MustParseAddr("10.96.3.231"), "80", api.TCP)
		if err != nil || len(targets) != 1 || len(c.Endpoints(targets[0])) != 100 {
			b.Fatal(targets, err)
		}
	}
}
