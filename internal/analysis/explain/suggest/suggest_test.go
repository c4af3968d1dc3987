package suggest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/suggest"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

func TestChangesSetEachLabelOnce(t *testing.T) {
	v := shop.Explained(t, shop.FromPods(`{key: app, operator: NotIn, values: [web]}, {key: app, operator: In, values: [web, api]}`), "shop/web > shop/db 1/tcp")
	if c := v.Changes[len(v.Changes)-1]; c.Text != "label pod shop/web app=api" || !c.Flips {
		t.Errorf("the label is %q (flips %t)", c.Text, c.Flips)
	}
	v = shop.Explained(t, shop.FromPods(`{key: app, operator: NotIn, values: [web]}, {key: app, operator: In, values: [web]}`), "shop/web > shop/db 1/tcp")
	for _, c := range v.Changes {
		if c.Kind == suggest.LabelPod {
			t.Errorf("a selector that contradicts itself led to %q", c.Text)
		}
	}
}

func TestChangesExtendNarrowestPolicy(t *testing.T) {
	v := shop.Explained(t, `
{metadata: {name: a-labelled}, spec: {podSelector: {matchExpressions: [{key: app, operator: Exists}]}}}
---
{metadata: {name: b-every}, spec: {podSelector: {}}}
---
{metadata: {name: c-own}, spec: {podSelector: {matchLabels: {app: db}}}}`, "shop/web > shop/db 1/tcp")
	if want := `add the rule "from app=web in namespace shop, port 1/tcp" to ingress of shop/c-own`; v.Changes[0].Text != want {
		t.Errorf("the smallest change is %q, want %q", v.Changes[0].Text, want)
	}
}

// TestChangesOfNetworkPolicyCannotOverrideAdmin wants nothing to be offered that
// changes a NetworkPolicy alone.
func TestChangesOfNetworkPolicyCannotOverrideAdmin(t *testing.T) {
	v := shop.ExplainedInTiers(t, shop.DBClients, shop.Admin("a", 1, shop.ForDB+shop.DenyWeb), "shop/web > shop/db 5432/tcp")
	if v.Allowed || len(v.Changes) == 0 {
		t.Fatalf("the case is not the one that is meant:\n%s", v)
	}
	for _, c := range v.Changes {
		touches := func(c suggest.Change) bool {
			return slices.ContainsFunc(c.Origins, func(g api.Origin) bool { return g.Policy.Name == "a" })
		}
		if !touches(c) && !slices.ContainsFunc(c.Parts, touches) {
			t.Errorf("%q cannot be enough", c.Text)
		}
	}
}

// TestChangesOfAdminRuleComeBeforeLabels: whoever relabels a namespace to get
// round a rule takes all its pods out of it, and is often not allowed to.
func TestChangesOfAdminRuleComeBeforeLabels(t *testing.T) {
	const (
		fromTeam  = `ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: a}}}]}]`
		fromPods  = `ingress: [{action: Deny, from: [{pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}}]}]`
		allowTeam = `ingress: [{action: Allow, from: [{namespaces: {matchLabels: {team: b}}}]}, {action: Deny, from: [{namespaces: {}}]}]`
	)
	for name, tc := range map[string]struct{ policies, tiers, kind string }{
		"admin":           {"", shop.Admin("guard", 10, shop.ForDB+fromTeam), "AdminNetworkPolicy guard"},
		"admin, pods":     {"", shop.Admin("guard", 10, shop.ForDB+fromPods), "AdminNetworkPolicy guard"},
		"admin, allowing": {"", shop.Admin("guard", 10, shop.ForDB+allowTeam), "AdminNetworkPolicy guard"},
		"and isolated":    {shop.DBClients, shop.Admin("guard", 10, shop.ForDB+fromTeam), "AdminNetworkPolicy guard"},
		"cluster":         {"", shop.ClusterPolicy("Admin", "guard", 10, shop.ForDB+fromTeam), "ClusterNetworkPolicy guard"},
		"baseline":        {"", shop.Baseline(shop.ForDB + fromTeam), "BaselineAdminNetworkPolicy default"},
	} {
		v := shop.ExplainedInTiers(t, tc.policies, tc.tiers, "shop/web > shop/db 80/tcp")
		if v.Allowed || v.Ingress.Subjects[0].Rule == nil || len(v.Changes) == 0 {
			t.Fatalf("%s: the case is not the one that is meant:\n%s", name, v)
		}
		rule := originOf(*v.Ingress.Subjects[0].Rule)
		if !strings.Contains(v.String(), "\n  ask the administrators about "+rule+", which is theirs and denies it\n  smallest change") {
			t.Errorf("%s: nobody is named to ask:\n%s", name, v)
		}
		if c := v.Changes[0]; !c.Flips || labels(c) > 0 || !strings.Contains(c.Text, "rule 0 of "+tc.kind) && !strings.Contains(c.Text, "rule 1 of "+tc.kind) {
			t.Errorf("%s: the first change is %q", name, c.Text)
		}
		for i, c := range v.Changes {
			if c.Flips && i > 0 && labels(v.Changes[i-1]) > labels(c) {
				t.Errorf("%s: %q comes after %q", name, c.Text, v.Changes[i-1].Text)
			}
		}
	}
}

func originOf(g api.Origin) string {
	return fmt.Sprintf("%s rule %d of %s", g.Direction, g.Rule, g.Policy)
}

// labels is 1 for a change that labels a pod, and 2 for one that labels a namespace.
func labels(c suggest.Change) (n int) {
	switch c.Kind {
	case suggest.LabelPod:
		n = 1
	case suggest.LabelNamespace:
		n = 2
	default:
	}
	for _, p := range c.Parts {
		n = max(n, labels(p))
	}
	return n
}
