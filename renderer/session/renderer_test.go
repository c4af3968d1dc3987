package session_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	sluicesession "github.com/sluice-net/sluice/renderer/session"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

var (
	client     = renderertest.PodIDs[0]
	clientIPs  = []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1")}
	somewhere  = netip.MustParseAddr("198.51.100.7")
	somewhere6 = netip.MustParseAddr("2001:db8::7")
)

func list(rules ...api.ContivRule) *renderer.RuleList {
	return listBy(api.PolicyID{Namespace: "test", Name: "policy"}, rules)
}

// adminList is by a policy that no limit of a namespace closes.
func adminList(rules ...api.ContivRule) *renderer.RuleList {
	return listBy(api.PolicyID{Kind: api.AdminNetworkPolicy, Name: "policy"}, rules)
}

func listBy(policy api.PolicyID, rules []api.ContivRule) *renderer.RuleList {
	origins := make([][]api.Origin, len(rules))
	for i := range origins {
		origins[i] = []api.Origin{{Policy: policy, Rule: i}}
	}
	return renderer.NewRuleList(rules, origins)
}

// render commits the list of destinations for the client.
func render(t *testing.T, s *backends.Session, l *renderer.RuleList) error {
	t.Helper()
	changes := renderer.Changes{Resync: true}
	changes.Render(client, renderer.PodConfig{IPs: clientIPs, Ingress: l})
	return s.Renderer().Apply(t.Context(), changes)
}

func connect(s *backends.Session, to netip.Addr, port uint16) api.Action {
	return s.Switch.Connect(s.Namespaces[client], api.Flow{Src: clientIPs[0], Dst: to, Protocol: api.TCP, SrcPort: 40000, DstPort: port}).Action
}

func opened(t *testing.T, quirks bool) *backends.Session {
	t.Helper()
	s := newStack(t, backends.SessionOptions{Quirks: quirks}, client)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var (
	web     = api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(80)}
	denyAll = api.ContivRule{Action: api.Deny}
)

func TestRulesOfOthersAreKept(t *testing.T) {
	for _, quirks := range []bool{false, true} {
		s := opened(t, quirks)
		foreign := []vswitch.SessionRule{}
		for i, rmt := range []string{"203.0.113.0/24", "2001:db8:1::/48"} {
			p := netip.MustParsePrefix(rmt)
			lcl := netip.PrefixFrom(p.Addr(), 0).Masked()
			foreign = append(foreign, vswitch.SessionRule{Local: true, Namespaces: []uint32{s.Namespaces[client]}, Protocol: api.TCP,
				Lcl: lcl, Rmt: p, RmtPort: 22, Action: vswitch.SessionRuleDrop, Tag: "theirs" + string(rune('0'+i))})
			if !s.Switch.ChangeSessionRule(true, foreign[i]) {
				t.Fatal("a rule is refused")
			}
		}
		for _, l := range []*renderer.RuleList{list(web, denyAll), nil, list(denyAll), nil} {
			if err := render(t, s, l); err != nil {
				t.Fatal(err)
			}
		}
		var left []string
		for _, r := range s.Switch.SessionRules() {
			if r.Local {
				left = append(left, r.Tag)
			}
		}
		slices.Sort(left)
		if !slices.Equal(left, []string{"theirs0", "theirs1"}) {
			t.Errorf("quirks %t: there are rules %q, want theirs", quirks, left)
		}
	}
}

func TestRuleOfOthersInWayIsReported(t *testing.T) {
	s := opened(t, false)
	all := netip.MustParsePrefix("0.0.0.0/0")
	s.Switch.ChangeSessionRule(true, vswitch.SessionRule{Local: true, Namespaces: []uint32{s.Namespaces[client]}, Protocol: api.TCP, Lcl: all, Rmt: all, RmtPort: 80, Action: vswitch.SessionRuleDrop})
	if err := render(t, s, list(web, denyAll)); !errors.Is(err, sluicesession.ErrForeignRule) {
		t.Errorf("%v, want %v", err, sluicesession.ErrForeignRule)
	}
	if got := connect(s, somewhere, 443); got != api.Deny {
		t.Errorf("port 443: %s, want deny: everything else is installed", got)
	}
}

func TestUnenforcedRangesAreClosedAndReported(t *testing.T) {
	s := opened(t, true)
	s.Options.MaxPorts = 0 // the default
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	narrow, wide := web, web
	narrow.DstPort, wide.DstPort = api.Ports(1000, 1255), api.Ports(2000, 2256)
	if err := render(t, s, list(narrow, wide, denyAll)); err != nil {
		t.Fatal(err)
	}
	for port, want := range map[uint16]api.Action{999: api.Deny, 1000: api.Permit, 1255: api.Permit, 1256: api.Deny, 2000: api.Deny} {
		for _, to := range []netip.Addr{somewhere, somewhere6} {
			if got := connect(s, to, port); got != want {
				t.Errorf("%s port %d: %s, want %s", to, port, got, want)
			}
		}
	}
	if got := s.Rules.Unenforced(); len(got) != 1 || got[0].Origin.Rule != 1 || got[0].Effect != renderer.EffectClosed {
		t.Errorf("reported is %+v, want the second rule", got)
	}
}

// few returns a renderer in which a pod may have 8 rules, and a rule that takes more.
func few(t *testing.T) (s *backends.Session, many api.ContivRule) {
	t.Helper()
	s, many = opened(t, false), web
	s.Options.MaxRules, many.DstPort = 8, api.Ports(80, 90)
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	return s, many
}

func TestCommitRefusesTooManyRules(t *testing.T) {
	s, many := few(t)
	if err := render(t, s, adminList(many, denyAll)); !errors.Is(err, sluicesession.ErrTooLarge) || !renderer.IsRefused(err) ||
		!strings.Contains(err.Error(), "namespace of pod "+client.String()+", for what it opens over TCP and IPv4, needs more than 8 rules: ") {
		t.Errorf("%v, want %v, refused, naming pod and limit", err, sluicesession.ErrTooLarge)
	}
	if got := connect(s, somewhere, 80); got != api.Deny {
		t.Errorf("a pod that has nothing is %s, want deny", got)
	}
	if got := s.Rules.Unenforced(); len(got) == 0 || got[0].Effect != renderer.EffectPrevious {
		t.Errorf("reported is %+v", got)
	}
	if err := render(t, s, list(web, denyAll)); err != nil {
		t.Fatal(err)
	}
	if err := render(t, s, adminList(many, denyAll)); !errors.Is(err, sluicesession.ErrTooLarge) || connect(s, somewhere, 80) != api.Permit || connect(s, somewhere, 81) != api.Deny {
		t.Errorf("%v: a pod does not keep what it had", err)
	}
}

// TestTooManyRulesOfNamespaceAreClosed: a namespace does not make the state of its node refused.
func TestTooManyRulesOfNamespaceAreClosed(t *testing.T) {
	s, many := few(t)
	for _, l := range []*renderer.RuleList{list(web, denyAll), list(many, denyAll)} {
		if err := render(t, s, l); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Rules.Unenforced(); connect(s, somewhere, 80) != api.Deny || len(got) == 0 || got[0].Effect != renderer.EffectClosed || got[0].Class != api.ClassLimit ||
		!strings.Contains(got[0].Reason, " more than 65536 session rules, or 8 of them for one transport and family ") {
		t.Errorf("reported is %+v", got)
	}
}

func TestNamespacesChangedRestrictsWaitingPod(t *testing.T) {
	s := opened(t, true)
	late := renderertest.PodIDs[1]
	changes := renderer.Changes{Resync: true}
	changes.Render(late, renderer.PodConfig{IPs: clientIPs, Ingress: list(denyAll)})
	if err := s.Rules.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	namespace := s.Switch.AddNamespace(sluicesession.NamespaceID(late))
	s.Rules.NamespacesChanged()
	if err := s.Rules.Apply(t.Context(), renderer.Changes{}); err != nil {
		t.Fatal(err)
	}
	if got := s.Switch.Connect(namespace, api.Flow{Dst: somewhere, Protocol: api.UDP, DstPort: 53}).Action; got != api.Deny {
		t.Errorf("%s, want deny", got)
	}
}

// TestCommitHandlesRevertedSetAfterFailure removes a member in an Apply that fails, and
// restores it before the next Apply.
func TestCommitHandlesRevertedSetAfterFailure(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		s := newStack(t, backends.SessionOptions{Refuses: refuses}, client)
		t.Cleanup(func() { _ = s.Close() }) // only disconnects
		peers, member := api.NewSetID("peers"), []netip.Prefix{netip.PrefixFrom(somewhere, 32)}
		commit := func(change func(*renderer.Changes)) error {
			changes := renderer.Changes{}
			change(&changes)
			return s.Renderer().Apply(t.Context(), changes)
		}
		toPeers := api.ContivRule{Action: api.Permit, Dst: api.SetNet(peers)}
		err := commit(func(changes *renderer.Changes) {
			changes.UpdateSet(peers, member, nil)
			changes.Render(client, renderer.PodConfig{IPs: clientIPs, Ingress: list(toPeers, denyAll)})
		})
		if err != nil {
			t.Fatal(err)
		}
		s.FailNext(2)
		if err := commit(func(changes *renderer.Changes) { changes.UpdateSet(peers, nil, member) }); err == nil {
			t.Fatal("no call failed")
		}
		s.FailNext(0)
		if err := commit(func(changes *renderer.Changes) { changes.UpdateSet(peers, member, nil) }); err != nil {
			t.Fatal(err)
		}
		if got := connect(s, somewhere, 80); got != api.Permit {
			t.Errorf("refused %t: to the member is %s, want permit", refuses, got)
		}
	}
}

func TestCommitRestoresRulesAfterRestart(t *testing.T) {
	s := opened(t, true)
	if err := render(t, s, list(web, denyAll)); err != nil {
		t.Fatal(err)
	}
	s.Switch.Restart()
	if got := connect(s, somewhere, 443); got != api.Permit {
		t.Fatalf("after the restart there are rules")
	}
	for connect(s, somewhere, 443) != api.Deny { // GoVPP must notice first
		if err := render(t, s, list(web, denyAll)); err != nil && !errors.Is(err, sluicesession.ErrNotConnected) && t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestTagsNamePodAndPolicy(t *testing.T) {
	s := opened(t, true)
	if err := render(t, s, list(web, denyAll)); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range s.Switch.SessionRules() {
		key := r.Protocol.String() + r.Tag
		if seen[key] || len(r.Tag) > 63 || !strings.HasPrefix(r.Tag, "sluice:local:") {
			t.Errorf("tag %q of %s", r.Tag, r)
		}
		if seen[key] = true; r.Rmt.Addr().Is4() && !strings.HasSuffix(r.Tag, ":test/pod-0@policy") {
			t.Errorf("tag %q does not say whose it is", r.Tag)
		}
	}
	if len(seen) == 0 {
		t.Error("there are no rules")
	}
}
