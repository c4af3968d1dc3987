package acl_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// TestAssignRebindsOnlyPodsOfChangedTables has 94 pods with one table about 10 000 peers.
// Then a policy restricts one of the peers to sending to one of the 94, which splits the table.
// Only the pod with the other table may move; the others get new ACLs in place of old ones.
func TestAssignRebindsOnlyPodsOfChangedTables(t *testing.T) {
	const many = 94
	var pods []api.PodID
	for i := range many {
		pods = append(pods, benchPod(i))
	}
	peer := pod("peer")
	s := open(t, append(pods, peer)...)
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}) }
	isPeer := renderer.PodConfig{IPs: []netip.Addr{addr("172.16.0.4")}}
	commit(t, s.Renderer(), true, func(x *renderer.Changes) {
		x.UpdateSet(throng, nil, nil)
		for i, p := range pods {
			x.Render(p, renderer.PodConfig{IPs: []netip.Addr{address(i)}, Egress: list(from(api.SetNet(throng), 80))})
		}
		x.Render(peer, isPeer)
	})
	commit(t, s.Renderer(), false, func(x *renderer.Changes) { x.UpdateSet(throng, scattered(10_000), nil) })

	lists := func() map[string][]uint32 {
		out := make(map[string][]uint32)
		for _, i := range s.sw.Interfaces() {
			out[i.Name] = i.Outputs
		}
		return out
	}
	before, set := lists(), s.tap.lists
	isPeer.Ingress = list(to(api.PrefixNet(netip.PrefixFrom(address(0), 32)), 80))
	calls := s.changes(func() {
		commit(t, s.Renderer(), false, func(x *renderer.Changes) { x.Render(peer, isPeer) })
	})
	after := lists()
	for i, p := range pods[1:] {
		if old, now := before[p.String()], after[p.String()]; len(old) != len(now) || others(old, now) > 2 {
			t.Fatalf("interface %d of %d, %s, was bound again: %d, now %d; %d calls", i+1, many, p, old, now, calls)
		}
	}
	if set = s.tap.lists - set; set > 4 {
		t.Errorf("the lists of %d interfaces were set, want those of one pod, the peer, and the uplink", set)
	}
	s.want(t, "172.16.0.4", "10.0.0.1", 80, api.Permit)
	s.want(t, "172.16.0.4", "10.0.0.2", 80, api.Deny)
	s.want(t, "172.16.0.6", "10.0.0.2", 80, api.Permit)
	s.want(t, "172.16.0.6", "10.0.0.1", 80, api.Permit)
}

// others returns the number of positions at which two lists differ.
func others(a, b []uint32) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}
