package reason_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// sameAddr compares addresses with ==.
var sameAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

var update = flag.Bool("update", false, "write the golden files anew")

// explanations are what people read, in testdata: every column counts.
var explanations = map[string]struct{ policies, question string }{
	"denied":             {shop.DBClients, "shop/web > shop/db 5432/tcp"}, // every policy, every failed term, the nearest change
	"allowed":            {shop.DBClients, "shop/api > shop/db 5432/tcp"},
	"except":             {shop.DBFrom(`{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/28]}}`), "203.0.113.9 > shop/db icmp"},
	"own-node":           {shop.DenyAll, "192.168.0.1 > shop/db 1/tcp"},
	"self":               {shop.DenyAll, "shop/db > shop/db 1/tcp"},
	"both-deny":          {shop.DenyAll, "shop/web > shop/db 1/tcp"},
	"open":               {"", "shop/web > shop/db 1/tcp"},
	"outside-to-outside": {shop.DenyAll, "203.0.113.9 > 203.0.113.10 1/tcp"},
	"other-direction":    {otherDirection, "shop/web > shop/db 80/tcp"},
	"pending":            {shop.DBClients, "ops/new > shop/db 5432/tcp"},
	"named-port":         {shop.DBPorts(`{port: http}, {port: pg, protocol: SCTP}`), "shop/web > shop/db 80/tcp"},
	"sctp":               {shop.DBPorts(`{port: pg}, {port: 7000, endPort: 7010, protocol: SCTP}`), "shop/web > shop/db 7011/sctp"},
	"many-policies":      {manyPolicies, "shop/web > shop/db 80/tcp"},
	"icmp-with-ports":    {shop.DBPorts(`{port: 1}, {port: 2}`), "shop/web > shop/db icmp"},
	"two-rules-allow":    {twoRules, "shop/web > shop/db 80/tcp"},
}

// otherDirection selects both ends, each for the direction that does not matter.
const otherDirection = `
metadata: {name: receives}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], egress: [{}, {ports: [{port: 1}]}]}
---
metadata: {name: sends}
spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}
---
metadata: {name: defaulted}
spec: {podSelector: {matchLabels: {app: web}}}`

const manyPolicies = `
{metadata: {name: a}, spec: {podSelector: {}}}
---
{metadata: {name: b}, spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress]}}
---
{metadata: {name: c}, spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 81}]}]}}
---
{metadata: {name: d}, spec: {podSelector: {}, egress: [{}]}}
---
{metadata: {name: e}, spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: "::/0"}}]}]}}
---
{metadata: {name: f}, spec: {podSelector: {matchExpressions: [{key: app, operator: Exists}]}}}`

const twoRules = `
{metadata: {name: a}, spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}], ports: [{port: 80}, {port: 81}]}, {from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}}
---
{metadata: {name: b}, spec: {podSelector: {}, egress: [{}]}}`

func TestReasonIsGolden(t *testing.T) {
	for name, tc := range explanations {
		t.Run(name, func(t *testing.T) {
			golden(t, name+".golden", shop.Explained(t, tc.policies, tc.question).String())
		})
	}
}

// golden compares a text with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReasonOfFinishedPodHasNoFlow(t *testing.T) {
	st := shop.Cluster()
	shop.PodOf(&st, "shop/web").Status.Phase = corev1.PodSucceeded
	o := oracle.New(st)
	for _, v := range []reason.Verdict{
		reason.Explain(o, oracle.PodEndpoint("shop", "web"), oracle.PodEndpoint("shop", "db"), api.TCP, 80),
		reason.Explain(o, oracle.PodEndpoint("shop", "db"), oracle.PodEndpoint("shop", "web"), api.TCP, 80),
	} {
		if want := "no flow: shop/web has finished and has no address"; v.Allowed || v.Reason != want || len(v.Changes) > 0 {
			t.Errorf("got\n%swant the reason %q", v, want)
		}
	}
}
