package session_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	sluicesession "github.com/sluice-net/sluice/renderer/session"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// onePlace returns a renderer with small limits in which every pod has the namespace of the client.
// commit replaces the pod by another one with the same addresses.
func onePlace(t *testing.T) (s *backends.Session, commit func(api.PodID, *renderer.RuleList) error) {
	t.Helper()
	s = opened(t, false)
	s.Options.MaxRules = 8
	s.Options.Namespaces = func(api.PodID) (uint32, bool) { return s.Namespaces[client], true }
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	return s, func(pod api.PodID, l *renderer.RuleList) error {
		changes := renderer.Changes{Resync: true}
		changes.Render(pod, renderer.PodConfig{IPs: clientIPs, Ingress: l, Egress: l})
		return s.Rules.Apply(t.Context(), changes)
	}
}

// TestNamespaceOfRefusedPodGetsNoOldRules replaces a pod by one that needs too many
// rules.
func TestNamespaceOfRefusedPodGetsNoOldRules(t *testing.T) {
	s, commit := onePlace(t)
	decided := func(port uint16) [2]api.Action {
		f := api.Flow{Src: somewhere, Dst: clientIPs[0], Protocol: api.TCP, SrcPort: 40000, DstPort: port}
		return [2]api.Action{connect(s, somewhere, port), s.Switch.Accept(s.Namespaces[client], f).Action}
	}
	many := web
	many.DstPort = api.Ports(80, 90)
	if err := commit(client, list(web, denyAll)); err != nil {
		t.Fatal(err)
	}
	if err := commit(client, adminList(many, denyAll)); !errors.Is(err, sluicesession.ErrTooLarge) {
		t.Fatalf("%v, want %v", err, sluicesession.ErrTooLarge)
	}
	if got := decided(80); got != [2]api.Action{api.Permit, api.Permit} {
		t.Errorf("the pod that had them lost its rules: %v", got)
	}
	for range 2 { // also on a retry
		if err := commit(renderertest.PodIDs[1], adminList(many, denyAll)); !errors.Is(err, sluicesession.ErrTooLarge) {
			t.Fatalf("%v, want %v", err, sluicesession.ErrTooLarge)
		}
		if got := decided(80); got != [2]api.Action{api.Deny, api.Deny} {
			t.Errorf("another pod got its rules: %v", got)
		}
	}
}

// TestNamespaceOfRefusedPodKeepsNoOtherRules fails each call in turn while a namespace
// moves to another pod, also after a restart. Then the first pod comes back with too many rules.
func TestNamespaceOfRefusedPodKeepsNoOtherRules(t *testing.T) {
	other, many := web, web
	other.DstPort, many.DstPort = api.Port(443), api.Ports(80, 90)
	tried := func(restarted bool, call int) (failed bool) {
		s, commit := onePlace(t)
		if err := commit(client, list(web, denyAll)); err != nil {
			t.Fatal(err)
		}
		if restarted {
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		s.FailNext(call)
		if commit(renderertest.PodIDs[1], list(other, denyAll)) == nil {
			return false
		}
		if err := commit(client, adminList(many, denyAll)); !errors.Is(err, sluicesession.ErrTooLarge) {
			t.Fatalf("call %d: %v, want %v", call, err, sluicesession.ErrTooLarge)
		}
		f := api.Flow{Src: somewhere, Dst: clientIPs[0], Protocol: api.TCP, SrcPort: 40000, DstPort: 443}
		if out, in := connect(s, somewhere, 443), s.Switch.Accept(s.Namespaces[client], f).Action; out != api.Deny || in != api.Deny {
			t.Errorf("restarted %t, call %d: the pod may connect to 443: %s, be reached there: %s", restarted, call, out, in)
		}
		return true
	}
	for _, restarted := range []bool{false, true} {
		call := 1
		for tried(restarted, call) {
			call++
		}
		if call < 10 {
			t.Errorf("restarted %t: only %d calls could fail", restarted, call-1)
		}
	}
}

// shared returns a renderer in which two pods, each with its own address, claim one namespace. Both
// have the same lists, in one direction or in both.
func shared(t *testing.T, ingress, egress *renderer.RuleList) *backends.Session {
	t.Helper()
	s := opened(t, false)
	s.Options.Namespaces = func(api.PodID) (uint32, bool) { return s.Namespaces[client], true }
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	changes := renderer.Changes{}
	for i, pod := range renderertest.PodIDs[:2] {
		changes.Render(pod, renderer.PodConfig{IPs: clientIPs[i : i+1], Ingress: ingress, Egress: egress})
	}
	if err := s.Rules.Apply(t.Context(), changes); !errors.Is(err, sluicesession.ErrSharedNamespace) {
		t.Errorf("%v, want %v", err, sluicesession.ErrSharedNamespace)
	}
	return s
}

func TestNamespaceOfTwoPodsIsBlocked(t *testing.T) {
	s := shared(t, list(web, denyAll), nil)
	if got := connect(s, somewhere, 80); got != api.Deny {
		t.Errorf("port 80: %s, want deny", got)
	}
}

// TestNamespaceOfTwoPodsStillRestrictsPeers: the second of two pods with
// one namespace denies all peers.
func TestNamespaceOfTwoPodsStillRestrictsPeers(t *testing.T) {
	s := shared(t, nil, list(web, denyAll))
	for i, from := range []netip.Addr{somewhere, somewhere6} {
		for port, want := range map[uint16]api.Action{80: api.Permit, 443: api.Deny} {
			f := api.Flow{Src: from, Dst: clientIPs[i], Protocol: api.TCP, SrcPort: 40000, DstPort: port}
			if got := s.Switch.Accept(s.Namespaces[client], f).Action; got != want {
				t.Errorf("%s port %d: %s, want %s", f.Dst, port, got, want)
			}
		}
	}
}
