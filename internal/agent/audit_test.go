package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

// TestAuditListsPoliciesThatShareRules: two namespaces deny everything; their pods have one table.
func TestAuditListsPoliciesThatShareRules(t *testing.T) {
	a := running(t, nil)
	var manifests strings.Builder
	for i, ns := range []string{"one", "two"} {
		fmt.Fprintf(&manifests, `---
{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: %[1]s}, spec: {nodeName: node-1}, status: {phase: Running, podIPs: [{ip: 10.3.0.%[2]d}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny, namespace: %[1]s, annotations: {sluice.io/mode: audit}}, spec: {podSelector: {}}}
`, ns, i+1)
	}
	a.apply(t, manifests.String())
	traffic(t, a, api.Flow{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("10.3.0.2"), Protocol: api.TCP, SrcPort: 4000, DstPort: 80})
	var got []string
	for _, r := range get[[]view.Audited](t, a, "GET", "/v1/audit", "") {
		got = append(got, fmt.Sprint(r.Policy.Short(), " of ", r.Workloads, ": ", *r.Packets, " of ", *r.Total))
	}
	want := []string{"one/deny of [one/web]: 1 of 1", "two/deny of [two/web]: 1 of 1"} // which are counted together
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestAuditListsWhatWouldBeDenied: by policy, direction and workload, on the embedded vswitch;
// nothing after the switch to enforce.
func TestAuditListsWhatWouldBeDenied(t *testing.T) {
	const mode = "annotations: {sluice.io/mode: audit}"
	manifests := strings.ReplaceAll(demo, "metadata: {name: server, namespace: demo}", "metadata: {name: server, namespace: demo, "+mode+"}")
	manifests += `---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: both, namespace: demo, ` + mode + `}, spec: {podSelector: {}, policyTypes: [Ingress, Egress]}}
`
	a := running(t, nil)
	a.apply(t, manifests)
	rows := func() map[string]uint64 {
		out := map[string]uint64{}
		for _, r := range get[[]view.Audited](t, a, "GET", "/v1/audit", "") {
			if r.Packets != nil {
				out[fmt.Sprintf("%s %s %d of %v", r.Policy.Short(), r.Direction, r.Rule, r.Workloads)] += *r.Packets
			}
		}
		return out
	}
	for port := range uint16(3) { // of which the policy of the server allows none
		traffic(t, a, api.Flow{Src: netip.MustParseAddr("10.2.0.3"), Dst: netip.MustParseAddr("10.2.0.1"), Protocol: api.TCP, SrcPort: 4000, DstPort: 90 + port})
	}
	want := map[string]uint64{"demo/server ingress -1 of [demo/server]": 3, "demo/both ingress -1 of [demo/server]": 3}
	got := rows()
	for key, n := range want {
		if got[key] != n {
			t.Errorf("%s is %d, want %d of %v", key, got[key], n, got)
		}
	}
	a.apply(t, strings.ReplaceAll(manifests, mode, "labels: {}"))
	if d := cmp.Diff(map[string]uint64{}, rows()); d != "" {
		t.Errorf("after the switch to enforce (-want +got):\n%s", d)
	}
}
