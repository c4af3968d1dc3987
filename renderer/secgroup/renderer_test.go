package secgroup_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/tests/lab/secgrouptest"
)

// exact has no limit that random rules reach.
const exact = 1 << 20

func stack(t testing.TB, o secgroup.Options) *secgrouptest.Stack {
	t.Helper()
	s, err := secgrouptest.NewStack(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pooled() secgroup.Options {
	return secgroup.Options{DefaultGroups: []string{secgrouptest.Default}, MaxRules: exact}
}

// A security group has each pair of a peer and ports, so that some random states take a hundred
// thousand rules, and seconds for each step.
func init() {
	if renderertest.Few() {
		_ = flag.Set("rapid.checks", "8")
	}
}

func TestRendererConforms(t *testing.T) {
	grouped := pooled()
	grouped.AddressGroups = true
	for name, tt := range map[string]struct {
		options secgroup.Options
		late    bool
	}{
		"default groups":    {pooled(), false},
		"groups of its own": {secgroup.Options{MaxRules: exact}, false},
		"address groups":    {grouped, false},
		"answers are lost":  {pooled(), true},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && !tt.late && !tt.options.AddressGroups {
				t.Skip("-short tries two of four")
			}
			t.Parallel()
			renderertest.Run(t, func(t testing.TB) renderertest.Subject {
				s := stack(t, tt.options)
				s.Late = tt.late
				return s
			})
		})
	}
}

var (
	web   = api.PodID{Namespace: "shop", Name: "web"}
	other = api.PodID{Namespace: "shop", Name: "other"}
)

func ip(s string) netip.Addr       { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// from returns a list of permits from nets, and a last deny, as every list of the contract has.
func from(rules ...api.ContivRule) *renderer.RuleList {
	origins := make([][]api.Origin, len(rules)+1)
	for i := range origins {
		origins[i] = []api.Origin{{Policy: api.PolicyID{Namespace: "shop", Name: "p"}, Direction: api.Ingress, Rule: i}}
	}
	return renderer.NewRuleList(append(slices.Clone(rules), api.ContivRule{Action: api.Deny}), origins)
}

func permit(src string) api.ContivRule {
	return api.ContivRule{Action: api.Permit, Src: api.PrefixNet(prefix(src)), Protocol: api.TCP, DstPort: api.Port(80)}
}

// closedTo is a pod that may be reached from the nets alone.
func closedTo(addr string, nets ...string) renderer.PodConfig {
	var rules []api.ContivRule
	for _, n := range nets {
		rules = append(rules, permit(n))
	}
	return renderer.PodConfig{IPs: []netip.Addr{ip(addr)}, Egress: from(rules...)}
}

func commit(t *testing.T, s *secgrouptest.Stack, pods map[api.PodID]renderer.PodConfig) error {
	t.Helper()
	changes := renderer.Changes{}
	for pod, cfg := range pods {
		changes.Render(pod, cfg)
	}
	return s.Renderer().Apply(t.Context(), changes)
}

func must(t *testing.T, s *secgrouptest.Stack, pods map[api.PodID]renderer.PodConfig) []secgroup.Op {
	t.Helper()
	before, _ := s.Calls()
	if err := commit(t, s, pods); err != nil {
		t.Fatal(err)
	}
	after, _ := s.Calls()
	return after[len(before):]
}

func kinds(ops []secgroup.Op) (out []string) {
	for _, op := range ops {
		out = append(out, op.Kind.String())
	}
	return out
}

func flow(src, dst string, port uint16) api.Flow {
	return api.Flow{Src: ip(src), Dst: ip(dst), Protocol: api.TCP, SrcPort: 40000, DstPort: port}
}

func TestRendererSharesGroupsAndChangesThemInPlace(t *testing.T) {
	s := stack(t, pooled())
	ops := kinds(must(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.9/32"), other: closedTo("10.0.0.2", "10.0.0.9/32")}))
	want := []string{"create security group", "create rules of security group", "set security groups of port", "set security groups of port"}
	if !slices.Equal(ops, want) { // the egress rules of a new group are what the pods need
		t.Errorf("two pods with equal rules: %q, want %q", ops, want)
	}
	ops = kinds(must(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.8/32"), other: closedTo("10.0.0.2", "10.0.0.8/32")}))
	if want := []string{"create rules of security group", "delete security group rule"}; !slices.Equal(ops, want) {
		t.Errorf("a change of the rules of both: %q, want %q", ops, want)
	}
	ops = kinds(must(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.7/32")}))
	if want := []string{"create security group", "create rules of security group", "set security groups of port"}; !slices.Equal(ops, want) {
		t.Errorf("a change of the rules of one: %q, want %q", ops, want)
	}
	ops = kinds(must(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.8/32")}))
	if want := []string{"set security groups of port", "delete security group"}; !slices.Equal(ops, want) {
		t.Errorf("back again: %q, want %q", ops, want)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	changes := renderer.Changes{Resync: true}
	changes.Render(web, closedTo("10.0.0.1", "10.0.0.8/32"))
	changes.Render(other, closedTo("10.0.0.2", "10.0.0.8/32"))
	before, _ := s.Calls()
	if err := s.Renderer().Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	if after, _ := s.Calls(); len(after) != len(before) {
		t.Errorf("a restart with nothing changed: %q", kinds(after[len(before):]))
	}
}

// TestRendererNamesEachAddressGroup has a rule that no packet can match: ICMP from a set of IPv6
// addresses. Its address group would be one that no rule names.
func TestRendererNamesEachAddressGroup(t *testing.T) {
	o := pooled()
	o.AddressGroups = true
	s := stack(t, o)
	changes := renderer.Changes{}
	six, both := api.NewSetID("six"), api.NewSetID("both")
	changes.UpdateSet(six, []netip.Prefix{prefix("fd00::1/128")}, nil)
	changes.UpdateSet(both, []netip.Prefix{prefix("fd00::1/128"), prefix("10.0.0.9/32")}, nil)
	icmp := func(set api.SetID) api.ContivRule {
		return api.ContivRule{Action: api.Permit, Src: api.SetNet(set), Protocol: api.ICMP}
	}
	changes.Render(web, renderer.PodConfig{IPs: []netip.Addr{ip("10.0.0.1")}, Egress: from(icmp(six), icmp(both))})
	if err := s.Renderer().Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	created := 0
	ops, _ := s.Calls()
	for _, op := range ops {
		if op.Kind == secgroup.CreateAddressGroup {
			created++
		}
	}
	if created != 1 {
		t.Errorf("%d address groups were made, want that of the set with IPv4: %v", created, ops)
	}
}

func TestRendererIsolatesOneDirectionOnly(t *testing.T) {
	s := stack(t, secgroup.Options{})
	must(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1")})
	if s.Passes(flow("10.0.0.2", "10.0.0.1", 80)) || !s.Passes(flow("10.0.0.1", "10.0.0.2", 80)) {
		t.Errorf("ingress alone is isolated, and the groups are\n%s", s.Neutron.Installed())
	}
}

// TestRendererClosesWhatExplodes: too many rules close a direction, and the rules are reported.
func TestRendererClosesWhatExplodes(t *testing.T) {
	s := stack(t, secgroup.Options{MaxRules: 600})
	deny := api.ContivRule{Src: api.PrefixNet(prefix("10.9.0.1/32")), Protocol: api.TCP, DstPort: api.Port(22)}
	all := api.ContivRule{Action: api.Permit}
	// Any remote but one address, for 250 protocols: those that no policy can name are left out.
	must(t, s, map[api.PodID]renderer.PodConfig{web: {IPs: []netip.Addr{ip("10.0.0.1")}, Egress: from(deny, all)}})
	gre := api.Flow{Src: ip("10.9.0.2"), Dst: ip("10.0.0.1"), Protocol: 47}
	if !s.Passes(flow("10.9.0.1", "10.0.0.1", 23)) || s.Passes(flow("10.9.0.1", "10.0.0.1", 22)) || !s.Passes(flow("10.9.0.2", "10.0.0.1", 22)) || s.Passes(gre) {
		t.Errorf("denied is more than the rule and the protocols without names, or less:\n%s", s.Neutron.Installed())
	}
	report := func(want string) {
		t.Helper()
		u := s.Groups.Unenforced()
		if len(u) == 0 || !strings.Contains(u[0].Reason, want) || u[0].Effect != renderer.EffectClosed || u[0].Class != api.ClassLimit || u[0].Pods != 1 {
			t.Errorf("reported is %+v, want %q", u, want)
		}
	}
	report("every protocol other than")
	var rules []api.ContivRule
	for i := range 400 {
		rules = append(rules, permit(fmt.Sprintf("10.%d.%d.0/24", 1+i/100, 2*(i%100))))
	}
	must(t, s, map[api.PodID]renderer.PodConfig{web: {IPs: []netip.Addr{ip("10.0.0.1")}, Egress: from(rules...)}})
	if s.Passes(flow("10.1.0.1", "10.0.0.1", 80)) || !s.Passes(flow("10.0.0.1", "10.1.0.1", 80)) {
		t.Errorf("a direction with too many rules is not closed, or the other one is:\n%s", s.Neutron.Installed())
	}
	report("too many rules of security groups")
	must(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1")})
	if u := s.Groups.Unenforced(); len(u) != 0 {
		t.Errorf("reported is still %+v", u)
	}
}

// TestRendererClosesTheDearestListsOfANamespace: what its lists may become together is bounded, so that
// those of other namespaces are made in time.
func TestRendererClosesTheDearestListsOfANamespace(t *testing.T) {
	s := stack(t, secgroup.Options{})
	pods := map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.9.0.0/16")}
	const n, rules = 67, 2000 // 131 789 rules, where a namespace may have 131 072
	for i := range n {
		var permits []api.ContivRule
		for port := range rules - i {
			permits = append(permits, api.ContivRule{Action: api.Permit, Src: api.PrefixNet(prefix("10.9.0.0/16")), Protocol: api.TCP, DstPort: api.Port(uint16(2*port + 1))})
		}
		pods[api.PodID{Namespace: "big", Name: fmt.Sprint(i)}] = renderer.PodConfig{IPs: []netip.Addr{ip(fmt.Sprintf("10.0.1.%d", i))}, Egress: from(permits...)}
	}
	must(t, s, pods)
	if !s.Passes(flow("10.9.0.1", "10.0.0.1", 80)) || !s.Passes(flow("10.9.0.1", "10.0.1.66", 1)) {
		t.Error("another namespace, or the cheapest list, is closed")
	}
	if s.Passes(flow("10.9.0.1", "10.0.1.0", 1)) {
		t.Error("the dearest list is open")
	}
	u := s.Groups.Unenforced()
	if len(u) != rules || !strings.Contains(u[0].Reason, "the lists of namespace big may become 131072") || u[0].Effect != renderer.EffectClosed {
		t.Fatalf("%d rules are reported, the first is %+v", len(u), u[:min(len(u), 1)])
	}
	must(t, s, map[api.PodID]renderer.PodConfig{{Namespace: "big", Name: "0"}: closedTo("10.0.1.0"), {Namespace: "big", Name: "1"}: closedTo("10.0.1.1"),
		{Namespace: "big", Name: "2"}: closedTo("10.0.1.2"), {Namespace: "big", Name: "3"}: closedTo("10.0.1.3")})
	if u := s.Groups.Unenforced(); len(u) != 0 || !s.Passes(flow("10.9.0.1", "10.0.1.4", 1)) {
		t.Errorf("after lists have gone %d rules are reported", len(u))
	}
}

// TestRendererReportsSourcePorts: no security group matches them.
func TestRendererReportsSourcePorts(t *testing.T) {
	s := stack(t, secgroup.Options{})
	open := permit("10.0.0.2/32")
	open.SrcPort = api.Port(53)
	must(t, s, map[api.PodID]renderer.PodConfig{web: {IPs: []netip.Addr{ip("10.0.0.1")}, Egress: from(open)}})
	if u := s.Groups.Unenforced(); s.Passes(flow("10.0.0.2", "10.0.0.1", 80)) || len(u) != 1 || u[0].Class != api.ClassDataplane || u[0].Origin.Rule != 0 {
		t.Errorf("a permit from a source port: reported %+v", u)
	}
}

func TestRendererRepairsDriftAndLeavesOthersAlone(t *testing.T) {
	s := stack(t, pooled())
	pods := map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.9/32")}
	must(t, s, pods)
	foreign := ""
	for what, edit := range map[string]func(map[string]*secgroup.Group, map[string]*secgroup.Port){
		"a rule more": func(groups map[string]*secgroup.Group, _ map[string]*secgroup.Port) {
			for _, g := range groups {
				if strings.HasPrefix(g.Name, "sluice/test/") {
					g.Rules = append(g.Rules, secgroup.InstalledRule{ID: "x", Rule: secgroup.Rule{Direction: api.Ingress}})
				}
			}
		},
		"a rule less": func(groups map[string]*secgroup.Group, _ map[string]*secgroup.Port) {
			for _, g := range groups {
				if strings.HasPrefix(g.Name, "sluice/test/") {
					g.Rules = g.Rules[:1]
				}
			}
		},
		"the group is gone": func(groups map[string]*secgroup.Group, ports map[string]*secgroup.Port) {
			for id, g := range groups {
				if strings.HasPrefix(g.Name, "sluice/test/") {
					delete(groups, id)
				}
			}
			for _, p := range ports {
				p.Groups = []string{secgrouptest.Default}
			}
		},
		"another group": func(groups map[string]*secgroup.Group, ports map[string]*secgroup.Port) {
			groups["foreign"] = &secgroup.Group{ID: "foreign", Name: "sluice/test2/1", Rules: []secgroup.InstalledRule{{ID: "y", Rule: secgroup.Rule{}}}}
			for _, p := range ports {
				p.Groups = append(p.Groups, "foreign")
			}
		},
	} {
		want := s.Neutron.Installed()
		s.Edit(func(groups map[string]*secgroup.Group, _ map[string]*secgroup.AddressGroup, ports map[string]*secgroup.Port) {
			edit(groups, ports)
		})
		s.Groups.Refresh()
		if ops := must(t, s, nil); len(ops) == 0 || s.Neutron.Installed() != want {
			t.Errorf("%s: after %q the groups are\n%s\nwant\n%s", what, kinds(ops), s.Neutron.Installed(), want)
		}
		if len(s.Groups.State().Drift) == 0 {
			t.Errorf("%s: no drift is counted", what)
		}
		s.Groups.Refresh()
		if ops := must(t, s, nil); len(ops) > 0 {
			t.Errorf("%s: repaired again: %q", what, kinds(ops))
		}
	}
	s.Edit(func(groups map[string]*secgroup.Group, _ map[string]*secgroup.AddressGroup, _ map[string]*secgroup.Port) {
		if groups["foreign"] != nil {
			foreign = groups["foreign"].Name
		}
		if len(groups["foreign"].Rules) != 1 || groups[secgrouptest.Default] == nil {
			t.Error("groups of others were changed")
		}
	})
	if foreign == "" {
		t.Error("the group of another cluster is gone")
	}
}

// TestRendererClosesWhatHasNoQuota: pods without a group of ours are closed, others keep theirs.
func TestRendererClosesWhatHasNoQuota(t *testing.T) {
	s := stack(t, pooled())
	must(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.9/32")})
	full := true
	s.Hook = func(op secgroup.Op) error {
		if full && op.Kind == secgroup.CreateRules {
			return fmt.Errorf("500 rules: %w", secgroup.ErrQuota)
		}
		return nil
	}
	err := commit(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.8/32"), other: closedTo("10.0.0.2", "10.0.0.9/32", "10.0.0.7/32")})
	if !errors.Is(err, secgroup.ErrQuota) || renderer.IsRefused(err) {
		t.Fatalf("the error is %v, want one of the quota that is tried again", err)
	}
	if !s.Passes(flow("10.0.0.9", "10.0.0.1", 80)) || s.Passes(flow("10.0.0.8", "10.0.0.1", 80)) {
		t.Error("a pod with a group does not keep it")
	}
	if s.Passes(flow("10.0.0.9", "10.0.0.2", 80)) {
		t.Error("a new pod is open")
	}
	full = false
	must(t, s, nil)
	if !s.Passes(flow("10.0.0.9", "10.0.0.2", 80)) || !s.Passes(flow("10.0.0.8", "10.0.0.1", 80)) || len(s.Dangling()) > 0 {
		t.Errorf("with quota again it is not enforced, or leaves %q", s.Dangling())
	}
}

// TestRendererWaitsForPorts: a pod without one is reported, and protected when it comes.
func TestRendererWaitsForPorts(t *testing.T) {
	s := stack(t, pooled())
	changes := renderer.Changes{} // beside the stack, which makes ports
	changes.Render(web, closedTo("10.0.0.1"))
	if err := s.Groups.Apply(t.Context(), changes); !errors.Is(err, renderer.ErrNoInterface) || !s.Groups.State().Waits(web) {
		t.Fatalf("a pod without a port: %v", err)
	}
	s.SetPorts(map[netip.Addr]bool{ip("10.0.0.1"): true}, true)
	if err := s.Groups.Apply(t.Context(), renderer.Changes{}); err != nil || s.Passes(flow("10.0.0.9", "10.0.0.1", 80)) {
		t.Errorf("its port is there, and it is open: %v", err)
	}
	s.Edit(func(_ map[string]*secgroup.Group, _ map[string]*secgroup.AddressGroup, ports map[string]*secgroup.Port) {
		ports["twin"] = &secgroup.Port{ID: "twin", IPs: []netip.Addr{ip("10.0.0.1")}, Groups: []string{secgrouptest.Default}}
	})
	s.Groups.Refresh()
	err := s.Groups.Apply(t.Context(), renderer.Changes{})
	if !errors.Is(err, secgroup.ErrSharedPort) || s.Passes(flow("10.0.0.9", "10.0.0.1", 80)) {
		t.Errorf("two ports with its address: %v", err)
	}
	s.Edit(func(_ map[string]*secgroup.Group, _ map[string]*secgroup.AddressGroup, ports map[string]*secgroup.Port) {
		delete(ports, "twin")
		for _, p := range ports {
			p.Unprotected = true
		}
	})
	s.Groups.Refresh()
	if err := s.Groups.Apply(t.Context(), renderer.Changes{}); !errors.Is(err, renderer.ErrNoInterface) {
		t.Errorf("a port without port security: %v", err)
	}
}

// TestRendererFinishesWhatItBegan: bulk creations that work, but whose answers are lost, do not
// make it begin again.
func TestRendererFinishesWhatItBegan(t *testing.T) {
	s := stack(t, pooled())
	s.Late = true
	var nets []string
	for i := range 250 {
		nets = append(nets, fmt.Sprintf("10.%d.%d.0/25", 9+i/125, 2*(i%125)))
	}
	pods := map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", nets...)}
	for _, call := range []int{3, 2} { // after the inventory, and the creation of the group
		s.FailNext(call)
		if err := commit(t, s, pods); err == nil {
			t.Fatal("no call failed")
		}
	}
	s.FailNext(0)
	must(t, s, nil)
	ops, _ := s.Calls()
	count := map[secgroup.OpKind]int{}
	for _, op := range ops {
		count[op.Kind]++
	}
	if count[secgroup.CreateGroup] != 1 || count[secgroup.CreateRules] != 3 || !s.Passes(flow("10.9.0.1", "10.0.0.1", 80)) {
		t.Errorf("the calls were %q", kinds(ops))
	}
}

// TestRendererStopsWhereNothingAnswers: a Neutron that fails is not asked about every port.
func TestRendererStopsWhereNothingAnswers(t *testing.T) {
	s := stack(t, pooled())
	asked, down := 0, true
	s.Hook = func(op secgroup.Op) error {
		if op.Kind != secgroup.SetGroups || !down {
			return nil
		}
		asked++
		return context.DeadlineExceeded
	}
	pods := map[api.PodID]renderer.PodConfig{}
	for i := range 50 {
		pods[api.PodID{Namespace: "shop", Name: fmt.Sprint(i)}] = closedTo(fmt.Sprintf("10.0.1.%d", i))
	}
	if err := commit(t, s, pods); !errors.Is(err, context.DeadlineExceeded) || asked > 5 || len(err.Error()) > 1000 {
		t.Errorf("asked about %d ports, error %.300v", asked, err)
	}
	down = false
	must(t, s, nil)
	if s.Passes(flow("10.0.0.9", "10.0.1.49", 80)) {
		t.Error("a port was forgotten")
	}
}

// TestRendererPermitsTheOwnNodeOnly: with NodeOf, pods with equal policies on other nodes have
// other groups.
func TestRendererPermitsTheOwnNodeOnly(t *testing.T) {
	o := secgroup.Options{NodeOf: func(p api.PodID) []netip.Addr {
		if p == web {
			return []netip.Addr{ip("192.168.0.1")}
		}
		return []netip.Addr{ip("192.168.0.2")}
	}}
	for _, o.AddressGroups = range []bool{false, true} {
		s := stack(t, o)
		node := from(api.ContivRule{Action: api.Permit, Src: api.SetNet(api.NodeSet)})
		changes := renderer.Changes{}
		changes.UpdateSet(api.NodeSet, []netip.Prefix{prefix("192.168.0.1/32"), prefix("192.168.0.2/32")}, nil)
		changes.Render(web, renderer.PodConfig{IPs: []netip.Addr{ip("10.0.0.1")}, Egress: node})
		changes.Render(other, renderer.PodConfig{IPs: []netip.Addr{ip("10.0.0.2")}, Egress: node})
		if err := s.Renderer().Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
		if !s.Passes(flow("192.168.0.1", "10.0.0.1", 80)) || s.Passes(flow("192.168.0.1", "10.0.0.2", 80)) {
			t.Errorf("not the own node alone:\n%s", s.Neutron.Installed())
		}
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	api := secgrouptest.NewNeutron()
	for want, o := range map[string]secgroup.Options{
		"no Neutron":      {Cluster: "c"},
		"invalid cluster": {API: api, Cluster: "a/b\x1b[2J" + strings.Repeat("x", 1<<20)},
		"at most 1 rules": {API: api, Cluster: "c", MaxRules: 1},
		"exempt traffic":  {API: api, Cluster: "c", Infra: renderer.Infra{Addresses: []netip.Prefix{prefix("0.0.0.0/0")}}},
	} {
		if _, err := secgroup.New(o); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%s: error %.200v", want, err)
		}
	}
}

// TestRendererLosesNothingWhenItsContextHasEnded: the next commit does it all.
func TestRendererLosesNothingWhenItsContextHasEnded(t *testing.T) {
	s := stack(t, pooled())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	changes := renderer.Changes{}
	changes.Render(web, closedTo("10.0.0.1"))
	if err := s.Renderer().Apply(ctx, changes); !errors.Is(err, context.Canceled) {
		t.Fatalf("apply: %v", err)
	}
	must(t, s, nil)
	if s.Passes(flow("10.0.0.9", "10.0.0.1", 80)) {
		t.Error("the change is lost")
	}
}
