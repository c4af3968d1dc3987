package cache

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// put stages pods and returns the plan.
func put(c *Cache, pods map[string]renderer.PodConfig) Plan {
	for name, cfg := range pods {
		c.SetPod(id(name), cfg)
	}
	return c.Compute()
}

func TestPodWithoutRestrictionHasNoTable(t *testing.T) {
	open := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Protocol: api.TCP}, {Action: api.Permit}}, nil)
	c := New(api.Egress)
	p := put(c, map[string]renderer.PodConfig{
		"a": {IPs: ips("10.0.0.1")},
		"b": {IPs: ips("10.0.0.2"), Ingress: open, Egress: open},
	})
	if len(p.Pods) != 2 || len(p.Added)+len(p.Bindings) > 0 || c.Desired().Global != nil {
		t.Errorf("open pods need %+v", p)
	}
}

func TestPodsWithEqualListsShareOneTable(t *testing.T) {
	cfg := renderer.PodConfig{Ingress: allowOnly(destination, api.SetNet(1000), api.Port(53)), Egress: allowOnly(source, api.SetNet(1000), api.Port(80))}
	c := New(api.Egress)
	for i := range 20 {
		cfg.IPs = []netip.Addr{localAddr(i + 1)}
		c.SetPod(id(string(rune('a'+i))), cfg)
	}
	if p := c.Compute(); len(p.Added) != 1 || len(p.Added[0].Pods) != 20 || len(p.Bindings) != 20 {
		t.Errorf("the plan adds %d tables for 20 equal pods", len(p.Added))
	}
}

func TestPodThatIsOpenDeniesRestrictedLocalPods(t *testing.T) {
	c := New(api.Egress)
	put(c, map[string]renderer.PodConfig{
		"p":  {IPs: ips("10.0.0.1")},
		"q1": {IPs: ips("10.0.0.4"), Ingress: denyAll()},
		"q2": {IPs: ips("10.0.0.5"), Ingress: denyAll()},
		"q3": {IPs: ips("10.0.0.6"), Ingress: allowOnly(destination, api.Net{}, api.Port(53))},
	})
	net := func(s string) api.Net { return api.PrefixNet(netip.MustParsePrefix(s)) }
	want := []api.ContivRule{
		{Action: api.Deny, Src: net("10.0.0.4/31")},
		{Action: api.Permit, Src: net("10.0.0.6/32"), Protocol: api.TCP, DstPort: api.Port(53)},
		{Action: api.Deny, Src: net("10.0.0.6/32")},
		{Action: api.Permit},
	}
	if d := cmp.Diff(want, c.Desired().Pods[id("p")].Rules, netips); d != "" {
		t.Error(d)
	}
}

func TestAddressOfPodIsNamedOnlyWhereNeeded(t *testing.T) {
	toOne := allowOnly(destination, api.PrefixNet(netip.MustParsePrefix("10.0.0.1/32")), api.AnyPort)
	for name, c := range map[string]struct {
		ips  []netip.Addr
		want bool
	}{
		"one address per family":           {ips("10.0.0.1", "fd00::1"), false},
		"two addresses that are alike":     {ips("10.0.0.2", "10.0.0.3"), false},
		"two addresses that are not alike": {ips("10.0.0.1", "10.0.0.2"), true},
	} {
		t.Run(name, func(t *testing.T) {
			k := New(api.Egress)
			put(k, map[string]renderer.PodConfig{"p": {IPs: c.ips}, "q": {IPs: ips("10.0.0.9", "fd00::9"), Ingress: toOne}})
			rules := k.Desired().Pods[id("p")].Rules
			if got := slices.ContainsFunc(rules, func(r api.ContivRule) bool { return !r.Dst.IsAny() }); got != c.want {
				t.Errorf("own addresses named: %v, want %v: %v", got, c.want, rules)
			}
		})
	}
}

func TestGlobalTableNamesPodsOfListAsSet(t *testing.T) {
	c := New(api.Egress)
	l := denyAll()
	put(c, map[string]renderer.PodConfig{"a": {IPs: ips("10.0.0.1"), Ingress: l}, "b": {IPs: ips("10.0.0.2"), Ingress: l}})
	g := c.Desired().Global
	if g == nil || len(g.Rules) != 2 || len(g.Sets) != 1 || !slices.Equal(g.Parts, []int{0, 1}) {
		t.Fatalf("the global table is %+v", g)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32")}
	if got := c.sets.membersOf(g.Sets[0]); !slices.Equal(got, want) {
		t.Errorf("its set has %v, want %v", got, want)
	}
	c.Acknowledge()
	c.RemovePod(id("b"))
	if p := c.Compute(); !slices.Equal(p.Sets, g.Sets) || p.Global.From != p.Global.To {
		t.Errorf("a pod that goes changes more than the set: %+v", p)
	}
	c.Acknowledge()
	c.RemovePod(id("a"))
	if p := c.Compute(); p.Global.To != nil || p.Global.From == nil {
		t.Errorf("the global table stays without pods: %+v", p.Global)
	}
}

func TestTableIsReplacedInPlace(t *testing.T) {
	c := New(api.Egress)
	first, second := allowOnly(source, api.Net{}, api.Port(80)), allowOnly(source, api.Net{}, api.Port(81))
	put(c, map[string]renderer.PodConfig{"a": {IPs: ips("10.0.0.1"), Egress: first}, "b": {IPs: ips("10.0.0.2"), Egress: first}})
	c.Acknowledge()
	t.Run("one of two pods changes: a new table", func(t *testing.T) {
		p := put(c, map[string]renderer.PodConfig{"a": {IPs: ips("10.0.0.1"), Egress: second}})
		if len(p.Added) != 1 || len(p.Replaced) != 0 || len(p.Removed) != 0 || len(p.Bindings) != 1 {
			t.Errorf("plan: %+v", p)
		}
	})
	t.Run("both change: in place", func(t *testing.T) {
		p := put(c, map[string]renderer.PodConfig{"b": {IPs: ips("10.0.0.2"), Egress: second}})
		if len(p.Added) != 0 || len(p.Replaced) != 1 || len(p.Removed) != 0 || len(p.Bindings) != 2 {
			t.Errorf("plan: %+v", p)
		}
	})
	t.Run("the sequence back leaves nothing to do", func(t *testing.T) {
		p := put(c, map[string]renderer.PodConfig{"a": {IPs: ips("10.0.0.1"), Egress: first}, "b": {IPs: ips("10.0.0.2"), Egress: first}})
		if !p.Empty() {
			t.Errorf("plan: %+v", p)
		}
	})
}

func TestTableSharedExplainsEachPodByItsPolicy(t *testing.T) {
	by := func(policy string) *renderer.RuleList {
		return renderer.NewRuleList([]api.ContivRule{{}}, [][]api.Origin{{{Policy: api.PolicyID{Namespace: "ns", Name: policy}, Rule: api.IsolationRule}}})
	}
	c := New(api.Egress)
	put(c, map[string]renderer.PodConfig{
		"a": {IPs: ips("10.0.0.1"), Egress: by("one")}, "b": {IPs: ips("10.0.0.2"), Egress: by("two")},
		"q": {IPs: ips("10.0.0.3"), Ingress: by("three")},
	})
	c.Acknowledge()
	for dst, want := range map[string]string{"10.0.0.1": "one", "10.0.0.2": "two", "192.0.2.1": "three"} {
		d := c.Evaluate(flow("10.0.0.3", dst, 80))
		if len(d) != 1 || d[0].Action != api.Deny || !slices.ContainsFunc(d[0].Origins, func(o api.Origin) bool { return o.Policy.Name == want }) {
			t.Errorf("to %s: %+v, want the policy %s", dst, d, want)
		}
	}
	if got := len(c.Installed().Tables); got != 2 { // a and b share; q has one against itself
		t.Errorf("%d tables, want 2", got)
	}
}

// TestExceptionNamesTheRulesThatItStemsFrom: of the rules of a peer, those with its action for its ports.
func TestExceptionNamesTheRulesThatItStemsFrom(t *testing.T) {
	origin := func(rule int) []api.Origin {
		return []api.Origin{{Policy: api.PolicyID{Namespace: "ns", Name: "p"}, Rule: rule}}
	}
	permit := func(first, last uint16) api.ContivRule {
		return api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: api.Ports(first, last)}
	}
	c := New(api.Egress)
	put(c, map[string]renderer.PodConfig{
		"a": {IPs: ips("10.0.0.1")},
		"q": {IPs: ips("10.0.0.2"), Ingress: renderer.NewRuleList(
			[]api.ContivRule{permit(80, 80), permit(90, 95), permit(94, 99), {}}, [][]api.Origin{origin(0), origin(1), origin(2), origin(api.IsolationRule)})},
	})
	c.Acknowledge()
	table, got := c.Installed().Pods[id("a")], map[string]int{}
	for n, r := range table.Rules {
		text := fmt.Sprint(r.DstPort, ":")
		for _, o := range table.Origins[n] {
			text += fmt.Sprint(" ", o.Rule)
		}
		if r.Src.IsAny() {
			continue // of all others
		}
		got[text]++
	}
	for _, want := range []string{"80: 0", "90-99: 1 2"} {
		if got[want] != 1 {
			t.Errorf("no exception is %q: %v", want, got)
		}
	}
}

// TestTableSharedNamesThePoliciesOfAllPods: a table of two pods with rules of their own, one with
// the rules of two other pods, and the global table.
func TestTableSharedNamesThePoliciesOfAllPods(t *testing.T) {
	by := func(policy string) *renderer.RuleList {
		return renderer.NewRuleList([]api.ContivRule{{}}, [][]api.Origin{{{Policy: api.PolicyID{Namespace: "ns", Name: policy}, Rule: api.IsolationRule}}})
	}
	c := New(api.Egress)
	put(c, map[string]renderer.PodConfig{
		"a": {IPs: ips("10.0.0.1"), Egress: by("one")}, "b": {IPs: ips("10.0.0.2"), Egress: by("two")},
		"p": {IPs: ips("10.0.0.3"), Ingress: by("three")}, "q": {IPs: ips("10.0.0.4"), Ingress: by("four")},
		"r": {IPs: ips("10.0.0.5")},
	})
	c.Acknowledge()
	named := func(t *Table) (out []string) {
		for _, origins := range t.Origins {
			for _, o := range origins {
				out = append(out, o.Policy.Name)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	l := c.Installed()
	for pod, want := range map[string][]string{"a": {"one", "two"}, "r": {"four", "three"}} {
		if got := named(l.Pods[id(pod)]); !slices.Equal(got, want) {
			t.Errorf("the table of %s names %v, want %v", pod, got, want)
		}
	}
	if got := named(l.Global); !slices.Equal(got, []string{"four", "three"}) {
		t.Errorf("the global table names %v", got)
	}
}

func TestAddressOfTwoPodsMayDoWhatBothMay(t *testing.T) {
	c := New(api.Egress)
	put(c, map[string]renderer.PodConfig{
		"p":     {IPs: ips("10.0.0.1")},
		"old":   {IPs: ips("10.0.0.2"), Ingress: allowOnly(destination, api.Net{}, api.Ports(80, 90))},
		"reuse": {IPs: ips("10.0.0.2"), Ingress: allowOnly(destination, api.Net{}, api.Ports(85, 95))},
	})
	c.Acknowledge()
	for port, want := range map[uint16]bool{80: false, 85: true, 90: true, 95: false} {
		if got := tablesPermit(c, flow("10.0.0.2", "10.0.0.1", port)); got != want {
			t.Errorf("port %d: %v, want %v", port, got, want)
		}
	}
}

func TestSetsThatNoTableNamesAreLeftOut(t *testing.T) {
	c := New(api.Egress)
	put(c, map[string]renderer.PodConfig{"a": {IPs: ips("10.0.0.1"), Egress: allowOnly(source, api.SetNet(1000), api.AnyPort)}})
	c.Acknowledge()
	member := []netip.Prefix{netip.MustParsePrefix("10.9.0.1/32")}
	c.UpdateSet(1000, member, nil)
	c.UpdateSet(1001, member, nil)
	if p := c.Compute(); !slices.Equal(p.Sets, []api.SetID{1000}) {
		t.Errorf("sets %v, want 1000", p.Sets)
	}
	if tables := c.Naming(1000); len(tables) != 1 || len(c.Naming(1001)) != 0 {
		t.Errorf("set 1000 is named by %d tables, want 1", len(tables))
	}
	c.UpdateSet(1000, nil, member)
	if p := c.Compute(); !p.Empty() {
		t.Errorf("a member that came and went leaves %+v", p)
	}
}

func TestCommitAcknowledgesOnlyItsPlan(t *testing.T) {
	c := New(api.Egress)
	put(c, map[string]renderer.PodConfig{"a": {IPs: ips("10.0.0.1"), Egress: denyAll()}})
	c.SetPod(id("b"), renderer.PodConfig{IPs: ips("10.0.0.2"), Egress: denyAll()})
	c.Acknowledge()
	if p := c.Compute(); len(p.Added) != 1 || len(p.Bindings) != 2 {
		t.Errorf("plan: %+v", p)
	}
}

func TestGlobalTableHasSharedAddressInOnePart(t *testing.T) {
	web, dns := allowOnly(destination, api.Net{}, api.Port(80)), allowOnly(destination, api.Net{}, api.Port(53))
	sizes := func(c *Cache) (out []int) {
		g := c.Desired().Global
		for _, first := range g.Parts[:len(g.Parts)-1] {
			out = append(out, len(c.sets.membersOf(g.Rules[first].Src.Set)))
		}
		return out
	}
	c := New(api.Egress)
	put(c, map[string]renderer.PodConfig{"a": {IPs: ips("10.0.0.1"), Ingress: web}})
	put(c, map[string]renderer.PodConfig{"b": {IPs: ips("10.0.0.1", "fd00::1"), Ingress: dns}})
	both := sizes(c)
	if len(both) != 2 || both[0]+both[1] != 2 {
		t.Errorf("of 2 addresses, parts have %v", both)
	}
	other := New(api.Egress)
	put(other, map[string]renderer.PodConfig{"b": {IPs: ips("10.0.0.1", "fd00::1"), Ingress: dns}})
	put(other, map[string]renderer.PodConfig{"a": {IPs: ips("10.0.0.1"), Ingress: web}})
	if again := sizes(other); !slices.Equal(both, again) {
		t.Errorf("in another order parts have %v, not %v", again, both)
	}
	c.RemovePod(id("b"))
	c.Compute()
	if alone := sizes(c); !slices.Equal(alone, []int{1}) {
		t.Errorf("the last pod has %v", alone)
	}
}
