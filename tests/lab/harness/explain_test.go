package harness

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

const (
	webPod = `{metadata: {namespace: shop, name: web, labels: {app: web}}, spec: {nodeName: one},
  status: {phase: Running, hostIP: 192.168.0.1, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}]}}`
	apiPod = `{metadata: {namespace: shop, name: api, labels: {app: api}}, spec: {nodeName: two},
  status: {phase: Running, hostIP: 192.168.0.2, podIP: 10.1.0.2, podIPs: [{ip: 10.1.0.2}]}}`
	webPolicy = `{metadata: {namespace: shop, name: web}, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress],
  ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}]}}`
)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestExplainsFindsWrongExplanations(t *testing.T) {
	o := oracle.New(cluster.State{
		Namespaces: []*corev1.Namespace{read[corev1.Namespace](t, "{metadata: {name: shop}}")},
		Pods:       []*corev1.Pod{read[corev1.Pod](t, webPod), read[corev1.Pod](t, apiPod)},
		Policies:   []*networkingv1.NetworkPolicy{read[networkingv1.NetworkPolicy](t, webPolicy)},
	})
	flow := api.Flow{Src: netip.MustParseAddr("10.1.0.2"), Dst: netip.MustParseAddr("10.1.0.1"), Protocol: api.TCP, SrcPort: 49152, DstPort: 80}
	web := api.PolicyID{Namespace: "shop", Name: "web"}
	permit := renderer.Decision{Action: api.Permit, Origins: []api.Origin{{Policy: web}}}
	deny := renderer.Decision{Origins: []api.Origin{{Policy: web, Rule: api.IsolationRule}}}
	other := renderer.Decision{Action: api.Permit, Origins: []api.Origin{{Policy: web, Rule: 1}}}
	closed := flow
	closed.DstPort = 81
	for _, tt := range []struct {
		name      string
		flow      api.Flow
		decisions []renderer.Decision
		wrong     bool
	}{
		{"right", flow, []renderer.Decision{permit}, false},
		{"right, denied", closed, []renderer.Decision{deny}, false},
		{"another rule", flow, []renderer.Decision{other}, true},
		{"denied, but it is not", flow, []renderer.Decision{deny}, true},
		{"allowed, but it is not", closed, []renderer.Decision{permit}, true},
		{"denied for no reason", closed, []renderer.Decision{{}}, true},
		{"denied by another rule", closed, []renderer.Decision{{Origins: other.Origins}}, true},
	} {
		if why := misexplained(o.Verdict(tt.flow), tt.decisions); (why != "") != tt.wrong {
			t.Errorf("%s: %q", tt.name, why)
		}
	}
}

// TestInvariantsAllHaveMeaning checks that every invariant that a failure can name is explained.
func TestInvariantsAllHaveMeaning(t *testing.T) {
	for _, c := range checks {
		if Invariants[c.Invariant] == "" {
			t.Errorf("%q has no meaning", c.Invariant)
		}
	}
}
