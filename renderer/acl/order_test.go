package acl_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// atEveryCall makes every call of a change fail in turn, each time with a new vswitch, so that
// check sees the state between any two calls.
func atEveryCall(t *testing.T, pods []api.PodID, before, change func(*renderer.Changes), check func(*testing.T, *subject)) {
	t.Helper()
	for n := 1; ; n++ {
		s := open(t, pods...)
		commit(t, s.Renderer(), true, before)
		check(t, s)
		changes := renderer.Changes{}
		change(&changes)
		s.FailNext(n)
		err := s.Renderer().Apply(t.Context(), changes)
		s.FailNext(0)
		check(t, s)
		commit(t, s.Renderer(), false, nothing)
		check(t, s)
		if err == nil {
			if n < 2 {
				t.Errorf("the change took only %d calls: it does not test what it should", n-1)
			}
			return
		}
		if t.Failed() {
			t.Fatalf("after call %d failed", n)
		}
	}
}

// p0 leaves a table and p2 joins it while a set of the table loses a member. Neither the old nor
// the new rules of p2 permit what that member sends.
func TestOrderNeverShowsOldMembersOfJoinedTable(t *testing.T) {
	pods := []api.PodID{pod("p0"), pod("p1"), pod("p2")}
	ip := []netip.Addr{addr("10.0.0.1"), addr("10.0.0.2"), addr("10.0.0.3")}
	a, b := list(from(api.SetNet(clients), 80)), list(from(api.Net{}, 22))
	render := func(x *renderer.Changes, i int, l *renderer.RuleList) {
		x.Render(pods[i], renderer.PodConfig{IPs: ip[i : i+1], Egress: l})
	}
	atEveryCall(t, pods, func(x *renderer.Changes) {
		render(x, 0, a)
		render(x, 1, a)
		render(x, 2, b)
		x.UpdateSet(clients, []netip.Prefix{host("10.9.0.1"), host("10.9.0.2")}, nil)
	}, func(x *renderer.Changes) {
		render(x, 0, b)
		render(x, 2, a)
		x.UpdateSet(clients, nil, []netip.Prefix{host("10.9.0.1")})
	}, func(t *testing.T, s *subject) {
		s.want(t, "10.9.0.1", "10.0.0.3", 80, api.Deny)
		s.want(t, "10.9.0.2", "10.0.0.2", 80, api.Permit)
		s.want(t, "10.9.0.9", "10.0.0.1", 80, api.Deny)
	})
}

// Pods exchange their lists for what they send. The parts of the global table with these lists
// change one after the other; at no time may a pod be without a list.
func TestOrderKeepsPodsRestrictedThatExchangeLists(t *testing.T) {
	var pods []api.PodID
	var lists []*renderer.RuleList
	for i := range 8 {
		pods = append(pods, benchPod(i))
		lists = append(lists, list(to(api.PrefixNet(netip.MustParsePrefix("192.0.2.0/24")), uint16(1000+i)), to(api.Net{}, 53)))
	}
	ip := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}) }
	shifted := func(by int) func(*renderer.Changes) {
		return func(x *renderer.Changes) {
			for i, p := range pods {
				x.Render(p, renderer.PodConfig{IPs: []netip.Addr{ip(i)}, Ingress: lists[(i+by)%len(lists)]})
			}
		}
	}
	atEveryCall(t, pods, shifted(0), shifted(1), func(t *testing.T, s *subject) {
		for i := range pods {
			s.want(t, ip(i).String(), "192.0.2.1", 22, api.Deny)
			s.want(t, ip(i).String(), "192.0.2.1", 53, api.Permit)
			s.want(t, ip(i).String(), "192.0.2.1", uint16(1000+(i+4)%8), api.Deny)
		}
	})
}

// Setting the lists of an interface makes VPP drop its sessions of both directions, even if one
// list does not change, and with them the connections that the pod has opened.
func TestOrderKeepsInputListOfUnchangedTable(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s.Renderer(), true, shop)
	before, set := s.r.Dump(), s.tap.lists
	commit(t, s.Renderer(), false, func(x *renderer.Changes) { // web-1 keeps the table that both had
		x.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: list(from(api.Net{}, 22))})
	})
	if !slices.EqualFunc(before.Interfaces, s.r.Dump().Interfaces, func(a, b sluiceacl.DumpInterface) bool { return slices.Equal(a.Output, b.Output) }) {
		t.Error("an interface was switched to other ACLs")
	}
	if n := s.tap.lists - set; n > 0 {
		t.Errorf("%d messages set the lists of an interface", n)
	}
	s.want(t, "10.9.0.9", "10.0.0.1", 22, api.Permit)
	s.want(t, "10.9.0.1", "10.0.0.1", 80, api.Deny)
}
