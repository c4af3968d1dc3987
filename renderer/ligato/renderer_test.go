package ligato_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/ligato"
)

var update = flag.Bool("update", false, "write the golden file anew")

func pod(name string) api.PodID { return api.PodID{Namespace: "shop", Name: name} }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func host(s string) netip.Prefix { return netip.PrefixFrom(addr(s), addr(s).BitLen()) }

func cidr(s string) api.Net { return api.PrefixNet(netip.MustParsePrefix(s)) }

func list(rules ...api.ContivRule) *renderer.RuleList {
	return renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
}

func from(n api.Net, port uint16) api.ContivRule {
	return api.ContivRule{Action: api.Permit, Src: n, Protocol: api.TCP, DstPort: api.Port(port)}
}

func to(n api.Net, port uint16) api.ContivRule {
	return api.ContivRule{Action: api.Permit, Dst: n, Protocol: api.TCP, DstPort: api.Port(port)}
}

const clients = api.SetID(4711)

var shopPods = []api.PodID{pod("web-0"), pod("web-1"), pod("db"), pod("open")}

func render(x *renderer.Changes, name, ip string, ingress, egress *renderer.RuleList) {
	x.Render(pod(name), renderer.PodConfig{IPs: []netip.Addr{addr(ip)}, Ingress: ingress, Egress: egress})
}

// shop is a state with a shared table, a global table and an open pod.
func shop(x *renderer.Changes) {
	in := list(from(api.SetNet(clients), 80))
	render(x, "web-0", "10.0.0.1", nil, in)
	render(x, "web-1", "10.0.0.2", nil, in)
	render(x, "db", "10.0.0.3", list(to(cidr("10.0.0.0/8"), 53)), list(from(api.Net{}, 5432)))
	render(x, "open", "10.0.0.4", nil, nil)
	x.UpdateSet(clients, []netip.Prefix{host("10.0.0.4"), host("10.9.0.1")}, nil)
}

func nothing(*renderer.Changes) {}

func try(t testing.TB, s *subject, resync bool, fill func(*renderer.Changes)) error {
	x := renderer.Changes{Resync: resync}
	fill(&x)
	return s.Renderer().Apply(t.Context(), x)
}

func commit(t testing.TB, s *subject, resync bool, fill func(*renderer.Changes)) {
	t.Helper()
	if err := try(t, s, resync, fill); err != nil {
		t.Fatal(err)
	}
	if d := s.Dangling(); len(d) > 0 {
		t.Fatal(d)
	}
}

func open(t testing.TB, pods ...api.PodID) *subject {
	t.Helper()
	s := newSubject(t, pods...)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// steps returns what an Apply writes, in order; "" separates calls.
func (s *subject) steps(t testing.TB, resync bool, fill func(*renderer.Changes)) []string {
	t.Helper()
	s.tap.steps = nil
	commit(t, s, resync, fill)
	return s.tap.steps
}

// settle attaches pods after an Apply with an error.
func (s *subject) settle(t testing.TB) {
	t.Helper()
	if err := s.router.Attach(); err != nil {
		t.Fatal(err)
	}
	if d := s.Dangling(); len(d) > 0 {
		t.Error(d)
	}
}

func (s *subject) want(t testing.TB, src, dst string, port uint16, want api.Action) {
	t.Helper()
	f := api.Flow{Src: addr(src), Dst: addr(dst), Protocol: api.TCP, SrcPort: 40000, DstPort: port}
	if got := s.Verdict(f); got != want {
		t.Errorf("%s: %s, want %s", f, got, want)
	}
}

// keys returns what etcd holds for the agent, one line for each key.
func (s *subject) keys(t testing.TB) string {
	t.Helper()
	entries, _, err := etcd.List(t.Context(), "/vnf-agent/"+s.label+"/")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s\n%s\n", strings.Replace(e.Key, s.label, "vpp1", 1), e.Value)
	}
	return b.String()
}

// TestPublishedValuesHaveDocumentedForm compares everything that is published with a file, byte for
// byte: a vpp-agent reads it.
func TestPublishedValuesHaveDocumentedForm(t *testing.T) {
	s := open(t, pod("web"), pod("db"))
	commit(t, s, true, func(x *renderer.Changes) {
		any4and6 := api.ContivRule{Action: api.Permit, Protocol: api.UDP, SrcPort: api.Ports(1024, 65535), DstPort: api.Ports(8000, 8010)}
		x.Render(pod("web"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1"), addr("fd00::1")}, Egress: list(
			from(cidr("10.0.1.0/24"), 80), any4and6, from(api.SetNet(clients), 443),
			api.ContivRule{Action: api.Permit, Src: cidr("192.0.2.0/24"), Protocol: api.ICMP},
			api.ContivRule{Action: api.Permit, Src: cidr("2001:db8::/32"), Protocol: api.ICMPv6},
			api.ContivRule{Action: api.Permit, Src: cidr("192.0.2.0/24"), Protocol: 47},
			api.ContivRule{Action: api.Permit, Src: cidr("192.0.2.0/24"), Protocol: api.SCTP},
		)})
		x.Render(pod("db"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.2")}, Ingress: list(to(api.Net{}, 53))})
		x.UpdateSet(clients, []netip.Prefix{host("10.9.0.2"), host("10.9.0.3"), host("fd09::1")}, nil)
	})
	got := s.keys(t)
	const file = "testdata/published.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("(-file +published)\n%s", d)
	}
	// The form of a rule in vpp-agent's own documentation of the model.
	const rule = `{"action":"REFLECT","ip_rule":{"ip":{"destination_network":"0.0.0.0/0","source_network":"10.0.1.0/24"},` +
		`"tcp":{"destination_port_range":{"lower_port":80,"upper_port":80},"source_port_range":{"lower_port":0,"upper_port":65535}}}}`
	if !strings.Contains(got, rule) {
		t.Errorf("no rule is\n%s", rule)
	}
}

func TestCommitWritesOnlyChanges(t *testing.T) {
	s := open(t, append(shopPods, pod("web-2"))...)
	// 1 belongs to open, which db may reach on one port only; 2 belongs to db.
	const table = "sluice-table-3" // of web-0 and web-1
	for _, tc := range []struct {
		name string
		fill func(*renderer.Changes)
		want []string
	}{
		{"the first state", shop, []string{"", "put sluice-reflect", "", "put sluice-global", "put sluice-table-1", "put sluice-table-2", "put " + table}},
		{"nothing", nothing, nil},
		{"a member of a set that two pods share", func(x *renderer.Changes) { x.UpdateSet(clients, []netip.Prefix{host("10.9.0.7")}, nil) }, []string{"", "put " + table}},
		{"a member of a set that no table names", func(x *renderer.Changes) { x.UpdateSet(api.SetID(5), []netip.Prefix{host("10.9.0.7")}, nil) }, nil},
		{"a pod that shares a table", func(x *renderer.Changes) { render(x, "web-2", "10.0.0.9", nil, list(from(api.SetNet(clients), 80))) },
			[]string{"", "put sluice-reflect", "", "put " + table}},
		{"it goes", func(x *renderer.Changes) { x.Remove(pod("web-2")) }, []string{"", "put " + table, "", "put sluice-reflect"}},
		{"another address of an open pod", func(x *renderer.Changes) { render(x, "open", "10.0.0.5", nil, nil) }, nil},
		{"a pod opens in sending", func(x *renderer.Changes) { render(x, "db", "10.0.0.3", nil, list(from(api.Net{}, 5432))) },
			[]string{"", "put sluice-table-2", "", "delete sluice-global", "delete sluice-table-1", "", "put sluice-reflect"}},
		{"everything goes", func(x *renderer.Changes) {
			for _, p := range shopPods {
				x.Remove(p)
			}
		}, []string{"", "delete sluice-table-2", "delete " + table, "", "delete sluice-reflect"}},
	} {
		got := s.steps(t, tc.name == "the first state", tc.fill)
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, d)
		}
	}
}

func TestRendererRestartWritesNothing(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s, true, shop)
	before := s.keys(t)
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := s.steps(t, true, shop); got != nil {
		t.Errorf("after a restart: %v", got)
	}
	if d := cmp.Diff(before, s.keys(t)); d != "" {
		t.Error(d)
	}
}

// TestCommitRemovesLeftoversAndKeepsForeignKeys: leftovers of an earlier run, and unreadable values
// under names of ours, are replaced or removed; nothing else is touched.
func TestCommitRemovesLeftoversAndKeepsForeignKeys(t *testing.T) {
	s := open(t, shopPods...)
	prefix := s.tap.agent.prefix
	foreign := []model.Entry{
		{Key: prefix + "somebody", Value: []byte(`{"name":"somebody","rules":[{"action":"PERMIT"}],"interfaces":{"egress":["tap-shop-db"]}}`)},
		{Key: prefix + "sluic", Value: []byte("?")},
		{Key: strings.TrimSuffix(prefix, "config/vpp/acls/v2/acl/") + "config/vpp/v2/interfaces/sluice-table-1", Value: []byte("{}")},
		{Key: "/vnf-agent/" + s.label + "-2/config/vpp/acls/v2/acl/sluice-table-1", Value: []byte("{}")},
	}
	leftovers := []model.Entry{
		{Key: prefix + "sluice-table-1", Value: []byte("not JSON")},
		{Key: prefix + "sluice-table-9", Value: []byte(`{"name":"sluice-table-9","rules":[]}`)},
		{Key: prefix + "sluice-other", Value: []byte(`{"name":"sluice-other","rules":[{"action":"DENY","ip_rule":{}}],"interfaces":{}}`)},
		{Key: prefix + "sluice-reflect", Value: []byte(`{"name":"sluice-reflect","rules":[{"action":"DENY"}],"interfaces":{"ingress":["x"]}}`)},
	}
	if err := etcd.Write(t.Context(), slices.Concat(foreign, leftovers), nil); err != nil {
		t.Fatal(err)
	}
	if err := try(t, s, true, shop); err != nil {
		t.Fatal(err)
	}
	got, _, err := etcd.List(t.Context(), "/vnf-agent/"+s.label)
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]string{}
	var ours []string
	for _, e := range got {
		if name := strings.TrimPrefix(e.Key, prefix); strings.HasPrefix(name, "sluice-") {
			ours = append(ours, name)
			continue
		}
		left[e.Key] = string(e.Value)
	}
	for _, e := range foreign {
		if left[e.Key] != string(e.Value) {
			t.Errorf("%s is now %q", e.Key, left[e.Key])
		}
	}
	if d := cmp.Diff([]string{"sluice-global", "sluice-reflect", "sluice-table-2", "sluice-table-3", "sluice-table-4"}, ours); d != "" {
		t.Error(d)
	}
	s.want(t, "10.9.0.1", "10.0.0.1", 80, api.Permit)
	s.want(t, "10.9.0.1", "10.0.0.1", 81, api.Deny)
}

func TestCommitRestoresRemovedKeysAfterRestart(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s, true, shop)
	before := s.keys(t)
	if err := etcd.Write(t.Context(), nil, []string{s.tap.agent.prefix + "sluice-table-1", s.tap.agent.prefix + "sluice-global"}); err != nil {
		t.Fatal(err)
	}
	s.tap.agent.remove(s.tap.agent.prefix + "sluice-table-1")
	s.tap.agent.remove(s.tap.agent.prefix + "sluice-global")
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	commit(t, s, true, shop)
	if d := cmp.Diff(before, s.keys(t)); d != "" {
		t.Error(d)
	}
}

func TestExemptTrafficPassesRegardlessOfPolicy(t *testing.T) {
	s := open(t, pod("web"))
	options := ligato.Options{Store: s.tap, Label: s.label, Interfaces: s.interfacesOf}
	publish := func(i renderer.Infra) {
		t.Helper()
		options.Infra = i
		var err error
		if s.r, err = ligato.New(options); err != nil {
			t.Fatal(err)
		}
		commit(t, s, true, func(x *renderer.Changes) {
			x.Render(pod("web"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1"), addr("fd00::1")}, Egress: list()})
		})
	}
	errors := vswitch.Packet{Src: addr("10.9.0.1"), Dst: addr("10.0.0.1"), Protocol: api.ICMP, ICMPType: 3, ICMPCode: 4}
	neighbour := vswitch.Packet{Src: addr("fe80::1"), Dst: addr("fd00::1"), Protocol: api.ICMPv6, ICMPType: 135}
	loopback := vswitch.FlowPacket(api.Flow{Src: addr("192.0.2.1"), Dst: addr("10.0.0.1"), Protocol: api.TCP, SrcPort: 40000, DstPort: 80})
	for _, tc := range []struct {
		infra renderer.Infra
		want  [3]api.Action
	}{
		{renderer.Infra{}, [3]api.Action{api.Permit, api.Permit, api.Deny}},
		{renderer.Infra{NoErrors: true, Addresses: []netip.Prefix{host("192.0.2.1")}}, [3]api.Action{api.Deny, api.Permit, api.Permit}},
		{renderer.Infra{NoNeighbours: true, NoErrors: true}, [3]api.Action{}},
	} {
		publish(tc.infra)
		for i, p := range []vswitch.Packet{errors, neighbour, loopback} {
			s.sw.ClearSessions()
			if got := s.send(p); got != tc.want[i] {
				t.Errorf("%+v: packet %d: %s, want %s", tc.infra, i, got, tc.want[i])
			}
		}
	}
	for _, bad := range []netip.Prefix{{}, netip.MustParsePrefix("::/0"), netip.MustParsePrefix("::ffff:0.0.0.0/96")} {
		options.Infra = renderer.Infra{Addresses: []netip.Prefix{bad}}
		if _, err := ligato.New(options); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// TestSeenDetectsForeignChanges: a watch also reports our own writes, which are not foreign.
func TestSeenDetectsForeignChanges(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s, true, shop)
	before := s.keys(t)
	key := s.r.Prefix() + "sluice-table-3"
	ours, _, err := etcd.List(t.Context(), s.r.Prefix())
	if err != nil {
		t.Fatal(err)
	}
	for what, entries := range map[string][]model.Entry{
		"our own keys":        ours,
		"keys of others":      {{Key: s.r.Prefix() + "other", Value: []byte("{}")}},
		"a name we gave away": {{Key: s.r.Prefix() + "sluice-table-77"}},
	} {
		if s.r.Seen(entries) {
			t.Errorf("%s are somebody else's change", what)
		}
	}
	if got := s.steps(t, false, nothing); got != nil {
		t.Errorf("written: %v", got)
	}
	for _, tc := range []struct {
		what string
		e    model.Entry
	}{
		{"deleted", model.Entry{Key: key}},
		{"added", model.Entry{Key: s.r.Prefix() + "sluice-x", Value: []byte("{}")}},
		{"changed", model.Entry{Key: key, Value: []byte("{}")}}, // its content gets another name
	} {
		what, e := tc.what, tc.e
		if e.Value == nil {
			err = etcd.Write(t.Context(), nil, []string{e.Key})
		} else {
			err = etcd.Write(t.Context(), []model.Entry{e}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !s.r.Seen([]model.Entry{e}) {
			t.Errorf("a key is %s, and nobody has seen it", what)
		}
		if err := try(t, s, false, nothing); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(before, strings.ReplaceAll(s.keys(t), "table-4", "table-3")); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
}

// TestCommitOfChangedProtocolIsVisible: the agent would ignore a new value that differs only in
// protocol numbers.
func TestCommitOfChangedProtocolIsVisible(t *testing.T) {
	s := open(t, pod("web-0"))
	gre := func(p api.Protocol) func(*renderer.Changes) {
		return func(x *renderer.Changes) {
			render(x, "web-0", "10.0.0.1", nil, list(api.ContivRule{Action: api.Permit, Src: cidr("10.9.0.0/16"), Protocol: p}))
		}
	}
	commit(t, s, true, gre(47))
	if got, want := s.steps(t, false, gre(50)), []string{"", "put sluice-table-2", "", "delete sluice-table-1"}; !slices.Equal(got, want) {
		t.Errorf("written: %v, want %v", got, want)
	}
	for p, want := range map[api.Protocol]api.Action{47: api.Deny, 50: api.Permit} {
		if got := s.Verdict(api.Flow{Src: addr("10.9.0.1"), Dst: addr("10.0.0.1"), Protocol: p}); got != want {
			t.Errorf("protocol %s: %s, want %s", p, got, want)
		}
	}
}

func TestRendererPassesRepliesAndRevokes(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s, true, shop)
	p := vswitch.FlowPacket(api.Flow{Src: addr("10.9.0.1"), Dst: addr("10.0.0.1"), Protocol: api.TCP, SrcPort: 40000, DstPort: 80})
	if s.send(p) != api.Permit || s.send(p.Reply()) != api.Permit || s.send(p) != api.Permit {
		t.Fatal("a permitted flow does not pass")
	}
	commit(t, s, false, func(x *renderer.Changes) { x.UpdateSet(clients, nil, []netip.Prefix{host("10.9.0.1")}) })
	if s.send(p) != api.Deny {
		t.Error("a flow that is denied now goes on")
	}
}

func TestCommitLeavesPodWithoutInterfacePending(t *testing.T) {
	s := open(t, shopPods...)
	s.claim[pod("db")] = nil
	err := try(t, s, true, shop)
	if !errors.Is(err, renderer.ErrNoInterface) || !strings.Contains(err.Error(), "shop/db") {
		t.Fatalf("commit: %v, want that shop/db has no interface", err)
	}
	if got := s.r.State().Pending; len(got) != 1 || got[0].Pod != pod("db") {
		t.Errorf("pending: %v", got)
	}
	s.settle(t)
	s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Deny)
	// Its interface appears with another name than that of an earlier pod. Nothing is rendered; the
	// owner of the callback requests an Apply.
	s.claim[pod("db")] = []string{"late"}
	s.plug("late")
	if got, want := s.steps(t, false, nothing), []string{"", "put sluice-reflect", "", "put sluice-table-3"}; !slices.Equal(got, want) {
		t.Errorf("written: %v, want %v", got, want)
	}
	s.claim[pod("db")] = []string{"later", "latest"} // the pod was created again, with two interfaces
	if got, want := s.steps(t, false, nothing), []string{"", "put sluice-reflect", "", "put sluice-table-3", "", "put sluice-reflect"}; !slices.Equal(got, want) {
		t.Errorf("written: %v, want %v", got, want)
	}
}

func TestPodInterfaceOfTwoPodsIsBlocked(t *testing.T) {
	s := open(t, shopPods...)
	s.claim[pod("db")] = []string{"tap-shop-web-0"}
	err := try(t, s, true, shop)
	if !errors.Is(err, ligato.ErrSharedInterface) || !strings.Contains(err.Error(), "tap-shop-web-0") {
		t.Fatalf("commit: %v, want that the interface is claimed twice", err)
	}
	s.settle(t)
	s.want(t, "10.9.0.1", "10.0.0.1", 80, api.Deny)
	s.want(t, "10.9.0.1", "10.0.0.2", 80, api.Permit)
	s.claim[pod("web-0")] = []string{"tap-shop-web-0"}
	s.claim[pod("db")] = []string{"tap-shop-db"}
	commit(t, s, false, nothing)
	s.want(t, "10.9.0.1", "10.0.0.1", 80, api.Permit)
}

func TestUnenforcedPortsOfSCTPAreClosedAndReported(t *testing.T) {
	s := open(t, pod("web-0"), pod("web-1"))
	origin := api.Origin{Policy: api.PolicyID{Namespace: "shop", Name: "diameter"}, Rule: 1}
	rules := []api.ContivRule{
		{Action: api.Deny, Src: cidr("10.9.0.0/16"), Protocol: api.SCTP, DstPort: api.Port(7)},
		{Action: api.Permit, Src: cidr("10.0.0.0/8"), Protocol: api.SCTP},
		{Action: api.Permit, Protocol: api.SCTP, DstPort: api.Port(3868)}, {},
	}
	commit(t, s, true, func(x *renderer.Changes) {
		l := renderer.NewRuleList(rules, [][]api.Origin{nil, nil, {origin}, nil})
		render(x, "web-0", "10.0.0.1", nil, l)
		render(x, "web-1", "10.0.0.2", nil, l)
	})
	for src, want := range map[string]api.Action{"10.9.0.1": api.Deny, "10.8.0.1": api.Permit, "192.0.2.1": api.Deny} {
		if got := s.Verdict(api.Flow{Src: addr(src), Dst: addr("10.0.0.1"), Protocol: api.SCTP, SrcPort: 40000, DstPort: 3868}); got != want {
			t.Errorf("from %s: %s, want %s", src, got, want)
		}
	}
	want := []renderer.Unenforced{{Origin: origin, Class: api.ClassDataplane, Reason: "the model of vpp-agent cannot name ports of SCTP", Pods: 2}}
	got := s.r.Unenforced()
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	commit(t, s, true, func(x *renderer.Changes) { render(x, "web-0", "10.0.0.1", nil, list()) })
	if got := s.r.Unenforced(); len(got) != 0 {
		t.Errorf("after the rules are gone: %v", got)
	}
}

// large returns members with which a table exceeds an etcd value.
func large() (members []netip.Prefix) {
	for i := range 9000 {
		members = append(members, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, byte(i / 100), byte(2 * (i % 100))}), 32))
	}
	return members
}

func TestCommitRetriesMissingInterfaceBesideRefusal(t *testing.T) {
	s := open(t, shopPods...)
	s.claim[pod("db")] = nil
	err := try(t, s, true, func(x *renderer.Changes) {
		x.UpdateSet(7, large(), nil)
		render(x, "web-0", "10.0.0.1", nil, list(from(api.SetNet(7), 80)))
		render(x, "db", "10.0.0.3", nil, list(from(api.Net{}, 80)))
	})
	if !errors.Is(err, ligato.ErrTooLarge) || !errors.Is(err, renderer.ErrNoInterface) || renderer.IsRefused(err) {
		t.Errorf("commit: %v, want both %v and %v, of which the latter may pass", err, ligato.ErrTooLarge, renderer.ErrNoInterface)
	}
}

func TestCommitKeepsOrClosesTooLargeTable(t *testing.T) {
	s := open(t, append(shopPods, pod("new"))...)
	commit(t, s, true, shop)
	origin := api.Origin{Policy: api.PolicyID{Namespace: "shop", Name: "big"}}
	big := renderer.NewRuleList([]api.ContivRule{from(api.SetNet(7), 80), {}}, [][]api.Origin{{origin}, nil})
	err := try(t, s, false, func(x *renderer.Changes) {
		x.UpdateSet(7, large(), nil)
		render(x, "web-0", "10.0.0.1", nil, big)
		render(x, "new", "10.0.0.9", nil, big)
		render(x, "db", "10.0.0.3", nil, list(from(api.Net{}, 22)))
	})
	if !errors.Is(err, ligato.ErrTooLarge) || !renderer.IsRefused(err) {
		t.Fatalf("commit: %v, want %v, refused", err, ligato.ErrTooLarge)
	}
	s.settle(t)
	s.want(t, "10.9.0.1", "10.0.0.1", 80, api.Permit) // as before
	s.want(t, "10.200.0.0", "10.0.0.1", 80, api.Deny)
	s.want(t, "10.200.0.0", "10.0.0.9", 80, api.Deny) // had none
	s.want(t, "10.9.0.9", "10.0.0.3", 22, api.Permit) // all else
	want := []renderer.Unenforced{{Origin: origin, Class: api.ClassLimit, Effect: renderer.EffectPrevious, Pods: 2,
		Reason: "the rules of a pod, with their sets expanded, do not fit into a value of etcd"}}
	if d := cmp.Diff(want, s.r.Unenforced()); d != "" {
		t.Error(d)
	}
	commit(t, s, false, func(x *renderer.Changes) { x.UpdateSet(7, nil, large()[1:]) })
	s.want(t, "10.200.0.0", "10.0.0.9", 80, api.Permit)
	if got := s.r.Unenforced(); len(got) != 0 {
		t.Errorf("after it fits: %v", got)
	}
}

// TestCommitSkipsRevertedFailedChange: content computed for a failed Apply must not be
// used later.
func TestCommitSkipsRevertedFailedChange(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s, true, shop)
	s.FailNext(1)
	if err := try(t, s, false, func(x *renderer.Changes) { x.UpdateSet(clients, []netip.Prefix{host("10.9.0.7")}, nil) }); err == nil {
		t.Fatal("the Apply does not fail")
	}
	commit(t, s, false, func(x *renderer.Changes) {
		x.UpdateSet(clients, nil, []netip.Prefix{host("10.9.0.7")})
		render(x, "open", "10.0.0.4", nil, list())
	})
	s.want(t, "10.9.0.7", "10.0.0.1", 80, api.Deny)
}

func TestCommitReportsMissingUplinks(t *testing.T) {
	s := open(t, shopPods...)
	r, err := ligato.New(ligato.Options{Store: s.tap, Label: s.label, Interfaces: s.interfacesOf})
	if err != nil {
		t.Fatal(err)
	}
	x := renderer.Changes{Resync: true}
	shop(&x)
	if err := r.Apply(t.Context(), x); !errors.Is(err, renderer.ErrNoInterface) || !strings.Contains(err.Error(), "uplink") {
		t.Errorf("commit: %v, want that there is no uplink", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	ifs := func(api.PodID) []string { return nil }
	for _, o := range []ligato.Options{{}, {Store: &tap{}}, {Interfaces: ifs}, {Store: &tap{}, Interfaces: ifs, Label: "a/b"}} {
		if _, err := ligato.New(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
