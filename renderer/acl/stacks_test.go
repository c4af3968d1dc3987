package acl_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
)

// peer returns the n-th of many addresses that are not adjacent.
func peer(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(100 + n>>14), byte(n >> 7), byte(n << 1)}), 32)
}

// manyPeers is a state in which pods share a table about a set of many addresses, some of them
// denied, and another table for what they send.
func manyPeers(pods []api.PodID, members int) func(*renderer.Changes) {
	in := list(api.ContivRule{Src: api.SetNet(8)}, from(api.SetNet(7), 80))
	out := list(api.ContivRule{Dst: api.PrefixNet(host("10.200.0.1"))}, to(api.SetNet(7), 443))
	return func(x *renderer.Changes) {
		var all []netip.Prefix
		for i := range members {
			all = append(all, peer(i))
		}
		for i, p := range pods {
			x.Render(p, renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}, Egress: in, Ingress: out})
		}
		x.UpdateSet(7, all, nil)
		x.UpdateSet(8, []netip.Prefix{peer(3)}, nil)
	}
}

var peerPods = []api.PodID{pod("p0"), pod("p1"), pod("p2")}

// sent runs a step and returns the number of rules that it sends.
func (s *subject) sent(step func()) int {
	before := s.tap.rules
	step()
	return s.tap.rules - before
}

func joins(n int) func(*renderer.Changes) {
	return func(x *renderer.Changes) { x.UpdateSet(7, []netip.Prefix{peer(n)}, nil) }
}

func leaves(n int) func(*renderer.Changes) {
	return func(x *renderer.Changes) { x.UpdateSet(7, nil, []netip.Prefix{peer(n)}) }
}

func TestStackSendsFewRulesForJoiningAddress(t *testing.T) {
	s := open(t, peerPods[0])
	commit(t, s.Renderer(), true, func(x *renderer.Changes) {
		manyPeers(peerPods[:1], 5000)(x)
		x.Render(peerPods[0], renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: list(from(api.SetNet(7), 80))})
	})
	for n := 5000; n < 5120; n++ {
		rules := 0
		calls := s.changes(func() { rules = s.sent(func() { commit(t, s.Renderer(), false, joins(n)) }) })
		if calls != 1 || rules > 128 {
			t.Fatalf("address %d: %d rules in %d messages", n, rules, calls)
		}
		s.want(t, peer(n).Addr().String(), "10.0.0.1", 80, api.Permit)
		s.want(t, peer(n+1).Addr().String(), "10.0.0.1", 80, api.Deny)
	}
	if rules := s.sent(func() { commit(t, s.Renderer(), false, leaves(5080)) }); rules > 128 {
		t.Errorf("a recent address that leaves sends %d rules", rules)
	}
	s.want(t, peer(5080).Addr().String(), "10.0.0.1", 80, api.Deny)
}

func TestStackIsUnchangedByRestart(t *testing.T) {
	s := open(t, peerPods...)
	commit(t, s.Renderer(), true, manyPeers(peerPods, 3000))
	members := 3000
	for n := 3000; n < 3400; n++ {
		commit(t, s.Renderer(), false, joins(n))
		members++
	}
	commit(t, s.Renderer(), false, leaves(17))
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	state := func(x *renderer.Changes) {
		manyPeers(peerPods, members)(x)
		x.UpdateSet(7, nil, []netip.Prefix{peer(17)})
	}
	if n := s.changes(func() { commit(t, s.Renderer(), true, state) }); n != 0 {
		t.Errorf("%d calls changed something, want 0", n)
	}
	s.want(t, peer(17).Addr().String(), "10.0.0.2", 80, api.Deny)
	s.want(t, peer(18).Addr().String(), "10.0.0.2", 80, api.Permit)
	s.want(t, peer(3399).Addr().String(), "10.0.0.3", 80, api.Permit)
	s.want(t, peer(3).Addr().String(), "10.0.0.3", 80, api.Deny)
	for _, d := range s.r.Dump().ACLs {
		if d.Entries > 16_000 {
			t.Errorf("acl %s has %d entries", d.Tag, d.Entries)
		}
	}
}

// Whichever call fails, addresses that are members before and after pass, and addresses that never
// are do not.
func TestStackKeepsRulesInForceWhenCallsFail(t *testing.T) {
	atEveryCall(t, peerPods, func(x *renderer.Changes) {
		manyPeers(peerPods, 600)(x)
	}, func(x *renderer.Changes) {
		var more, fewer []netip.Prefix
		for i := range 100 {
			more, fewer = append(more, peer(1000+i)), append(fewer, peer(2*i+100))
		}
		x.UpdateSet(7, more, fewer)
		x.UpdateSet(8, []netip.Prefix{peer(5)}, nil)
	}, func(t *testing.T, s *subject) {
		for n, want := range map[int]api.Action{101: api.Permit, 599: api.Permit, 3: api.Deny, 2000: api.Deny} {
			s.want(t, peer(n).Addr().String(), "10.0.0.2", 80, want)
		}
		s.want(t, "10.0.0.1", peer(599).Addr().String(), 443, api.Permit)
		s.want(t, "10.0.0.1", peer(2000).Addr().String(), 443, api.Deny)
	})
}

func TestStackMapsEntriesToRules(t *testing.T) {
	s := open(t, peerPods...)
	commit(t, s.Renderer(), true, manyPeers(peerPods, 1000))
	for n := 1000; n < 1010; n++ {
		commit(t, s.Renderer(), false, joins(n))
	}
	for n, rule := range map[int]api.ContivRule{3: {Src: api.SetNet(8)}, 500: from(api.SetNet(7), 80), 1005: from(api.SetNet(7), 80), 5000: {}} {
		f := api.Flow{Src: peer(n).Addr(), Dst: addr("10.0.0.1"), Protocol: api.TCP, SrcPort: 40000, DstPort: 80}
		d := s.r.Explain(f)
		hop := s.sw.Inject(s.uplink, vswitch.FlowPacket(f)).Hops[1]
		got, ok := s.r.Source(hop.ACLIndex, uint32(hop.Rule))
		if !ok || len(d) != 1 || got.Rule != d[0].Rule || got.Match != rule {
			t.Errorf("%s: traced to %+v, explained as %+v, want %v", f, got, d, rule)
		}
	}
	var hits []string
	for _, table := range s.r.State().Tables {
		if len(table.Objects) > 1 && !slices.Contains(hits, table.Name) {
			hits = append(hits, table.Name)
		}
	}
	if len(hits) == 0 {
		t.Error("no table is held in several ACLs")
	}
}
