package acl_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

const benchPods = 110

func benchPod(i int) api.PodID { return pod(fmt.Sprint("p", i)) }

// node is a state with 110 pods of 20 kinds. Each kind has its own list for each direction; the
// lists name three of 20 sets with 1 000 members.
func node(t *renderer.Changes) {
	const kinds = 20
	set := func(k, i int) api.Net { return api.SetNet(api.SetID(1000 + (k+i)%kinds)) }
	for k := range kinds {
		in := list(from(set(k, 0), 80), from(set(k, 1), 443), from(set(k, 2), 5432))
		out := list(to(set(k, 0), 53), to(set(k, 1), 443), to(set(k, 2), 5432))
		for i := k; i < benchPods; i += kinds {
			t.Render(benchPod(i), renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}, Ingress: out, Egress: in})
		}
		var members []netip.Prefix
		for i := range 1000 {
			n := (i*7 + k*977) % 60000
			members = append(members, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), 32))
		}
		t.UpdateSet(api.SetID(1000+k), members, nil)
	}
}

func benchSubject(b *testing.B) *subject {
	var pods []api.PodID
	for i := range benchPods {
		pods = append(pods, benchPod(i))
	}
	s := newSubject(b, pods...)
	b.Cleanup(func() { _ = s.Close() })
	commit(b, s.r, true, node)
	return s
}

func BenchmarkOneMemberOfASetWith110Pods(b *testing.B) {
	s := benchSubject(b)
	one := []netip.Prefix{host("10.200.0.1")}
	before := s.Operations()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		added, removed := one, []netip.Prefix(nil)
		if n%2 == 1 {
			added, removed = removed, added
		}
		commit(b, s.r, false, func(t *renderer.Changes) { t.UpdateSet(1000, added, removed) })
		n++
	}
	calls := float64(s.Operations()-before) / float64(n)
	if calls < 1 {
		b.Fatal("nothing was installed")
	}
	b.ReportMetric(calls, "changes/op")
}

func BenchmarkResyncOfTheSameStateWith110Pods(b *testing.B) {
	s := benchSubject(b)
	before := s.Operations()
	for b.Loop() {
		commit(b, s.r, true, node)
	}
	if n := s.Operations() - before; n != 0 {
		b.Fatalf("%d calls for the same state", n)
	}
}

func BenchmarkFirstCommitWith110Pods(b *testing.B) {
	s := benchSubject(b)
	for b.Loop() {
		b.StopTimer()
		commit(b, s.r, true, nothing)
		b.StartTimer()
		commit(b, s.r, true, node)
	}
	entries := 0
	for _, t := range s.r.State().Tables {
		entries += t.Entries
	}
	b.ReportMetric(float64(entries), "entries")
}

func BenchmarkRestartWith110Pods(b *testing.B) {
	s := benchSubject(b)
	before := s.Operations()
	for b.Loop() {
		if err := s.r.Close(); err != nil {
			b.Fatal(err)
		}
		s.r = s.open()
		commit(b, s.r, true, node)
	}
	if n := s.Operations() - before; n != 0 {
		b.Fatalf("%d calls for the same state", n)
	}
}
