package oracle_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// without returns the policies for which drop is false.
func without(s cluster.State, drop func(metav1.Object) bool) cluster.State {
	s.Policies = kept(s.Policies, drop)
	s.AdminPolicies = kept(s.AdminPolicies, drop)
	s.BaselinePolicies = kept(s.BaselinePolicies, drop)
	s.ClusterPolicies = kept(s.ClusterPolicies, drop)
	return s
}

func kept[T metav1.Object](list []T, drop func(metav1.Object) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(o T) bool { return drop(o) })
}

// enforced returns copies of all policies, without a mode.
func enforced(s cluster.State) cluster.State {
	s = cluster.Copy(s)
	without(s, func(o metav1.Object) bool { o.SetAnnotations(nil); return false })
	return s
}

// asked is a state, and what is asked of it.
type asked struct {
	state cluster.State
	flows []api.Flow
}

// withAudit draws states with policies in audit mode.
func withAudit() *rapid.Generator[asked] {
	return rapid.Custom(func(t *rapid.T) asked {
		s := uniqueTiers(cluster.Gen(cluster.SmallWithAudit()).Draw(t, "state"))
		return asked{s, cluster.DrawFlows(t, s, 60)}
	})
}

// testAudit counts the flows that would be denied, and those that are.
func testAudit(t rapid.TB, a asked) (audited, denied int) {
	inAudit := func(o metav1.Object) bool { return o.GetAnnotations()[oracle.ModeAnnotation] == "audit" }
	o, less, all := oracle.New(a.state), oracle.New(without(a.state, inAudit)), oracle.New(enforced(a.state))
	for _, f := range a.flows {
		v, without := o.Verdict(f), less.Verdict(f)
		want := without.Allowed
		would := want && !all.Allowed(f)
		for i, d := range []oracle.DirectionVerdict{v.Egress, v.Ingress} {
			if w := []oracle.DirectionVerdict{without.Egress, without.Ingress}[i]; !slices.Equal(d.Deciding, w.Deciding) {
				t.Fatalf("%s: %v decide, without the policies in audit mode %v", f, d.Deciding, w.Deciding)
			}
		}
		if v.Allowed != want || (len(v.WouldDeny()) > 0) != would {
			t.Fatalf("%s: allowed %t, want %t; would be denied by %v, want %t\n%s", f, v.Allowed, want, v.WouldDeny(), would, reason.Of(v))
		}
		if would {
			audited++
		}
		if !want {
			denied++
		}
	}
	return audited, denied
}

// TestAuditIsTheStateWithoutThePolicies is the definition of audit mode: a flow is allowed as if
// the policies in audit mode did not exist, and would be denied if it is allowed and the same
// policies, enforced, deny it.
func TestAuditIsTheStateWithoutThePolicies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { testAudit(t, withAudit().Draw(t, "asked")) })
	// The same states at each run: what is drawn above may have nothing to find.
	audited, denied := 0, 0
	for seed := range 40 {
		a, d := testAudit(t, withAudit().Example(seed))
		audited, denied = audited+a, denied+d
	}
	if audited == 0 || denied == 0 {
		t.Errorf("%d flows are audited, %d denied: nothing was tried", audited, denied)
	}
}

// audit is a policy of namespace shop in audit mode.
func audit(name, spec string) string {
	return "metadata: {name: " + name + ", annotations: {sluice.io/mode: audit}}\n" + spec
}

// auditAdmin is an AdminNetworkPolicy in audit mode.
func auditAdmin(name string, priority int, spec string) string {
	return strings.Replace(shop.Admin(name, priority, spec), "metadata: {", "metadata: {annotations: {sluice.io/mode: audit}, ", 1)
}

// TestAuditRows are the cases of policies in audit mode (docs/design/configurator.md). The question is
// that of web to the database.
func TestAuditRows(t *testing.T) {
	denyAll := shop.Baseline(shop.ForDB + shop.DenyWeb)
	allowWeb := shop.ForDB + "ingress: [{action: Allow, from: " + shop.WebPods + "}]"
	passWeb := shop.ForDB + "ingress: [{action: Pass, from: " + shop.WebPods + "}]"
	for name, c := range map[string]struct {
		policies, tiers string
		allowed         bool
		would           string // deny it
	}{
		"alone it denies nothing":                    {audit("a", shop.DenyDB), "", true, "shop/a"},
		"what it allows is no news":                  {audit("a", shop.AllowWeb), "", true, ""},
		"it does not open what another denies":       {audit("a", shop.AllowWeb) + "\n---\nmetadata: {name: b}\n" + shop.DenyDB, "", false, ""},
		"nor close what another allows":              {audit("a", shop.DenyDB) + "\n---\nmetadata: {name: b}\n" + shop.AllowWeb, "", true, ""},
		"a mode that is none is enforced":            {"metadata: {name: a, annotations: {sluice.io/mode: Audit}}\n" + shop.DenyDB, "", false, ""},
		"enforce is enforced":                        {"metadata: {name: a, annotations: {sluice.io/mode: enforce}}\n" + shop.DenyDB, "", false, ""},
		"without it the baseline denies":             {audit("a", shop.AllowWeb), denyAll, false, ""},
		"an admin Deny goes on to what denies":       {shop.DenyDB, auditAdmin("x", 1, shop.ForDB+shop.DenyWeb), false, ""},
		"an admin Deny goes on to what allows":       {shop.AllowWeb, auditAdmin("x", 1, shop.ForDB+shop.DenyWeb), true, "AdminNetworkPolicy x"},
		"an admin Deny goes on to the next rule":     {"", auditAdmin("x", 1, shop.ForDB+shop.DenyWeb) + shop.Admin("y", 2, allowWeb), true, "AdminNetworkPolicy x"},
		"an earlier Allow decides":                   {"", shop.Admin("w", 0, allowWeb) + auditAdmin("x", 1, shop.ForDB+shop.DenyWeb), true, ""},
		"an admin Allow does not open":               {shop.DenyDB, auditAdmin("x", 1, allowWeb), false, ""},
		"an admin Allow keeps a later Deny":          {"", auditAdmin("x", 1, allowWeb) + shop.Admin("y", 2, shop.ForDB+shop.DenyWeb), false, ""},
		"an admin Pass would skip a later Allow":     {shop.DenyDB, auditAdmin("x", 1, passWeb) + shop.Admin("y", 2, allowWeb), true, "shop/p"},
		"an audited Allow hides an audited Deny":     {"", auditAdmin("x", 1, allowWeb) + auditAdmin("y", 2, shop.ForDB+shop.DenyWeb), true, ""},
		"two of a direction: both would have denied": {audit("a", shop.DenyDB) + "\n---\n" + audit("b", shop.DenyDB), "", true, "shop/a shop/b"},
	} {
		t.Run(name, func(t *testing.T) {
			policies := c.policies
			if !strings.Contains(policies, "metadata") && policies != "" {
				policies = "metadata: {name: p}\n" + policies
			}
			v := oracle.New(shop.Under(t, policies, c.tiers)).VerdictPods(oracle.PodEndpoint("shop", "web"), oracle.PodEndpoint("shop", "db"), api.TCP, 5432)
			var would []string
			for _, o := range v.WouldDeny() {
				if !o.Audit {
					t.Errorf("%s is not marked", o)
				}
				would = append(would, o.Policy.Short())
			}
			if got := strings.Join(would, " "); v.Allowed != c.allowed || got != c.would {
				t.Errorf("allowed %t, want %t; would be denied by %q, want %q\n%s", v.Allowed, c.allowed, got, c.would, reason.Of(v))
			}
		})
	}
}

// TestVerdictNamesWhatAuditedPoliciesAllowAndPass: no policy in audit mode decides, and each one
// whose rule a list counts is named, in both directions and also where a rule only passes.
func TestVerdictNamesWhatAuditedPoliciesAllowAndPass(t *testing.T) {
	const spec = `subject: {pods: {namespaceSelector: {}, podSelector: {}}},
egress: [{action: Allow, to: [{namespaces: {}}]}],
ingress: [{action: Pass, from: [{namespaces: {}}]}]`
	v := oracle.New(shop.Under(t, "", auditAdmin("x", 20, spec))).VerdictPods(oracle.PodEndpoint("shop", "web"), oracle.PodEndpoint("shop", "db"), api.TCP, 5432)
	if !v.Allowed || len(v.Egress.Deciding)+len(v.Ingress.Deciding) > 0 {
		t.Errorf("allowed %t, and %v and %v decide", v.Allowed, v.Egress.Deciding, v.Ingress.Deciding)
	}
	x := api.PolicyID{Kind: api.AdminNetworkPolicy, Name: "x"}
	for _, d := range []oracle.DirectionVerdict{v.Egress, v.Ingress} {
		if want := []api.Origin{{Policy: x, Direction: d.Direction}}; !slices.Equal(d.Would, want) {
			t.Errorf("%s: %v would, want %v", d.Direction, d.Would, want)
		}
	}
}
