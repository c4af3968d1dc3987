package renderertest

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// recorderSubject is a Recorder as the subject of its own suite. Its dataplane has one call: the
// whole commit.
type recorderSubject struct{ *Recorder }

func (s recorderSubject) Renderer() renderer.Renderer { return s.Recorder }

func (s recorderSubject) FailNext(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = nil
	if n > 0 {
		s.failures = make([]Failure, n)
		s.failures[n-1] = FailBefore
	}
}

func TestRecorderPassesSuite(t *testing.T) {
	Run(t, func(t testing.TB) Subject { return recorderSubject{NewRecorder("recorder", t)} })
}

func commit(t *testing.T, r *Recorder, resync bool, c change) error {
	t.Helper()
	changes := renderer.Changes{Resync: resync}
	c(&changes)
	return r.Apply(t.Context(), changes)
}

func mustCommit(t *testing.T, r *Recorder, resync bool, c change) {
	t.Helper()
	if err := commit(t, r, resync, c); err != nil {
		t.Fatal(err)
	}
}

func TestDumpDependsOnStateOnly(t *testing.T) {
	direct, detour := NewRecorder("a", t), NewRecorder("b", t)
	mustCommit(t, direct, true, town())
	mustCommit(t, detour, false, village())
	mustCommit(t, detour, false, all(townPods(), update(blocks, nil, hosts(v4(4, 0))),
		update(frontends, hosts(v4(2, 0), v4(1, 0)), nil), update(backends, hosts(v4(0, 0)), hosts(v4(2, 0), outside[4]))))
	mustCommit(t, detour, false, update(frontends, hosts(v6(1, 0)), nil))
	if diff := cmp.Diff(direct.Dump(), detour.Dump()); diff != "" {
		t.Error(diff)
	}
}

func TestDump(t *testing.T) {
	r := NewRecorder("a", t)
	origin := api.Origin{Policy: api.PolicyID{Namespace: "shop", Name: "web"}, Rule: 2}
	isolation := api.Origin{Policy: origin.Policy, Rule: api.IsolationRule}
	rules := []api.ContivRule{from(api.Permit, api.SetNet(api.NodeSet), api.TCP, api.Port(80)), denyAll}
	l := renderer.NewRuleList(rules, [][]api.Origin{{origin, isolation}, {isolation}})
	mustCommit(t, r, false, all(render(1, nil, l), update(api.NodeSet, hosts(outside[1]), nil)))
	want := `pod test/pod-1 10.1.1.1 fd00:0:1::1
  ingress open
  egress
    permit tcp set:node -> any port 80; NetworkPolicy shop/web ingress rule 2, NetworkPolicy shop/web isolates ingress
    deny any any -> any; NetworkPolicy shop/web isolates ingress
set node
  192.0.2.10/32
`
	if diff := cmp.Diff(want, r.Dump()); diff != "" {
		t.Error(diff)
	}
}

func TestFailNextInjectsFailures(t *testing.T) {
	r := NewRecorder("a", t)
	r.FailNext(FailBefore, FailAfter)
	closed := render(0, nil, list(denyAll))
	if err := commit(t, r, false, closed); !errors.Is(err, ErrInjected) || len(r.Pods()) != 0 {
		t.Fatalf("failure before: error %v, %d pods installed", err, len(r.Pods()))
	}
	if err := commit(t, r, false, render(1, nil, nil)); !errors.Is(err, ErrInjected) || len(r.Pods()) != 2 {
		t.Fatalf("failure after: error %v, %d pods installed, want those of both transactions", err, len(r.Pods()))
	}
	mustCommit(t, r, false, nothing)
	if got := r.LastCall(); got != (Call{}) {
		t.Errorf("the Apply after the failures did %+v, want nothing", got)
	}
	if r.Calls() != 3 || r.Operations() != 2 {
		t.Errorf("%d commits and %d operations, want 3 and 2", r.Calls(), r.Operations())
	}
}

func TestRecorderHookBlocksUntilContextEnds(t *testing.T) {
	r := NewRecorder("a", t)
	r.SetHook(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	changes := renderer.Changes{Resync: true}
	render(0, nil, nil)(&changes)
	if err := r.Apply(ctx, changes); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want that of the context", err)
	}
	r.SetHook(nil)
	mustCommit(t, r, false, nothing)
	if len(r.Pods()) != 1 || !r.LastCall().Resync {
		t.Errorf("the next commit left the resync out")
	}
}

func TestViolationsAreReported(t *testing.T) {
	p24, p32 := netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("10.1.0.7/32")
	portsWithoutProtocol := from(api.Permit, anyNet, api.AnyProtocol, api.Port(80))
	tests := []struct {
		name   string
		resync bool
		change change
		want   string
	}{
		{"a member is added twice", false, update(blocks, []netip.Prefix{p24, p24}, nil), "is added but is a member"},
		{"a member is removed that is none", false, update(blocks, nil, []netip.Prefix{p24}), "is removed but is no member"},
		{"members overlap", false, update(blocks, []netip.Prefix{p24, p32}, nil), "overlap"},
		{"a prefix has host bits", false, update(blocks, []netip.Prefix{netip.MustParsePrefix("10.1.0.7/24")}, nil), "not a masked prefix"},
		{"a resync removes a member", true, update(blocks, nil, []netip.Prefix{p24}), "whole membership"},
		{"a pod has no address", false, renderAt(0, nil, nil, nil), "there is none"},
		{"addresses are not sorted", false, renderAt(0, []netip.Addr{v6(0, 0), v4(0, 0)}, nil, nil), "not sorted"},
		{"an address is there twice", false, renderAt(0, []netip.Addr{v4(0, 0), v4(0, 0)}, nil, nil), "there twice"},
		{"a list is empty", false, render(0, list(), nil), "ingress list is empty"},
		{"a list has no last rule", false, render(0, nil, list(from(api.Deny, anyNet, api.TCP, api.AnyPort))), "egress list does not end"},
		{"an ingress rule names the source", false, render(0, list(from(api.Permit, cidr("10.0.0.0/8"), api.AnyProtocol, api.AnyPort), denyAll), nil), "names the pod's side"},
		{"an egress rule names the destination", false, render(0, nil, list(to(api.Permit, cidr("10.0.0.0/8"), api.AnyProtocol, api.AnyPort), denyAll)), "names the pod's side"},
		{"ports without a protocol", false, render(0, nil, list(portsWithoutProtocol, denyAll)), "its protocol has none"},
		{"an inverted range", false, render(0, nil, list(from(api.Permit, anyNet, api.TCP, api.Ports(9, 8)), denyAll)), "inverted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewRecorder("a", nil)
			mustCommit(t, r, tt.resync, tt.change)
			if got := strings.Join(r.Violations(), "; "); !strings.Contains(got, tt.want) {
				t.Errorf("violations %q, want one with %q", got, tt.want)
			}
		})
	}
}

func TestVerdictPermitsTrafficOfPodToItself(t *testing.T) {
	r := NewRecorder("a", t)
	ips := []netip.Addr{v4(0, 0), v4(0, 1)}
	mustCommit(t, r, false, all(renderAt(0, ips, list(denyAll), list(denyAll)), render(1, nil, nil)))
	if got := r.Verdict(tcp(ips[0], ips[1], 80)); got != api.Permit {
		t.Errorf("the pod to itself: %s", got)
	}
	if got := r.Verdict(tcp(ips[0], v4(1, 0), 80)); got != api.Deny {
		t.Errorf("the pod to another: %s", got)
	}
}

func TestExplainNamesRulesOfBothEnds(t *testing.T) {
	r := NewRecorder("a", t)
	mustCommit(t, r, false, town())
	got := r.Explain(tcp(v4(2, 0), v4(0, 0), 80))
	want := []renderer.Decision{
		{Renderer: "a", Table: "ingress of test/pod-2", Rule: 0, Match: to(api.Permit, api.SetNet(backends), api.TCP, api.Port(80)), Action: api.Permit},
		{Renderer: "a", Table: "egress of test/pod-0", Rule: 0, Match: from(api.Permit, api.SetNet(frontends), api.TCP, api.Port(80)), Action: api.Permit},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}
