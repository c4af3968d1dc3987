package policytest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
)

// expand returns the checks of the start of a file in words, and the problems.
func expand(t *testing.T, text string) ([]string, []string) {
	t.Helper()
	w, _ := miniWorld(t)
	body, _, _ := strings.Cut(miniature, "objects:")
	f := parseOne(t, header+body+text)
	x := &expansion{world: w, file: f, step: f.Start}
	var checks, problems []string
	for c := range x.checks() {
		line := fmt.Sprintf("%s %s>%s %s", c.expect, c.place().from(), c.place().to(), c.place().port())
		if c.noFlow != "" {
			line += " (" + c.noFlow + ")"
		}
		if c.position != "matrix" && c.position != "probes[0]" {
			line += " by " + c.position
		}
		checks = append(checks, line)
	}
	for _, p := range x.problems {
		problems = append(problems, p.Field+": "+p.Reason)
	}
	return checks, problems
}

func TestMatrixExpandsToEveryPairAndPort(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"what is listed is allowed and all else denied": {
			`matrix: {pods: [shop/*], externals: [internet], ports: [80/TCP, 53/UDP], allow: [{from: shop/web-0, to: shop/db-0, ports: [53/UDP]}]}`, `
deny shop/db-0>shop/web-0 80/TCP
deny shop/db-0>shop/web-0 53/UDP
deny shop/db-0>internet 80/TCP
deny shop/db-0>internet 53/UDP
deny shop/web-0>shop/db-0 80/TCP
allow shop/web-0>shop/db-0 53/UDP by matrix.allow[0]
deny shop/web-0>internet 80/TCP
deny shop/web-0>internet 53/UDP
deny internet>shop/db-0 80/TCP
deny internet>shop/db-0 53/UDP
deny internet>shop/web-0 80/TCP
deny internet>shop/web-0 53/UDP`},
		"pairs without a common family are left out": {
			`matrix: {pods: ["*/*"], externals: [], ports: [80/TCP]}`, `
deny infra/six-0 (fd00::6)>shop/web-0 (fd00::1) 80/TCP
deny shop/db-0>shop/web-0 80/TCP
deny shop/web-0>shop/db-0 80/TCP
deny shop/web-0 (fd00::1)>infra/six-0 (fd00::6) 80/TCP`},
		"two externals, and a pod with itself, are left out": {
			`matrix: {pods: [shop/db-0], externals: [internet, dual, half-pod], ports: [ICMP]}`, `
deny shop/db-0>internet ICMP
deny shop/db-0>dual ICMP
deny shop/db-0>half-pod ICMP
deny internet>shop/db-0 ICMP
deny dual>shop/db-0 ICMP
deny half-pod>shop/db-0 ICMP`},
		"without pods and externals all of them": {
			`matrix: {ports: [80/TCP], allow: [{from: "*/*", to: "*/*", ports: all}, {from: [internet, dual, half-pod], to: "*/*", ports: all}, {from: "*/*", to: [internet, dual, half-pod], ports: all}]}`, `
allow infra/six-0 (fd00::6)>shop/web-0 (fd00::1) 80/TCP by matrix.allow[0]
allow infra/six-0 (fd00::6)>dual (2001:db8::8) 80/TCP by matrix.allow[2]
allow shop/db-0>shop/web-0 80/TCP by matrix.allow[0]
allow shop/db-0>dual 80/TCP by matrix.allow[2]
allow shop/db-0>half-pod 80/TCP by matrix.allow[2]
allow shop/db-0>internet 80/TCP by matrix.allow[2]
allow shop/web-0>shop/db-0 80/TCP by matrix.allow[0]
allow shop/web-0>dual 80/TCP by matrix.allow[2]
allow shop/web-0>half-pod 80/TCP by matrix.allow[2]
allow shop/web-0>internet 80/TCP by matrix.allow[2]
allow shop/web-0 (fd00::1)>infra/six-0 (fd00::6) 80/TCP by matrix.allow[0]
allow shop/web-0 (fd00::1)>dual (2001:db8::8) 80/TCP by matrix.allow[2]
allow dual>shop/db-0 80/TCP by matrix.allow[1]
allow dual>shop/web-0 80/TCP by matrix.allow[1]
allow dual (2001:db8::8)>infra/six-0 (fd00::6) 80/TCP by matrix.allow[1]
allow dual (2001:db8::8)>shop/web-0 (fd00::1) 80/TCP by matrix.allow[1]
allow half-pod>shop/db-0 80/TCP by matrix.allow[1]
allow half-pod>shop/web-0 80/TCP by matrix.allow[1]
allow internet>shop/db-0 80/TCP by matrix.allow[1]
allow internet>shop/web-0 80/TCP by matrix.allow[1]`},
		"without ports those that pods declare and entries allow": {
			`matrix: {pods: [shop/db-0, shop/app=web], externals: [], allow: [{from: shop/web-0, to: shop/db-0, ports: [sql/TCP, 7/UDP]}]}`, `
deny shop/db-0>shop/web-0 5432/TCP
deny shop/db-0>shop/web-0 81/TCP
deny shop/db-0>shop/web-0 8080/TCP
deny shop/db-0>shop/web-0 53/UDP
deny shop/db-0>shop/web-0 9/TCP
deny shop/db-0>shop/web-0 7/UDP
allow shop/web-0>shop/db-0 5432/TCP by matrix.allow[0]
deny shop/web-0>shop/db-0 81/TCP
deny shop/web-0>shop/db-0 8080/TCP
deny shop/web-0>shop/db-0 53/UDP
deny shop/web-0>shop/db-0 9/TCP
allow shop/web-0>shop/db-0 7/UDP by matrix.allow[0]`},
		"a name is the number that it stands for at each destination": {
			`matrix: {pods: [shop/*], externals: [internet], ports: [http/TCP, 81/TCP], allow: [{from: internet, to: shop/*, ports: [http/TCP]}]}`, `
deny shop/db-0>shop/web-0 http=8080/TCP
deny shop/db-0>shop/web-0 81/TCP
deny shop/db-0>internet 81/TCP
deny shop/web-0>shop/db-0 http=81/TCP
deny shop/web-0>internet 81/TCP
allow internet>shop/db-0 http=81/TCP by matrix.allow[0]
allow internet>shop/web-0 http=8080/TCP by matrix.allow[0]
deny internet>shop/web-0 81/TCP`},
		"what an entry lists is asked outside of the matrix as well": {
			`matrix: {pods: [shop/db-0], externals: [], ports: [80/TCP], allow: [{from: internet, to: shop/db-0, ports: [443/TCP]}, {from: shop/web-0, to: shop/db-0, ports: all}]}`, `
allow internet>shop/db-0 443/TCP by matrix.allow[0]
allow shop/web-0>shop/db-0 80/TCP by matrix.allow[1]`},
		"of two entries for one flow the first is named": {
			`matrix: {pods: [shop/*], externals: [], ports: [80/TCP], allow: [{from: shop/*, to: shop/db-0, ports: all}, {from: shop/web-0, to: shop/*, ports: [80/TCP]}]}`, `
deny shop/db-0>shop/web-0 80/TCP
allow shop/web-0>shop/db-0 80/TCP by matrix.allow[0]`},
		"a pod in the host network is its node": {
			`matrix: {pods: [shop/db-0, infra/agent-0], externals: [internet], ports: [80/TCP]}`, `
deny shop/db-0>infra/agent-0 80/TCP
deny shop/db-0>internet 80/TCP
deny infra/agent-0>shop/db-0 80/TCP
deny internet>shop/db-0 80/TCP`},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := expand(t, tc.text)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if diff := cmp.Diff(strings.Split(strings.TrimSpace(tc.want), "\n"), got); diff != "" {
				t.Errorf("checks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProbesExpandToEveryCombination(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"pods and ports": {`probes: [{from: [internet, shop/web-0], to: [shop/db-0, 10.0.0.1], ports: [80, 81], expect: deny}]`, `
deny internet>shop/db-0 80/TCP
deny internet>shop/db-0 81/TCP
deny internet>10.0.0.1 80/TCP
deny internet>10.0.0.1 81/TCP
deny shop/web-0>shop/db-0 80/TCP
deny shop/web-0>shop/db-0 81/TCP
deny shop/web-0>10.0.0.1 80/TCP
deny shop/web-0>10.0.0.1 81/TCP`},
		"both families": {`probes: [{from: dual, to: shop/web-0, port: http, expect: allow}]`, `
allow dual>shop/web-0 http=8080/TCP
allow dual (2001:db8::8)>shop/web-0 (fd00::1) http=8080/TCP`},
		"the ICMP of each family": {`probes: [{from: dual, to: shop/web-0, protocol: ICMP, expect: allow}]`, `
allow dual>shop/web-0 ICMP
allow dual (2001:db8::8)>shop/web-0 (fd00::1) ICMP`},
		"no common family is a check that failed": {`probes: [{from: infra/six-0, to: [shop/db-0, shop/web-0], port: 80, expect: allow}]`, `
allow infra/six-0>shop/db-0 80/TCP (no common address family: infra/six-0 has IPv6 and shop/db-0 has IPv4)
allow infra/six-0 (fd00::6)>shop/web-0 (fd00::1) 80/TCP`},
		"a selection does not mean a pod with itself": {`probes: [{from: shop/*, to: shop/db-0, port: 80, expect: deny}]`, `
deny shop/web-0>shop/db-0 80/TCP`},
		"a pod that is named twice is meant": {`probes: [{from: shop/db-0, to: 10.0.0.2, port: 80, expect: allow}]`, `
allow shop/db-0>10.0.0.2 80/TCP`},
		"a pod that is selected twice is there once": {`probes: [{from: [app=web, shop/*], to: [shop/db-0, app=db], port: 80, expect: allow}]`, `
allow shop/web-0>shop/db-0 80/TCP`},
		"a node": {`probes: [{from: 192.168.0.1, to: shop/db-0, port: 80, protocol: SCTP, expect: allow}]`, `
allow 192.168.0.1>shop/db-0 80/SCTP`},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := expand(t, tc.text)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if diff := cmp.Diff(strings.Split(strings.TrimSpace(tc.want), "\n"), got); diff != "" {
				t.Errorf("checks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProbeThatCannotBeAskedIsProblem(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"no such pod": {`probes: [{from: [shop/nobody, shop/web-0], to: app=nothing, port: 80, expect: deny}]`,
			[]string{"probes[0].from: there is no pod shop/nobody", `probes[0].to: "app=nothing" selects no pod`}},
		"two externals": {`probes: [{from: internet, to: dual, port: 80, expect: allow}]`,
			[]string{"probes[0]: has no pod at either end: internet and dual are outside of the cluster or nodes, and no policy decides between them"}},
		"many externals, once": {`probes: [{from: [internet, half-pod], to: [dual, shop/web-0], port: 80, expect: allow}]`,
			[]string{"probes[0]: has no pod at either end: internet and dual"}},
		"only itself": {`probes: [{from: app=web, to: app=web, port: 80, expect: allow}]`,
			[]string{"probes[0]: asks nothing: from and to select the same pod only"}},
		"no such port": {`probes: [{from: shop/web-0, to: [shop/db-0, shop/web-0], port: dns, protocol: UDP, expect: allow}]`,
			[]string{"probes[0].port: pod shop/db-0 has no UDP port with the name dns"}},
		"pods of a matrix": {`matrix: {pods: [app=nothing, shop/*], ports: [80/TCP]}`,
			[]string{`matrix.pods: "app=nothing" selects no pod`}},
		"an entry of a matrix": {`matrix: {ports: [80/TCP], allow: [{from: shop/nobody, to: shop/*, ports: all}]}`,
			[]string{"matrix.allow[0].from: there is no pod shop/nobody"}},
		"an entry that allows nothing": {`matrix: {ports: [80/TCP], allow: [{from: infra/six-0, to: shop/db-0, ports: all}, {from: internet, to: dual, ports: all}, {from: shop/db-0, to: shop/db-0, ports: all}, {from: shop/web-0, to: shop/db-0, ports: [dns/UDP]}]}`,
			[]string{"matrix.allow[0]: allows nothing", "matrix.allow[1]: allows nothing", "matrix.allow[2]: allows nothing", "matrix.allow[3]: allows nothing"}},
		"a port name that nobody has": {`matrix: {ports: [80/TCP, nope/TCP]}`,
			[]string{"matrix.ports: no pod of the matrix has a TCP port with the name nope"}},
		"a matrix without anybody to talk to": {`matrix: {pods: [shop/db-0], externals: []}`,
			[]string{"matrix: asks nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, got := expand(t, tc.text)
			if !slices.EqualFunc(tc.want, got, func(want, got string) bool { return strings.HasPrefix(got, want) }) {
				t.Errorf("problems:\n%q\nwant\n%q", got, tc.want)
			}
		})
	}
}

func TestQuestionsHavePacketOfFamily(t *testing.T) {
	end := func(addr string) Endpoint { return Endpoint{Name: addr, Addr: netip.MustParseAddr(addr)} }
	for _, tc := range []struct {
		src, dst string
		port     Port
		want     string
	}{
		{"10.0.0.1", "10.0.0.2", Port{Number: 80, Protocol: api.TCP}, "10.0.0.1:49152 -> 10.0.0.2:80/tcp"},
		{"fd00::1", "fd00::2", Port{Number: 53, Protocol: api.UDP}, "[fd00::1]:49152 -> [fd00::2]:53/udp"},
		{"10.0.0.1", "10.0.0.2", Port{Protocol: api.ICMP}, "10.0.0.1 -> 10.0.0.2/icmp"},
		{"fd00::1", "fd00::2", Port{Protocol: api.ICMP}, "fd00::1 -> fd00::2/icmpv6"},
	} {
		q := question(end(tc.src), end(tc.dst), tc.port)
		if got := q.Flow.String(); got != tc.want || q.Src.Name != tc.src || q.Dst.Name != tc.dst || q.Flow.Protocol == api.ICMP && q.Flow.SrcPort != 0 {
			t.Errorf("question is %s, want %s", got, tc.want)
		}
	}
}
