package configurator

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

// drawAudits draws policies of which some are in audit mode.
func drawAudits(t *rapid.T) []*api.ContivPolicy {
	policies := drawTiers(t)
	for _, p := range policies {
		p.Audit = rapid.Bool().Draw(t, "audit")
	}
	return policies
}

// enforcedOf returns the policies that are not in audit mode.
func enforcedOf(policies []*api.ContivPolicy) []*api.ContivPolicy {
	return slices.DeleteFunc(slices.Clone(policies), func(p *api.ContivPolicy) bool { return p.Audit })
}

// TestGenerateAuditsWhatAllPoliciesWouldDeny: a list permits what enforced policies permit, and
// audits what all of them would deny of that, also where pods share an address.
func TestGenerateAuditsWhatAllPoliciesWouldDeny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own := drawAudits(t)
		var shared []api.Sharing
		for range rapid.IntRange(0, 2).Draw(t, "others") {
			shared = append(shared, api.Sharing{
				Policies: drawAudits(t), Before: rapid.Bool().Draw(t, "before"),
				Apart: rapid.SampledFrom([]netip.Prefix{{}, {}, pfx("0.0.0.0/0"), pfx("::/0")}).Draw(t, "apart"),
			})
		}
		for _, d := range []api.Direction{api.Ingress, api.Egress} {
			g := generate(d, own, false, shared...)
			for _, f := range propertyFlows(d) {
				peer := f.Src
				if d == api.Egress {
					peer = f.Dst
				}
				permit, would := decided(d, enforcedOf(own), f), decided(d, own, f)
				for _, s := range shared {
					apart := s.Apart.IsValid() && s.Apart.Contains(peer)
					permit = permit && (apart || decided(d, enforcedOf(s.Policies), f))
					would = would && (apart || decided(d, s.Policies, f))
				}
				got, by := g.evaluate(f)
				audited := by >= 0 && g.rules.Rules()[by].Audit
				counts := g == nil || len(g.refused) == 0 // else it would take too many rules
				if got != permit || counts && audited != (permit && !would) {
					t.Fatalf("%s %s: permitted %t by %d, want %t; audited %t, would be permitted %t; rules\n%s", d, f, got, by, permit, audited, would, g.text())
				}
				if audited && !slices.ContainsFunc(g.rules.Origins(by), func(o api.Origin) bool { return o.Audit }) {
					t.Fatalf("%s %s: nothing that would deny it is named: %v", d, f, g.rules.Origins(by))
				}
			}
		}
	})
}

// TestGenerateWithoutAuditsIsAsBefore: policies that are all enforced make the same list as before
// the mode existed, without marks.
func TestGenerateWithoutAuditsIsAsBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := generate(api.Ingress, drawTiers(t), true)
		if g == nil {
			return
		}
		for i, r := range g.rules.Rules() {
			if r.Audit || slices.ContainsFunc(g.rules.Origins(i), func(o api.Origin) bool { return o.Audit }) {
				t.Fatalf("rule %d is %s of %v", i, r, g.rules.Origins(i))
			}
		}
	})
}

// setRules returns n rules of one set and port each.
func setRules(n, first int, action api.RuleAction) []api.PolicyRule {
	rules := make([]api.PolicyRule, n)
	for i := range rules {
		rules[i] = does(action, "", "tcp/80")
		rules[i].Sets = []api.SetID{api.SetID(first + i)}
	}
	return rules
}

// TestGenerateCountsNothingWhereItTakesTooManyRules: the list is that of the enforced policies, and
// those in audit mode are reported.
func TestGenerateCountsNothingWhereItTakesTooManyRules(t *testing.T) {
	enforced := tiered("a", api.TierAdmin, 20, append(setRules(400, 1000, allow), does(deny, "any", "any"))...)
	audited := tiered("x", api.TierAdmin, 10, setRules(400, 3000, deny)...)
	audited.Audit = true
	want := generate(api.Ingress, []*api.ContivPolicy{enforced}, true)
	got := generate(api.Ingress, []*api.ContivPolicy{enforced, audited}, true)
	if d := cmp.Diff(want.text(), got.text()); d != "" {
		t.Errorf("audit mode changes the list:\n%.2000s", d)
	}
	if len(got.refused) != 1 || len(got.refused[0].origins) != 1 || got.refused[0].origins[0].Policy != audited.ID {
		t.Errorf("reported is %+v", got.refused)
	}
}

// TestGenerateAuditsManyNetworkPolicies: beside enforced NetworkPolicies, an admin policy in audit
// mode is compared with their permits, and not every permit with every other.
func TestGenerateAuditsManyNetworkPolicies(t *testing.T) {
	np := &api.ContivPolicy{ID: policyID("p"), Tier: api.TierNetworkPolicy, IsolatesIngress: true, Ingress: setRules(3000, 10000, allow)}
	audited := adminOf(does(deny, "set:300", "tcp/80"))
	audited.Audit = true
	g := generate(api.Ingress, []*api.ContivPolicy{np, audited}, true)
	if len(g.refused) > 0 || g.rules.Len() > 2*3000+3 {
		t.Errorf("%d rules, %v", g.rules.Len(), g.refused)
	}
}
