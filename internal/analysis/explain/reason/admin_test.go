package reason_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// guarded is a cluster whose administrators deny the database to everybody but the
// API, which is left to its namespace, and open it to what watches.
const guarded = shop.ForDB + `ingress: [` +
	`{name: watchers, action: Allow, from: [{namespaces: {matchLabels: {team: b}}}], ports: [{portNumber: {protocol: TCP, port: 9187}}]}, ` +
	`{name: leave-to-shop, action: Pass, from: ` + shop.APIPods + `}, ` +
	`{name: nobody-else, action: Deny, from: [{namespaces: {}}, {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: never}}}}]}, ` +
	`{action: Allow, from: ` + shop.AllPods + `}]`

// tierExplanations are what people read where there are tiers, in testdata.
var tierExplanations = map[string]struct{ policies, tiers, question string }{
	"admin-deny":          {shop.AllowWeb, shop.Admin("guard", 10, guarded), "shop/web > shop/db 5432/tcp"},
	"admin-allow":         {shop.DenyDB, shop.Admin("guard", 10, guarded), "infra/mon > shop/db 9187/tcp"},
	"admin-pass-isolated": {shop.DBClients, shop.Admin("guard", 10, guarded) + shop.Baseline(shop.ForDB+shop.DenyWeb), "shop/api > shop/db 80/tcp"},
	"admin-pass-baseline": {"", shop.Admin("guard", 10, guarded) + shop.Baseline(shop.ForAll+`ingress: [{name: default-deny, action: Deny, from: `+shop.AllPods+`}]`), "shop/api > shop/db 80/tcp"},
	"baseline-deny":       {"", shop.Baseline(shop.ForAll + `ingress: [{name: default-deny, action: Deny, from: ` + shop.AllPods + `}]`), "shop/web > shop/db 80/tcp"},
	"baseline-allow": {"", shop.ClusterPolicy("Baseline", "own", 1, shop.ForShop+`ingress: [{action: Accept, from: `+shop.WebPods+`}]`) +
		shop.Baseline(shop.ForAll+`ingress: [{action: Deny, from: `+shop.AllPods+`}]`), "shop/web > shop/db 80/tcp"},
	"baseline-pass":    {"", shop.ClusterPolicy("Baseline", "own", 1, shop.ForShop+`ingress: [{action: Pass, from: `+shop.WebPods+`}]`) + shop.Baseline(shop.ForDB+shop.DenyWeb), "shop/web > shop/db 80/tcp"},
	"two-denials":      {shop.AllowWeb, shop.Admin("a", 1, shop.ForDB+shop.DenyWeb) + shop.ClusterPolicy("Admin", "b", 2, shop.ForDB+`ingress: [{action: Deny, from: `+shop.AllPods+`}]`), "shop/web > shop/db 80/tcp"},
	"both-ends-denied": {"", shop.Admin("a", 1, shop.ForAll+`ingress: [{action: Deny, from: `+shop.WebPods+`}], egress: [{action: Deny, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}]}]`), "shop/web > shop/db 80/tcp"},
	"denied-and-isolated": {shop.DenyDB, shop.Admin("a", 1, shop.ForDB+`ingress: [{action: Deny, from: [{}]}]`),
		"203.0.113.9 > shop/db 80/tcp"}, // not understood, and no later rule allows the flow either
	"networks-and-nodes": {"", shop.Admin("out", 3, shop.ForDB+`egress: [{action: Allow, to: [{networks: [198.51.100.0/24, 192.0.2.0/24]}], ports: [{namedPort: http}, {portRange: {protocol: TCP, start: 80, end: 90}}]}, {action: Deny, to: [{nodes: {}}, {networks: [0.0.0.0/0]}]}]`),
		"shop/db > 192.168.0.2 10250/tcp"},
	"odd-rules": {"", shop.ClusterPolicy("Admin", "odd", 3, shop.ForDB+`egress: [{action: Accept, to: [{domainNames: [example.org]}, {networks: [x, 198.51.100.0/24]}, {}]}, {action: Accept, to: []}, {action: Log, to: [{networks: [203.0.113.0/24]}], protocols: [{destinationNamedPort: http}, {tcp: {destinationPort: {number: 443}}}]}]`) +
		shop.ClusterPolicy("Nowhere", "refused", 1, shop.ForDB), "shop/db > 203.0.113.9 443/tcp"},
	"no-rule-decides": {"", shop.Admin("a", 1, shop.ForDB+shop.DenyWeb) + shop.Baseline(shop.ForDB+shop.DenyWeb), "shop/api > shop/db 80/tcp"},
}

func TestReasonWithTiersIsGolden(t *testing.T) {
	for name, tc := range tierExplanations {
		t.Run(name, func(t *testing.T) {
			golden(t, "tiers-"+name+".golden", shop.ExplainedInTiers(t, tc.policies, tc.tiers, tc.question).String())
		})
	}
}

func TestVerdictWithTiersHasStableJSON(t *testing.T) {
	v := shop.ExplainedInTiers(t, shop.DenyDB, shop.Admin("guard", 10, shop.ForDB+`ingress: [{name: mine, action: Pass, from: `+shop.APIPods+`}, {action: Deny, from: `+shop.WebPods+`}]`), "shop/web > shop/db 80/tcp")
	got, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "tiers-verdict.json", string(got)+"\n") // what other programs read: fields are only ever added
	var back reason.Verdict
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v, back, sameAddr); diff != "" {
		t.Errorf("after reading it back -want +got:\n%s", diff)
	}
}
