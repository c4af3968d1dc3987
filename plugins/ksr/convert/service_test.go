package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"

	"github.com/sluice-net/sluice/tests/lab/samples"
)

// converted reads one object and returns its message, and all its problems.
func converted(t *testing.T, in string) (proto.Message, []string) {
	t.Helper()
	objs, problems := decodeText(strings.NewReader(in), "f")
	msgs, more := All(objs)
	if len(msgs) > 1 {
		t.Fatalf("%d messages", len(msgs))
	}
	if len(msgs) == 0 {
		return nil, samples.Texts(append(problems, more...))
	}
	return msgs[0], samples.Texts(append(problems, more...))
}

func TestToModelOfServices(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
		problems []string
	}{
		"as an API server serves it": {
			`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop, uid: x}, spec: {type: LoadBalancer, clusterIP: 10.96.0.7, clusterIPs: ["fd00::7", 10.96.0.7],
				selector: {b: "2", a: "1"}, sessionAffinity: ClientIP, ipFamilies: [IPv4, IPv6], externalIPs: [192.0.2.9], ports: [{name: http, port: 80, targetPort: web, nodePort: 30080},
				{name: dns, port: 53, protocol: UDP, targetPort: 5353}, {name: same, port: 9, targetPort: 9}]},
				status: {loadBalancer: {ingress: [{ip: 192.0.2.7, ipMode: VIP}, {ip: 192.0.2.8, ipMode: Proxy}, {hostname: x.example}]}}}`,
			`namespace: "shop" name: "web" selector: {key: "a" value: "1"} selector: {key: "b" value: "2"} addresses: "10.96.0.7" addresses: "fd00::7"
			 external_addresses: "192.0.2.7" external_addresses: "192.0.2.9"
			 ports: {name: "http" protocol: PROTOCOL_TCP port: 80 target_name: "web"} ports: {name: "dns" protocol: PROTOCOL_UDP port: 53 target_number: 5353}
			 ports: {name: "same" protocol: PROTOCOL_TCP port: 9 target_number: 9}`, nil,
		},
		"as people write it": {
			`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {a: "1"}, ports: [{port: 80}], ipFamilies: [IPv6]}}`,
			`namespace: "default" name: "web" selector: {key: "a" value: "1"} ports: {protocol: PROTOCOL_TCP port: 80} without_ipv4: true`, nil,
		},
		"headless": {
			`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: None, externalIPs: [192.0.2.9]}}`,
			`namespace: "default" name: "web" headless: true`, nil,
		},
		"ExternalName": {
			`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: ExternalName, externalName: db.example.com, selector: {a: b}}}`,
			`namespace: "default" name: "web" external_name: "db.example.com"`, nil,
		},
		"with mistakes": {
			`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: "10.96.0", type: ClusterIP, ports: [{port: 0}, {port: 1, protocol: ICMP}, {port: 2, targetPort: Web_1}, {port: 3, targetPort: 70000}, {port: 4, targetPort: -1}, {port: 5}]},
				status: {loadBalancer: {ingress: [{ip: "no"}]}}}`,
			`namespace: "default" name: "web" ports: {protocol: PROTOCOL_TCP port: 5}`,
			[]string{
				`f: Service default/web: spec.clusterIP: "10.96.0" is not an address of a pod or node, it is left out`,
				`f: Service default/web: status.loadBalancer.ingress[0].ip: "no" is not an address of a pod or node, it is left out`,
				`f: Service default/web: spec.ports[0].port: 0 is not a port: want 1 to 65535`,
				`f: Service default/web: spec.ports[1].protocol: "ICMP" is not a protocol: want TCP, UDP or SCTP`,
				`f: Service default/web: spec.ports[2].targetPort: "Web_1" is not a port name: want at most 15 lower-case letters, digits and '-', with at least one letter`,
				`f: Service default/web: spec.ports[3].targetPort: 70000 is not a port: want 1 to 65535, or a name`,
				`f: Service default/web: spec.ports[4].targetPort: -1 is not a port: want 1 to 65535, or a name`,
			},
		},
		"with a selector that selects nothing": {
			`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {"a b": c}}}`, "",
			[]string{`f: Service default/web: spec.selector: "a b=c" is not a label: the service is left out`},
		},
		"with a name that nothing has": {
			`{apiVersion: v1, kind: Service, metadata: {name: "../x"}}`, "",
			[]string{`f: Service default/../x: metadata.name: "../x" is not a name: want lower-case letters, digits, '-' and '.', letters or digits at both ends, at most 253`},
		},
		"of somebody else": {`{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: web}, spec: {template: {}}}`, "", nil},
	} {
		t.Run(name, func(t *testing.T) { checkConverted(t, c.in, c.want, &model.Service{}, c.problems) })
	}
}

func TestToModelOfEndpointSlices(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
		problems []string
	}{
		"by hand": {
			`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: db-1, labels: {kubernetes.io/service-name: db}}, addressType: IPv4,
				endpoints: [{addresses: [192.0.2.9, 192.0.2.3], conditions: {ready: false}, newField: 1}, {addresses: [192.0.2.3]}],
				ports: [{name: sql, port: 5432, protocol: TCP}, {name: any}, {port: 53, protocol: UDP}]}`,
			`namespace: "default" name: "db-1" service: "db" subsets: {addresses: "192.0.2.3" addresses: "192.0.2.9"
			 ports: {name: "sql" protocol: PROTOCOL_TCP port: 5432} ports: {protocol: PROTOCOL_UDP port: 53}}`, nil,
		},
		"of a selector": {
			`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-x, labels: {kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}, addressType: IPv4}`,
			`namespace: "default" name: "web-x" service: "web" from_selector: true`, nil,
		},
		"of names": {
			`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: x, labels: {kubernetes.io/service-name: x}}, addressType: FQDN, endpoints: [{addresses: [a.example]}], ports: [{port: 1}]}`,
			`namespace: "default" name: "x" service: "x"`, nil,
		},
		"with mistakes": {
			`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: x, labels: {kubernetes.io/service-name: a_b}}, addressType: IPv4, endpoints: [{addresses: [x, 192.0.2.1]}], ports: [{port: 1}, {port: 0}, {port: 2, protocol: X}]}`,
			`namespace: "default" name: "x" subsets: {addresses: "192.0.2.1" ports: {protocol: PROTOCOL_TCP port: 1}}`,
			[]string{
				`f: EndpointSlice default/x: metadata.labels[kubernetes.io/service-name]: "a_b" is not a name: want lower-case letters, digits, '-' and '.', letters or digits at both ends, at most 253`,
				`f: EndpointSlice default/x: endpoints[0].addresses[0]: "x" is not an address of a pod or node, it is left out`,
				`f: EndpointSlice default/x: ports[1].port: 0 is not a port: want 1 to 65535`,
				`f: EndpointSlice default/x: ports[2].protocol: "X" is not a protocol: want TCP, UDP or SCTP`,
			},
		},
		"Endpoints": {
			`{apiVersion: v1, kind: Endpoints, metadata: {name: db}, subsets: [{addresses: [{ip: 192.0.2.2}], notReadyAddresses: [{ip: 192.0.2.1}, {ip: "1"}], ports: [{name: sql, port: 5432}]},
				{addresses: [{ip: "fd00::1"}], ports: [{port: 1, protocol: SCTP}]}, {addresses: [{ip: 192.0.2.5}]}]}`,
			`namespace: "default" name: "db" service: "db" subsets: {addresses: "192.0.2.1" addresses: "192.0.2.2" ports: {name: "sql" protocol: PROTOCOL_TCP port: 5432}}
			 subsets: {addresses: "fd00::1" ports: {protocol: PROTOCOL_SCTP port: 1}} from_selector: true`,
			[]string{`f: EndpointSlice default/db: subsets[0].notReadyAddresses[1].ip: "1" is not an address of a pod or node, it is left out`},
		},
		"of an old version": {`{apiVersion: discovery.k8s.io/v1beta1, kind: EndpointSlice, metadata: {name: x}}`, "", nil},
	} {
		t.Run(name, func(t *testing.T) { checkConverted(t, c.in, c.want, &model.EndpointSlice{}, c.problems) })
	}
}

// checkConverted compares the message of an object with one in text, none for the empty text.
func checkConverted(t *testing.T, in, want string, into proto.Message, wantProblems []string) {
	t.Helper()
	got, problems := converted(t, in)
	if diff := cmp.Diff(wantProblems, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	switch {
	case want == "" && got != nil:
		t.Errorf("the message is %s, want none", prototext.Format(got))
	case want != "":
		if err := prototext.Unmarshal([]byte(want), into); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, into) {
			t.Errorf("the message is\n%s, want\n%s", prototext.Format(got), prototext.Format(into))
		}
	}
}

// TestToModelOfLargestEndpointSlice: and a larger one is rejected with its name.
func TestToModelOfLargestEndpointSlice(t *testing.T) {
	slice := func(n int) string {
		var b strings.Builder
		b.WriteString("{apiVersion: v1, kind: Endpoints, metadata: {name: x}, subsets: [{ports: [{port: 1}], addresses: [")
		for i := range n {
			fmt.Fprintf(&b, `{ip: "fd00::%x:%x"},`, i>>16, i&0xffff)
		}
		return b.String() + "]}]}"
	}
	if msg, problems := converted(t, slice(50_000)); msg == nil || len(problems) > 0 {
		t.Errorf("50 000 addresses: %v", problems)
	}
	if msg, problems := converted(t, slice(140_000)); msg != nil || len(problems) != 1 || !strings.Contains(problems[0], "EndpointSlice default/x: needs ") {
		t.Errorf("140 000 addresses: %v", problems)
	}
}
