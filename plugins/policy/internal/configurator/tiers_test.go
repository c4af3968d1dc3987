package configurator

import (
	cmp2 "cmp"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

const (
	allow = api.RuleAllow
	deny  = api.RuleDeny
	pass  = api.RulePass
)

// does is a rule with an action.
func does(action api.RuleAction, peers, ports string) api.PolicyRule {
	r := rule(peers, ports)
	r.Action = action
	return r
}

// tiered returns a policy with the same rules in both directions.
func tiered(name string, tier api.Tier, priority int, rules ...api.PolicyRule) *api.ContivPolicy {
	for i := range rules {
		rules[i].Index = i
	}
	return &api.ContivPolicy{
		ID:   api.PolicyID{Kind: api.ClusterNetworkPolicy, Name: name},
		Tier: tier, Priority: priority, Ingress: rules, Egress: rules,
	}
}

func adminOf(rules ...api.PolicyRule) *api.ContivPolicy {
	return tiered("x", api.TierAdmin, 10, rules...)
}

func baselineOf(rules ...api.PolicyRule) *api.ContivPolicy {
	return tiered("b", api.TierBaseline, 10, rules...)
}

var tierTests = []struct {
	name     string
	policies []*api.ContivPolicy
	want     string // 12c is set 300, 12d is set 301; C is their intersection
}{
	{"a deny, and everything else is open", []*api.ContivPolicy{adminOf(does(deny, "set:300", "tcp/80"))},
		"deny tcp set:12c -> any port 80; x0\npermit any any -> any; \n"},
	{"an allow alone restricts nothing", []*api.ContivPolicy{adminOf(does(allow, "set:300", "tcp/80"))}, "open\n"},
	{"the first of two that do the same has decided", []*api.ContivPolicy{adminOf(does(deny, "set:300", "tcp/80"), does(deny, "any", "any"))},
		"deny tcp set:12c -> any port 80; x0\npermit any set:node -> any; x1\ndeny any any -> any; x1\n"},
	{"an allow before a deny", []*api.ContivPolicy{adminOf(does(allow, "set:300", "tcp/80"), does(deny, "any", "any"))},
		"permit tcp set:12c -> any port 80; x0\npermit any set:node -> any; x1\ndeny any any -> any; x1\n"},
	{"an allow overrides a NetworkPolicy", []*api.ContivPolicy{adminOf(does(allow, "set:300", "tcp/80")), ingressOf("a")},
		"permit tcp set:12c -> any port 80; x0\ndeny any any -> any; a!\n"},
	{"a deny overrides a NetworkPolicy", []*api.ContivPolicy{adminOf(does(deny, "set:300", "tcp/80")), ingressOf("a", rule("set:300", "tcp/80-81"))},
		"deny tcp set:12c -> any port 80; x0\npermit tcp set:12c -> any port 80-81; a0\ndeny any any -> any; a!\n"},
	{"the lower number first", []*api.ContivPolicy{
		tiered("x", api.TierAdmin, 7, does(deny, "set:300", "tcp/80")), tiered("y", api.TierAdmin, 3, does(allow, "set:300", "tcp/80"))},
		"permit tcp set:12c -> any port 80; y0\npermit any any -> any; \n"},
	{"equal numbers by name", []*api.ContivPolicy{
		tiered("y", api.TierAdmin, 3, does(allow, "any", "any")), tiered("x", api.TierAdmin, 3, does(deny, "any", "any"))},
		"permit any set:node -> any; x0\ndeny any any -> any; x0\n"},
	{"a pass that no later rule would decide is nothing", []*api.ContivPolicy{adminOf(does(deny, "set:300", "udp"), does(pass, "set:300", "any"), does(deny, "set:301", "")), ingressOf("a")},
		"deny udp set:12c -> any; x0\ndeny any any -> any; a!\n"},
	{"a pass to nobody permits", []*api.ContivPolicy{adminOf(does(pass, "set:300", "tcp/80"), does(deny, "any", "any"))},
		"permit tcp set:12c -> any port 80; x0\npermit any set:node -> any; x1\ndeny any any -> any; x1\n"},
	{"a pass to a NetworkPolicy is what that permits of it, and no more", []*api.ContivPolicy{
		adminOf(does(pass, "set:300", "tcp"), does(deny, "any", "tcp/80")), ingressOf("a", rule("set:301", "tcp/79-81"), rule("set:300", "tcp/80"), rule("any", "udp"))},
		`permit tcp set:12c -> any port 80; a1 x0
permit tcp C -> any port 80; a0 x0
permit tcp C -> any port 80; a0 x1
permit tcp C -> any port 80; a1 x1
deny tcp set:node -> any port 80; a! x1
deny tcp any -> any port 80; x1
permit tcp set:12d -> any port 79-81; a0
permit udp any -> any; a2
deny any any -> any; a!
`},
	{"a pass of blocks", []*api.ContivPolicy{
		adminOf(does(pass, "10.0.0.0/8", "any"), does(deny, "any", "any")), ingressOf("a", rule("10.1.0.0/16 11.0.0.0/8 set:300", "any"))},
		`permit any C -> any; a0 x0
permit any 10.1.0.0/16 -> any; a0 x0
deny any 10.0.0.0/8 -> any; a! x0
permit any C -> any; a0 x1
permit any C -> any; a0 x1
permit any C -> any; a0 x1
deny any set:node -> any; a! x1
deny any any -> any; x1
`},
	{"a pass to the baseline, whose pass permits", []*api.ContivPolicy{
		adminOf(does(pass, "set:300", "any"), does(deny, "any", "any")), baselineOf(does(pass, "set:300", "tcp/80"), does(deny, "any", "tcp"))},
		`permit tcp set:12c -> any port 80; b0 x0
permit tcp C -> any; b1 x0
deny tcp set:12c -> any; b1 x0
permit any set:12c -> any; x0
permit tcp set:node -> any; b1 x1
permit any set:node -> any; x1
deny any any -> any; x1
`},
	{"the baseline decides where nothing isolates", []*api.ContivPolicy{baselineOf(does(allow, "set:300", "any"), does(deny, "any", "any"))},
		"permit any set:12c -> any; b0\npermit any set:node -> any; b1\ndeny any any -> any; b1\n"},
	{"and not where something does", []*api.ContivPolicy{baselineOf(does(deny, "any", "any")), ingressOf("a", rule("set:300", "any"))},
		"permit any set:12c -> any; a0\ndeny any any -> any; a!\n"},
	{"what is decided above is not said again", []*api.ContivPolicy{
		adminOf(does(deny, "any", "tcp/80"), does(allow, "set:300", "tcp/80"), does(deny, "set:300", "tcp/80-81")), ingressOf("a", rule("any", "tcp/80"))},
		"permit tcp set:node -> any port 80; a0 x0\ndeny tcp any -> any port 80; x0\ndeny tcp set:12c -> any port 80-81; x2\ndeny any any -> any; a!\n"},
	{"a deny of a block that is not known denies everyone", []*api.ContivPolicy{
		adminOf(api.PolicyRule{Action: deny, Blocks: []api.IPBlock{{}}, Ports: tcpPorts(80)}), ingressOf("a", rule("any", "any"))},
		"deny tcp any -> any port 80; x0\npermit any any -> any; a0\n"},
}

func TestGenerateOfTiers(t *testing.T) {
	for _, tt := range tierTests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tierText(generate(api.Ingress, tt.policies, false))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// tierText shortens the IDs of sets, with C for an intersection.
func tierText(g *generated) string {
	text := g.text()
	if g == nil {
		return text
	}
	for _, s := range g.sets {
		text = strings.ReplaceAll(text, "set:"+s.id.String()+" = []\n", "")
		text = strings.ReplaceAll(text, "set:"+s.id.String(), "C")
	}
	return strings.ReplaceAll(text, "set:0000000000000", "set:")
}

// decided evaluates policies of all tiers directly from their definition.
func decided(d api.Direction, policies []*api.ContivPolicy, f api.Flow) bool {
	first := func(tier api.Tier) (api.RuleAction, bool) {
		var ordered []*api.ContivPolicy
		for _, p := range policies {
			if p.Tier == tier {
				ordered = append(ordered, p)
			}
		}
		slices.SortFunc(ordered, func(a, b *api.ContivPolicy) int {
			return cmp2.Or(cmp2.Compare(a.Priority, b.Priority), strings.Compare(a.ID.Name, b.ID.Name))
		})
		for _, p := range ordered {
			for _, r := range p.Rules(d) {
				if !peerMatches(r, d, f, inTestSet) || !portMatches(r, f) {
					continue
				}
				if d == api.Ingress && r.AnyPeer && r.Action == deny && inTestSet(api.NodeSet, f.Src) {
					return pass, true // rules for ingress never match the own node
				}
				return r.Action, true
			}
		}
		return 0, false
	}
	if action, ok := first(api.TierAdmin); ok && action != pass {
		return action == allow
	}
	if slices.ContainsFunc(policies, func(p *api.ContivPolicy) bool { return p.Tier == api.TierNetworkPolicy && p.Isolates(d) }) {
		return permitted(d, policies, f, inTestSet)
	}
	action, ok := first(api.TierBaseline)
	return !ok || action != deny
}

func drawTiers(t *rapid.T) []*api.ContivPolicy {
	policies := drawPolicies(t)
	for i := range rapid.IntRange(0, 4).Draw(t, "cluster policies") {
		var rules []api.PolicyRule
		for range rapid.IntRange(0, 4).Draw(t, "rules") {
			r := drawRule(t)
			r.Action = rapid.SampledFrom([]api.RuleAction{allow, deny, pass}).Draw(t, "action")
			rules = append(rules, r)
		}
		tier := rapid.SampledFrom([]api.Tier{api.TierAdmin, api.TierAdmin, api.TierBaseline}).Draw(t, "tier")
		policies = append(policies, tiered(string(rune('p'+i)), tier, rapid.IntRange(0, 2).Draw(t, "priority"), rules...))
	}
	return policies
}

func TestGenerateOfTiersMeansWhatTiersMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies := drawTiers(t)
		for _, d := range []api.Direction{api.Ingress, api.Egress} {
			g := generate(d, policies, false)
			for _, f := range propertyFlows(d) {
				want := decided(d, policies, f)
				got, by := g.evaluate(f)
				if got != want {
					t.Fatalf("%s %s: permitted is %t by %d, want %t; rules\n%s", d, f, got, by, want, g.text())
				}
			}
		}
	})
}

func TestGenerateOfTiersIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies := drawTiers(t)
		want := generate(api.Ingress, policies, true).text()
		shuffle(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), policies)
		if diff := cmp.Diff(want, generate(api.Ingress, policies, true).text()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestGenerateDeniesTooManyPasses(t *testing.T) {
	var rules []api.PolicyRule
	for i := range 300 {
		r := does(pass, "", "any")
		r.Sets = []api.SetID{api.SetID(1000 + i)}
		rules = append(rules, r, does(deny, "set:300", "tcp/80"))
	}
	rules = append(rules, does(deny, "any", "any"))
	permits := make([]api.PolicyRule, 300)
	for i := range permits {
		permits[i] = rule("", "any")
		permits[i].Sets = []api.SetID{api.SetID(5000 + i)}
	}
	g := generate(api.Ingress, []*api.ContivPolicy{adminOf(rules...), ingressOf("a", permits...)}, false)
	if len(g.refused) == 0 || g.rules.Len() > 2*maxExpanded {
		t.Errorf("%d rules are made, refused: %v", g.rules.Len(), g.refused)
	}
	if last := g.rules.Rules()[g.rules.Len()-1]; last.Action != api.Deny {
		t.Errorf("the last rule is %s", last)
	}
}

// TestOriginsOfPassesAreBounded: every rule that passes would have every rule that permits as
// an origin.
func TestOriginsOfPassesAreBounded(t *testing.T) {
	const many = 2000
	var passes, permits []api.PolicyRule
	for range many {
		passes, permits = append(passes, does(pass, "any", "any")), append(permits, rule("any", "any"))
	}
	passes = append(passes, does(deny, "any", "any"))
	g := generate(api.Ingress, []*api.ContivPolicy{adminOf(passes...), ingressOf("a", permits...)}, false)
	origins := 0
	for i := range g.rules.Len() {
		origins += len(g.rules.Origins(i))
	}
	if origins > 2*maxOrigins || len(g.refused) == 0 || !strings.Contains(g.refused[0].reason, "come from rules of policies more than 1048576 times") {
		t.Errorf("%d origins are kept, and refused is %d times", origins, len(g.refused))
	}
	if few := generate(api.Ingress, []*api.ContivPolicy{adminOf(passes[many-200:]...), ingressOf("a", permits...)}, false); len(few.refused) > 0 {
		t.Errorf("200 rules that pass and %d that permit are refused: %v", many, few.refused[0].reason)
	}
}

// TestListOfPeersTimesPortsIsBounded: a list with more rules than the limit is not written, it is
// closed.
func TestListOfPeersTimesPortsIsBounded(t *testing.T) {
	both := func(n int) *generated {
		r := api.PolicyRule{}
		for i := range n {
			r.Sets = append(r.Sets, api.SetID(1000+i))
			r.Ports = append(r.Ports, tcpPorts(uint16(1+2*i))...)
		}
		return generate(api.Ingress, []*api.ContivPolicy{ingressOf("a", r)}, false)
	}
	g := both(1500)
	if g.rules.Len() != 1 || g.rules.Rules()[0].Action != api.Deny || len(g.refused) != 1 || !strings.Contains(g.refused[0].reason, "has 2250000 rules, the limit is 2097152") {
		t.Errorf("%d rules are made, refused: %v", g.rules.Len(), g.refused)
	}
	if g := both(300); g.rules.Len() != 300*300+1 || len(g.refused) > 0 {
		t.Errorf("%d rules are made, refused: %v", g.rules.Len(), g.refused)
	}
}

// testSets are the sets of properties.
type testSets struct{}

func (testSets) Members(id api.SetID) (dst []netip.Addr) {
	for i := range byte(17) {
		if a := netip.AddrFrom4([4]byte{10, 0, 0, i}); inTestSet(id, a) {
			dst = append(dst, a)
		}
	}
	return dst
}

func (testSets) Contains(id api.SetID, a netip.Addr) bool { return inTestSet(id, a) }

// recordedSets records the sets that it receives, as the processor does.
type recordedSets map[api.SetID]map[netip.Addr]bool

func (s recordedSets) Members(id api.SetID) (dst []netip.Addr) {
	for a := range s[id] {
		dst = append(dst, a)
	}
	return dst
}

func (s recordedSets) Contains(id api.SetID, a netip.Addr) bool { return s[id][a] }

// tell changes a set in the model and in a transaction.
func (s recordedSets) tell(id api.SetID, added, removed string) func(*Txn) {
	return func(t *Txn) {
		if s[id] == nil {
			s[id] = map[netip.Addr]bool{}
		}
		var in, out []netip.Prefix
		for text := range strings.FieldsSeq(added) {
			a := netip.MustParseAddr(text)
			s[id][a], in = true, append(in, netip.PrefixFrom(a, a.BitLen()))
		}
		for text := range strings.FieldsSeq(removed) {
			a := netip.MustParseAddr(text)
			delete(s[id], a)
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
		t.UpdateSet(id, in, out)
	}
}

// TestCommonSetFollowsItsSets changes the parts of the intersection of a pass and a
// NetworkPolicy.
func TestCommonSetFollowsItsSets(t *testing.T) {
	sets := recordedSets{}
	r := renderertest.NewRecorder("one", t)
	f := &fixture{t, New(Options{Sets: sets}), r}
	policies := []*api.ContivPolicy{adminOf(does(pass, "set:300", "any"), does(deny, "any", "any")), ingressOf("a", rule("set:301 10.7.0.0/16", "any"))}
	f.commit(sets.tell(300, "10.0.0.1 10.0.0.2 10.7.0.1", ""), sets.tell(301, "10.0.0.2 10.0.0.3", ""), configure(0, policies...))
	common := func() string {
		var out []string
		for id, members := range f.r.Sets() {
			if id != 300 && id != 301 {
				for _, m := range members {
					out = append(out, m.Addr().String())
				}
			}
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	for _, step := range []struct {
		name string
		do   []func(*Txn)
		want string
	}{
		{"at first", nil, "10.0.0.2 10.7.0.1"},
		{"one joins the second part", []func(*Txn){sets.tell(301, "10.0.0.1", "")}, "10.0.0.1 10.0.0.2 10.7.0.1"},
		{"one joins both", []func(*Txn){sets.tell(301, "10.0.0.9", ""), sets.tell(300, "10.0.0.9", "")}, "10.0.0.1 10.0.0.2 10.0.0.9 10.7.0.1"},
		{"one leaves one part and another joins it", []func(*Txn){sets.tell(300, "10.0.0.3 10.7.9.9", "10.0.0.1 10.7.0.1")}, "10.0.0.2 10.0.0.3 10.0.0.9 10.7.9.9"},
		{"the same again", []func(*Txn){configure(0, policies...)}, "10.0.0.2 10.0.0.3 10.0.0.9 10.7.9.9"},
		{"a part is empty", []func(*Txn){sets.tell(301, "", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.9")}, "10.7.9.9"},
		{"nobody needs it", []func(*Txn){configure(0)}, ""},
		{"it is needed again", []func(*Txn){sets.tell(301, "10.0.0.3", ""), configure(0, policies...)}, "10.0.0.3 10.7.9.9"},
	} {
		if len(step.do) > 0 {
			f.commit(step.do...)
		}
		if got := common(); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	if n := len(f.c.interner.derived.partOf); n != 3 { // 300, 301 and that of the node
		t.Errorf("%d sets are parts, want 3", n)
	}
	f.commit(configure(0))
	if len(f.c.interner.derived.partOf)+len(f.c.interner.derived.byID) != 0 {
		t.Error("sets that nobody needs are kept")
	}
}
