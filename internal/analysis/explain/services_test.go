package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// aService draws a service of the pods of a cluster: by the labels of one of them, or by none.
func aService(s cluster.State, r cluster.Rand, i int) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespaces[0].Name, Name: fmt.Sprint("s", i)}}
	svc.Spec.ClusterIP = fmt.Sprintf("10.96.0.%d", i+1)
	if len(s.Pods) > 0 {
		like := s.Pods[r.Below(len(s.Pods), "pod")]
		svc.Namespace, svc.Spec.Selector = like.Namespace, map[string]string{}
		for k, v := range like.Labels {
			if r.Below(2, "label") == 0 {
				svc.Spec.Selector[k] = v
			}
		}
	}
	port := corev1.ServicePort{Port: 80, Protocol: []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}[r.Below(2, "protocol")]}
	switch r.Below(3, "target") {
	case 0:
		port.TargetPort = intstr.FromInt32([]int32{53, 80, 443, 8080}[r.Below(4, "number")])
	case 1:
		port.TargetPort = intstr.FromString([]string{"http", "web", "dns", "metrics"}[r.Below(4, "name")])
		for _, p := range s.Pods { // most often one that there is
			for _, c := range p.Spec.Containers {
				if len(c.Ports) > 0 && c.Ports[0].Name != "" && r.Below(2, "named") == 0 {
					port.TargetPort = intstr.FromString(c.Ports[0].Name)
				}
			}
		}
	}
	svc.Spec.Ports = []corev1.ServicePort{port}
	return svc
}

// endpointsOf is how Kubernetes says what endpoints are, written out naively over its objects.
func endpointsOf(s cluster.State, svc *corev1.Service) (out []netip.AddrPort) {
	port := svc.Spec.Ports[0]
	for _, p := range s.Pods {
		if len(svc.Spec.Selector) == 0 || p.Namespace != svc.Namespace || !labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(p.Labels)) ||
			p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		var numbers []int32
		switch target := port.TargetPort; {
		case target.Type == intstr.String:
			for _, c := range append(slices.Clone(p.Spec.Containers), sidecars(p)...) {
				for _, q := range c.Ports {
					if q.Name == target.StrVal && q.Name != "" && (q.Protocol == port.Protocol || q.Protocol == "" && port.Protocol == corev1.ProtocolTCP) {
						numbers = append(numbers, q.ContainerPort)
					}
				}
			}
		case target.IntVal == 0:
			numbers = append(numbers, port.Port)
		default:
			numbers = append(numbers, target.IntVal)
		}
		ips := p.Status.PodIPs
		if len(ips) == 0 && p.Status.PodIP != "" {
			ips = []corev1.PodIP{{IP: p.Status.PodIP}}
		}
		for _, ip := range ips {
			for _, n := range numbers {
				if addr, err := netip.ParseAddr(ip.IP); err == nil {
					out = append(out, netip.AddrPortFrom(addr, uint16(n)))
				}
			}
		}
	}
	return sorted(out)
}

func sidecars(p *corev1.Pod) (out []corev1.Container) {
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out = append(out, c)
		}
	}
	return out
}

func sorted(list []netip.AddrPort) []netip.AddrPort {
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// TestServiceVerdictsAreThoseOfEndpoints: for random clusters, services and sources,
// endpoints are those of Kubernetes, and each verdict is that of the specification on the pair of
// pods.
func TestServiceVerdictsAreThoseOfEndpoints(t *testing.T) {
	flows, empty, denied := 0, 0, 0
	for seed := range uint64(150) {
		s, r := cluster.Random(seed, cluster.Small()), cluster.NewRand(seed)
		m := described(s)
		spec := oracle.New(m.state)
		for i := range 3 {
			svc := aService(s, r, i)
			msg, problems := convert.ToModel(svc)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			m.Services = append(m.Services, msg.(*model.Service))
		}
		for i, svc := range m.Services {
			all := endpointsOf(s, kubernetesService(svc))
			for _, q := range []view.Question{
				{Src: "192.0.2.1", Dst: "svc/" + svc.GetNamespace() + "/" + svc.GetName(), Port: "80"},
				{Src: sourceOf(s, r), Dst: fmt.Sprintf("10.96.0.%d", i+1), Port: "80", Protocol: api.Protocol(map[string]uint8{"TCP": 6, "UDP": 17}[string(kubernetesService(svc).Spec.Ports[0].Protocol)])},
			} {
				want := all
				if !strings.HasPrefix(q.Dst, "svc/") {
					want = slices.DeleteFunc(slices.Clone(all), func(a netip.AddrPort) bool { return a.Addr().Is6() })
				}
				got := answersOf(t, m, spec, q)
				if got == nil {
					continue // no common family
				}
				var reached []netip.AddrPort
				for _, e := range got {
					if e.Service == nil || e.Service.Endpoints != len(want) {
						t.Fatalf("seed %d, %+v: the service is %+v, want %d endpoints", seed, q, e.Service, len(want))
					}
					if len(want) == 0 {
						empty++
						if e.Allowed || len(got) > 1 || e.Service.Note == "" {
							t.Errorf("seed %d: a service without endpoints is %+v", seed, e)
						}
						continue
					}
					if flows++; !e.Allowed {
						denied++
					}
					reached = append(reached, netip.AddrPortFrom(e.Flow.Dst, e.Flow.DstPort))
					if v := spec.Verdict(e.Flow); e.Dst.Pod != e.Src.Pod && v.Allowed != e.Allowed {
						t.Errorf("seed %d, %s: allowed is %t, and %t of the pair", seed, e.Flow, e.Allowed, v.Allowed)
					}
				}
				same := slices.DeleteFunc(slices.Clone(want), func(a netip.AddrPort) bool { return a.Addr().Is4() != got[0].Src.Address.Is4() })
				if !strings.Contains(q.Src, "/") && !slices.Equal(sorted(reached), same) {
					t.Errorf("seed %d, %+v: reached %v, want %v", seed, q, reached, same)
				}
			}
		}
	}
	if flows < 300 || empty < 20 || denied < 50 {
		t.Errorf("%d flows of which %d are denied, and %d services without endpoints", flows, denied, empty)
	}
}

// answersOf returns nil where the source has no address of a family of the endpoints.
func answersOf(t *testing.T, m Manifests, spec *oracle.Oracle, q view.Question) (out []view.Explanation) {
	t.Helper()
	questions, err := m.Questions(q)
	if err != nil {
		if !strings.Contains(err.Error(), "no addresses of one family") {
			t.Fatal(err)
		}
		return nil
	}
	for _, q := range questions {
		out = append(out, Explanation(q, Specification{Oracle: spec}.Explain(q)))
	}
	return out
}

// sourceOf draws a pod with an address, or an address outside.
func sourceOf(s cluster.State, r cluster.Rand) string {
	for range 5 {
		if len(s.Pods) == 0 {
			break
		}
		p := s.Pods[r.Below(len(s.Pods), "source")]
		if p.Status.PodIP != "" && !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning {
			if _, err := netip.ParseAddr(p.Status.PodIP); err == nil {
				return p.Namespace + "/" + p.Name
			}
		}
	}
	return "192.0.2.1"
}

// kubernetesService returns the object of a message.
func kubernetesService(m *model.Service) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName()}}
	svc.Spec.Selector = LabelSet(m.GetSelector())
	p := m.GetPorts()[0]
	port := corev1.ServicePort{Port: int32(p.GetPort()), Protocol: protocol(p.GetProtocol())}
	switch target := p.GetTarget().(type) {
	case *model.Service_Port_TargetNumber:
		port.TargetPort = intstr.FromInt32(int32(target.TargetNumber))
	case *model.Service_Port_TargetName:
		port.TargetPort = intstr.FromString(target.TargetName)
	}
	svc.Spec.Ports = []corev1.ServicePort{port}
	return svc
}

// served has services in front of the pods of the demo, and of what is no pod.
const served = demo + `
---
{apiVersion: v1, kind: Service, metadata: {namespace: demo, name: all}, spec: {clusterIPs: [10.96.0.1], selector: {}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: demo, name: server}, spec: {clusterIPs: [10.96.0.2, "fd00:96::2"], selector: {app: server}, ports: [{name: web, port: 8000, targetPort: http}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: demo, name: host}, spec: {selector: {app: host}, ports: [{port: 22}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: demo, name: outside}, spec: {ports: [{port: 443, targetPort: 8443}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: demo, name: outside-1, labels: {kubernetes.io/service-name: outside}}, addressType: IPv4,
 endpoints: [{addresses: [203.0.113.7]}, {addresses: [10.2.0.1]}, {addresses: [192.168.0.2]}], ports: [{port: 8443}]}
---
{apiVersion: v1, kind: Service, metadata: {namespace: demo, name: late}, spec: {selector: {app: nobody}, ports: [{port: 80}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: stranger, namespace: demo}, spec: {podSelector: {matchLabels: {app: stranger}}, egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24}}]}]}}
`

func TestQuestionsAboutServices(t *testing.T) {
	m := manifestsOf(t, served)
	for _, c := range []struct {
		src, dst, port string
		want           string // destination, address and verdict of each endpoint
	}{
		{"demo/friend", "svc/demo/server", "web", "demo/server 10.2.0.1:80 true"},
		{"demo/stranger", "svc/demo/server", "8000", "demo/server 10.2.0.1:80 false"},
		{"demo/friend", "10.96.0.2", "8000", "demo/server 10.2.0.1:80 true"},
		{"2001:db8::1", "fd00:96::2", "web", "demo/server [fd00:2::1]:80 false"},
		{"demo/friend", "svc/demo/host", "22", "demo/host 192.168.0.2:22 true"},
		{"demo/stranger", "svc/demo/outside", "443", "demo/server 10.2.0.1:8443 false, 192.168.0.2 192.168.0.2:8443 true, 203.0.113.7 203.0.113.7:8443 true"},
		{"demo/waits", "svc/demo/server", "web", "demo/server 10.2.0.1:80 true"},
		{"demo/role=client", "svc/demo/server", "web", "demo/server 10.2.0.1:80 true, demo/server 10.2.0.1:80 false"},
		{"demo/role=client", "svc/demo/late", "80", "service demo/late none false"},
		{"demo/friend", "svc/demo/all", "80", "service demo/all none false"},
		{"demo/server", "svc/demo/server", "web", "demo/server 10.2.0.1:80 true, demo/server [fd00:2::1]:80 true"},
	} {
		q := view.Question{Src: c.src, Dst: c.dst, Port: c.port, Protocol: api.TCP}
		answers, err := m.Explain(t.Context(), q)
		if err != nil {
			t.Errorf("%+v: %v", q, err)
			continue
		}
		var got []string
		for _, e := range answers {
			at := netip.AddrPortFrom(e.Dst.Address, e.Flow.DstPort).String()
			if e.Service.Endpoints == 0 {
				at = "none"
			}
			got = append(got, fmt.Sprint(e.Dst.Name, " ", at, " ", e.Allowed))
			if Disagrees(e) {
				t.Errorf("%+v: %+v", q, e.Renderers)
			}
		}
		if diff := cmp.Diff(c.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", q, diff)
		}
	}
	for want, q := range map[string]view.Question{
		"source: service demo/server sends nothing: name pods, as in demo/app=web":           {Src: "svc/demo/server", Dst: "demo/server", Port: "80", Protocol: api.TCP},
		"destination: 10.96.0.2 is the address of service demo/server, which has no port 80": {Src: "demo/friend", Dst: "10.96.0.2", Port: "80", Protocol: api.TCP},
		"source and destination have no addresses of one family":                             {Src: "demo/friend", Dst: "fd00:96::2", Port: "8000", Protocol: api.TCP},
	} {
		if got, err := m.Questions(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v", q, got, err)
		}
	}
}

// TestQuestionsRefusesServiceOfTooManyEndpoints before they are looked up among the pods.
func TestQuestionsRefusesServiceOfTooManyEndpoints(t *testing.T) {
	var c Cluster
	slice := &model.EndpointSlice{Namespace: "a", Name: "x", Service: "s", Subsets: []*model.EndpointSlice_Subset{{Ports: []*model.EndpointSlice_Port{{Port: 1}}}}}
	for i := range 100_000 {
		slice.Subsets[0].Addresses = append(slice.Subsets[0].Addresses, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String())
		c.Pods = append(c.Pods, &model.Pod{Namespace: "b", Name: fmt.Sprint(i)})
	}
	c.Slices = []*model.EndpointSlice{slice}
	c.Services = []*model.Service{{Namespace: "a", Name: "s", Ports: []*model.Service_Port{{Port: 1}}}}
	_, err := c.Questions(view.Question{Src: "192.0.2.1", Dst: "svc/a/s", Port: "1"})
	if err == nil || !strings.Contains(err.Error(), "more than 200 flows: name fewer pods, for example 192.0.2.1 and 10.0.0.0") {
		t.Errorf("the error is %v", err)
	}
	if _, err := c.Questions(view.Question{Src: "fd00::1", Dst: "svc/a/s", Port: "1"}); err == nil || !strings.Contains(err.Error(), "no addresses of one family") {
		t.Errorf("the error is %v", err)
	}
}
