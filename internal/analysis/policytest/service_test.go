package policytest

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// front is services before the pods of miniature, and what is no pod.
const front = `
steps:
  - name: with services
    apply:
      - {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIPs: [10.96.0.1, "fd00:96::1"], selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}}
      - {apiVersion: v1, kind: Service, metadata: {name: db, namespace: shop}, spec: {clusterIP: 10.96.0.2, selector: {app: db}, ports: [{name: sql, port: 1, targetPort: sql}, {port: 53, protocol: UDP, name: dns}]}}
      - {apiVersion: v1, kind: Service, metadata: {name: none, namespace: shop}, spec: {selector: {app: none}, ports: [{port: 80}]}}
      - {apiVersion: v1, kind: Service, metadata: {name: agent, namespace: infra}, spec: {selector: {app: agent}, ports: [{port: 80}]}}
      - {apiVersion: v1, kind: Service, metadata: {name: half, namespace: infra}, spec: {ports: [{port: 80}]}}
      - {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: half, namespace: infra, labels: {kubernetes.io/service-name: half}}, addressType: IPv4,
         endpoints: [{addresses: [10.0.0.2]}, {addresses: [203.0.113.9]}], ports: [{port: 5432}]}
`

// asked returns what subjects were asked in the last step, and what became of it.
func askedOf(t *testing.T, probes string) (asked []string, report Report, err error) {
	t.Helper()
	f := parseOne(t, header+miniature+front+"    probes: ["+probes+"]\n")
	s := newRecorder("r", func(q Question) bool {
		asked = append(asked, q.Src.Name+" -> "+q.Dst.Name+" "+q.Flow.String())
		return true
	})
	report, err = Run(t.Context(), f, []Subject{s, NewOracle()}, Options{})
	return slices.Compact(asked[min(1, len(asked)):]), report, err
}

func TestProbesOfServicesAskAboutEndpoints(t *testing.T) {
	for probe, want := range map[string]string{
		"{from: shop/db-0, to: svc/shop/web:http, expect: allow}":          "shop/db-0 -> shop/web-0 (svc/shop/web:80) 10.0.0.2:49152 -> 10.0.0.1:8080/tcp",
		"{from: internet, to: svc/shop/db:1, expect: deny}":                "internet -> shop/db-0 (svc/shop/db:1) 198.51.100.7:49152 -> 10.0.0.2:5432/tcp",
		"{from: internet, to: svc/shop/db:53/UDP, expect: deny}":           "internet -> shop/db-0 (svc/shop/db:53) 198.51.100.7:49152 -> 10.0.0.2:53/udp",
		"{from: internet, to: 10.96.0.2, port: 1, expect: deny}":           "internet -> shop/db-0 (svc/shop/db:1) 198.51.100.7:49152 -> 10.0.0.2:5432/tcp",
		"{from: shop/web-0, to: svc/infra/agent:80, expect: allow}":        "shop/web-0 -> infra/agent-0 (svc/infra/agent:80) 10.0.0.1:49152 -> 192.168.0.1:80/tcp",
		"{from: shop/web-0, to: svc/infra/half:80, expect: allow}":         "shop/web-0 -> shop/db-0 (svc/infra/half:80) 10.0.0.1:49152 -> 10.0.0.2:5432/tcp; shop/web-0 -> 203.0.113.9 (svc/infra/half:80) 10.0.0.1:49152 -> 203.0.113.9:5432/tcp",
		"{from: infra/six-0, to: svc/shop/web:80, expect: allow}":          "infra/six-0 -> shop/web-0 (svc/shop/web:80) [fd00::6]:49152 -> [fd00::1]:8080/tcp",
		"{from: infra/six-0, to: 'fd00:96::1', port: http, expect: allow}": "infra/six-0 -> shop/web-0 (svc/shop/web:80) [fd00::6]:49152 -> [fd00::1]:8080/tcp",
		// A pod of the service is left out of its own endpoints.
		"{from: ['shop/app=web', shop/db-0], to: svc/shop/web:80, expect: allow}": "shop/db-0 -> shop/web-0 (svc/shop/web:80) 10.0.0.2:49152 -> 10.0.0.1:8080/tcp",
		// Other destinations than services have the port of the probe.
		"{from: internet, to: [svc/shop/db:sql, shop/db-0], port: 9, expect: deny}": "internet -> shop/db-0 (svc/shop/db:1) 198.51.100.7:49152 -> 10.0.0.2:5432/tcp; internet -> shop/db-0 198.51.100.7:49152 -> 10.0.0.2:9/tcp",
	} {
		got, report, err := askedOf(t, probe)
		if text := strings.Join(got, "; "); text != want || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", probe, err, cmp.Diff(want, text))
		}
		if report.Subjects[1].Mismatches > 0 {
			t.Errorf("%s: the specification says something else: %+v", probe, report.Mismatches)
		}
	}
}

func TestProbesOfServicesThatLeadNowhere(t *testing.T) {
	for probe, want := range map[string]string{
		"{from: internet, to: svc/shop/none:80, expect: deny}":     "svc/shop/none:80 no flow: the service has no endpoints: no pod of namespace shop that has not finished has the labels app=none",
		"{from: infra/six-0, to: svc/infra/half:80, expect: deny}": "svc/infra/half:80 no flow: no common address family: infra/six-0 has IPv6, and no endpoint has it",
		"{from: internet, to: svc/shop/nope:80, expect: deny}":     `t.yaml: with services: steps[0].probes[0].to: "svc/shop/nope:80": service shop/nope is not known; namespace shop has db, none, web`,
		"{from: internet, to: svc/shop/db:2, expect: deny}":        "service shop/db has no port 2; it has sql (1/tcp), dns (53/udp)",
		"{from: internet, to: 10.96.0.2, port: 2, expect: deny}":   "10.96.0.2 is the address of service shop/db, which has no port 2/tcp",
		"{from: internet, to: svc/infra/agent:80, expect: deny}":   "has no pod at either end: internet and infra/agent-0 (svc/infra/agent:80) are outside",
		"{from: shop/web-0, to: svc/shop/web:80, expect: deny}":    "asks nothing: from and to select the same pod only",
	} {
		_, report, err := askedOf(t, probe)
		got := ""
		for _, m := range report.Mismatches {
			got += m.To + " " + string(m.Got) + ": " + m.Why
		}
		if err != nil {
			got += err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", probe, got, want)
		}
	}
}

func TestServicesAreDestinationsOnly(t *testing.T) {
	for text, want := range map[string]string{
		"probes: [{from: svc/a/b:80, to: a/c, port: 80, expect: allow}]":                                            `probes[0].from: has the service "svc/a/b:80": a service is only the destination of a probe`,
		"probes: [{from: a/c, to: svc/a/b:80, port: 80, expect: allow}]":                                            "probes[0].port: must not be there: each service in to has its port",
		"probes: [{from: a/c, to: svc/a/b:80, protocol: UDP, expect: allow}]":                                       "probes[0].protocol: must not be there",
		"probes: [{from: a/c, to: [svc/a/b:80, a/d], expect: allow}]":                                               "probes[0].port: is missing",
		"probes: [{from: a/c, to: svc/a/b, expect: allow}]":                                                         `probes[0].to: "svc/a/b" is not a service: want for example svc/shop/web:80`,
		"probes: [{from: a/c, to: 'svc/a/b:80/ICMP', expect: allow}]":                                               `has the protocol "ICMP": want TCP, UDP or SCTP`,
		"probes: [{from: a/c, to: 'svc/A/b:80', expect: allow}]":                                                    `"svc/A/b:80" is not a service`,
		"probes: [{from: a/c, to: 'svc/a/b:80:90', expect: allow}]":                                                 "is not a service",
		"matrix: {pods: ['svc/a/b:80'], ports: [80], allow: []}":                                                    "matrix.pods: has the service",
		"matrix: {ports: [80], allow: [{from: a/b, to: 'svc/a/b:80', ports: [80]}]}":                                "matrix.allow[0].to: has the service",
		"steps: [{delete: [{kind: Service, name: x}], probes: [{from: a/c, to: 'svc/a/b:80/TCP', expect: allow}]}]": "",
		"probes: [{from: a/c, to: 'svc/a/b:80/', expect: allow}]":                                                   `has the protocol ""`,
	} {
		_, err := Parse("t.yaml", []byte(header+text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
}

// TestServicesFollowTheirPods through the steps of a test, on the product and the specification.
func TestServicesFollowTheirPods(t *testing.T) {
	f := parseOne(t, header+miniature+front+`    probes:
      - {from: shop/web-0, to: svc/shop/db:sql, expect: allow}
      - {from: internet, to: svc/shop/db:sql, expect: deny}
  - name: another pod
    apply: [`+podLine("shop", "db-1", "db", "10.0.0.7")+`]
    probes: [{from: shop/web-0, to: svc/shop/db:53, expect: deny}]
  - name: another target
    apply: [{apiVersion: v1, kind: Service, metadata: {name: db, namespace: shop}, spec: {selector: {app: web}, ports: [{name: sql, port: 1, targetPort: 9}]}}]
    probes: [{from: internet, to: svc/shop/db:sql, expect: allow}]
  - name: none
    delete: [{kind: Service, namespace: shop, name: db}]
    probes: [{from: internet, to: 10.96.0.2, port: 1, expect: allow}, {from: shop/web-0, to: 10.96.0.2, port: 1, expect: allow}]
`)
	acl := NewFabric(slog.New(slog.DiscardHandler))
	defer func() {
		if err := acl.Close(); err != nil {
			t.Error(err)
		}
	}()
	report, err := Run(t.Context(), f, []Subject{NewOracle(), acl}, Options{})
	if len(report.Mismatches) > 0 || report.Steps != 5 {
		t.Errorf("%d steps, %v", report.Steps, report.Mismatches)
	}
	// Between two addresses outside no policy decides.
	if err == nil || !strings.Contains(err.Error(), "has no pod at either end: internet and 10.96.0.2 are outside") {
		t.Errorf("the error is %v", err)
	}
}
