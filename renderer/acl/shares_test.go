package acl_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

const (
	sharingPods = 20
	sharers     = 5      // interfaces that share the ACLs of a large table
	mostAtOnce  = 20_000 // entries that VPP may re-add to interfaces in one call
)

// sharing has pods with one table about many peers.
func sharing(t *testing.T, peers int) (*subject, []api.PodID) {
	var pods []api.PodID
	for i := range sharingPods + 1 { // one pod has no policy
		pods = append(pods, benchPod(i))
	}
	s := open(t, pods...)
	commit(t, s.Renderer(), true, func(x *renderer.Changes) {
		x.UpdateSet(throng, scattered(peers), nil)
		for i := range sharingPods {
			letIn(x, pods[i], i)
		}
	})
	return s, pods
}

// letIn renders a pod with a policy about many peers.
func letIn(x *renderer.Changes, pod api.PodID, i int) {
	x.Render(pod, renderer.PodConfig{IPs: []netip.Addr{sharingAddress(i)}, Egress: list(from(api.SetNet(throng), 80))})
}

// sharingAddress returns the address of the i-th sharing pod.
func sharingAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}) }

// listsOf returns the output lists of interfaces.
func listsOf(s *subject) map[string]string {
	out := make(map[string]string)
	for _, i := range s.sw.Interfaces() {
		out[i.Name] = fmt.Sprint(i.Outputs)
	}
	return out
}

// heaviest returns the largest number of entries that one call of a step re-added to interfaces.
func heaviest(s *subject, step func()) (most int) {
	s.tap.changed = func(data []byte) {
		if binary.BigEndian.Uint16(data) == s.tap.put {
			most = max(most, again(s, binary.BigEndian.Uint32(data[10:])))
		}
	}
	defer func() { s.tap.changed = nil }()
	step()
	return most
}

// again returns the number of entries in interface lists from an ACL on.
func again(s *subject, acl uint32) (entries int) {
	sizes := make(map[uint32]int)
	for _, a := range s.sw.ACLs() {
		sizes[a.Index] = a.Rules
	}
	for _, i := range s.sw.Interfaces() {
		if at := slices.Index(i.Outputs, acl); at >= 0 {
			for _, index := range i.Outputs[at:] {
				entries += sizes[index]
			}
		}
	}
	return entries
}

// wantGroups checks that only a few interfaces have the same lists.
func wantGroups(t *testing.T, s *subject) {
	t.Helper()
	users := make(map[string]int)
	for _, outputs := range listsOf(s) {
		users[outputs]++
	}
	for outputs, n := range users {
		if n > sharers {
			t.Errorf("%d interfaces share %s, want %d at most", n, outputs, sharers)
		}
	}
}

func TestSharesGroupLargeTable(t *testing.T) {
	s, _ := sharing(t, 200)
	if lists := slices.Collect(maps.Values(listsOf(s))); len(slices.Compact(slices.Sorted(slices.Values(lists)))) > 3 {
		t.Fatalf("pods, uplink and others have %v, want one list for all pods", lists)
	}
	commit(t, s.Renderer(), false, func(x *renderer.Changes) { x.UpdateSet(throng, scattered(1000), nil) })
	wantGroups(t, s)
	s.want(t, scattered(1000)[999].Addr().String(), "10.0.0.20", 80, api.Permit)
}

func TestSharesOfFewInterfacesAreOne(t *testing.T) {
	s, pods := sharing(t, 1000)
	wantGroups(t, s)
	before := listsOf(s)
	commit(t, s.Renderer(), false, func(x *renderer.Changes) { letIn(x, pods[sharingPods], sharingPods) })
	commit(t, s.Renderer(), false, func(x *renderer.Changes) { x.Remove(pods[0]) })
	after := listsOf(s)
	for _, p := range pods[1:sharingPods] {
		if name := p.String(); before[name] != after[name] {
			t.Errorf("a pod comes, and another one goes: %s has %s now, %s before", name, after[name], before[name])
		}
	}
	s.want(t, "172.16.0.6", "10.0.0.21", 80, api.Permit)
	s.want(t, "172.16.0.7", "10.0.0.21", 80, api.Deny)
	s.reopen(t, sluiceacl.Options{})
	calls := s.changes(func() {
		commit(t, s.Renderer(), true, func(x *renderer.Changes) {
			x.UpdateSet(throng, scattered(1000), nil)
			for i := range sharingPods {
				letIn(x, pods[i+1], i+1)
			}
		})
	})
	if calls > 0 {
		t.Errorf("%d calls after a restart, want none", calls)
	}
}

// TestSwitchOverLimitsEntriesPerCall removes an address and adds one, where a change in
// place on all interfaces at once would pause VPP for a second.
func TestSwitchOverLimitsEntriesPerCall(t *testing.T) {
	all := scattered(5002)
	s, pods := sharing(t, 5000)
	before := listsOf(s)
	for name, step := range map[string]func(x *renderer.Changes){
		"an old one leaves": func(x *renderer.Changes) { x.UpdateSet(throng, nil, all[10:11]) },
		"two join":          func(x *renderer.Changes) { x.UpdateSet(throng, all[5000:], nil) },
		"a policy in front": func(x *renderer.Changes) {
			x.Render(pods[sharingPods], renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.21")}, Ingress: list(to(api.PrefixNet(host("10.0.0.2")), 80))})
		},
	} {
		if most := heaviest(s, func() { commit(t, s.Renderer(), false, step) }); most > mostAtOnce {
			t.Errorf("%s: a call had %d entries put on interfaces again, want %d at most", name, most, mostAtOnce)
		}
	}
	if after := listsOf(s); maps.Equal(before, after) {
		t.Error("no interface was switched to another ACL")
	}
	s.want(t, all[10].Addr().String(), "10.0.0.1", 80, api.Deny)
	s.want(t, all[11].Addr().String(), "10.0.0.1", 80, api.Permit)
	s.want(t, all[5001].Addr().String(), "10.0.0.20", 80, api.Permit)
	s.want(t, "10.0.0.21", "10.0.0.3", 80, api.Deny)
}

// TestSharesFitIntoStatisticsSegment has a vswitch with room for the counters of 3 000 entries.
// That is not enough for four groups of 1 000, but enough for groups of 500, which stay up to 800.
func TestSharesFitIntoStatisticsSegment(t *testing.T) {
	all := scattered(1000)
	s, pods := sharing(t, 1000)
	s.reopen(t, sluiceacl.Options{})
	s.r.LimitStatistics(3000 * 24 * 2)
	resync := func(peers int) {
		commit(t, s.Renderer(), true, func(x *renderer.Changes) {
			x.UpdateSet(throng, all[:peers], nil)
			for i := range sharingPods {
				letIn(x, pods[i], i)
			}
		})
	}
	lists := func() int { return len(slices.Compact(slices.Sorted(maps.Values(listsOf(s))))) }
	const others = 2 // of the uplink and of the pod without policy
	for _, step := range []struct{ peers, groups int }{{1000, 1}, {500, 4}, {800, 4}, {1000, 4}, {400, 4}} {
		if resync(step.peers); lists()-others != step.groups {
			t.Errorf("%d peers: %d groups, want %d", step.peers, lists()-others, step.groups)
		}
		s.want(t, all[step.peers-1].Addr().String(), "10.0.0.20", 80, api.Permit)
		s.want(t, all[step.peers-1].Addr().String(), "10.0.0.1", 80, api.Permit)
		if step.peers < len(all) {
			s.want(t, all[step.peers].Addr().String(), "10.0.0.20", 80, api.Deny)
		}
	}
	if s.r.Close() != nil {
		t.Error("not closed")
	}
}
