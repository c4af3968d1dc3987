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
