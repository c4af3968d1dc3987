package acl_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// inIdleBubble runs a test with 1 000 peers, in a bubble with fake time. wakes
// counts the calls of OnChange.
func inIdleBubble(t *testing.T, test func(t *testing.T, s *subject, wakes func() int)) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, peerPods...)
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		out := list(to(api.SetNet(7), 443))
		commit(t, s.Renderer(), true, func(x *renderer.Changes) {
			manyPeers(peerPods, 1000)(x)
			in := list(from(api.SetNet(7), 80))
			x.Render(peerPods[0], renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: in, Ingress: out})
			x.Render(peerPods[1], renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.2")}, Egress: in})
			x.Remove(peerPods[2])
		})
		wakes := func() (n int) {
			for {
				synctest.Wait()
				select {
				case <-s.wake:
					n++
				default:
					return n
				}
			}
		}
		wakes()
		test(t, s, wakes)
	})
}

// youngest returns the number of recent entries: the largest of a local table, and that of the
// global table.
func (s *subject) youngest() (local, global int) {
	for _, a := range s.r.Dump().ACLs {
		switch {
		case strings.HasPrefix(a.Tag, "sluice:young:"):
			global = a.Entries
		case strings.Contains(a.Tag, "y:"):
			local = max(local, a.Entries)
		}
	}
	return local, global
}

func join(t *testing.T, s *subject, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		commit(t, s.Renderer(), false, joins(n))
	}
}

func TestIdleCompactionMovesRecentEntries(t *testing.T) {
	inIdleBubble(t, func(t *testing.T, s *subject, wakes func() int) {
		join(t, s, 1000, 1208) // 128 of them have made room for 80 in the local table
		time.Sleep(9 * time.Second)
		if n := wakes(); n > 0 {
			t.Errorf("OnChange was called %d times, too early", n)
		}
		time.Sleep(2 * time.Second)
		if n := wakes(); n != 1 {
			t.Errorf("OnChange was called %d times, want once", n)
		}
		if local, _ := s.youngest(); local != 80 {
			t.Errorf("%d entries are young, want 80: nobody has committed", local)
		}
		commit(t, s.Renderer(), false, nothing)
		if local, global := s.youngest(); local > 0 || global > 0 {
			t.Errorf("%d and %d entries are still young", local, global)
		}
		for n, want := range map[int]api.Action{5: api.Permit, 1000: api.Permit, 1207: api.Permit, 1208: api.Deny} {
			s.want(t, peer(n).Addr().String(), "10.0.0.1", 80, want)
			s.want(t, "10.0.0.1", peer(n).Addr().String(), 443, want)
		}
		time.Sleep(time.Minute)
		if n := wakes(); n > 0 {
			t.Errorf("OnChange was called %d times without work to do", n)
		}
	})
}

func TestIdleCompactionIsPostponedByChanges(t *testing.T) {
	inIdleBubble(t, func(t *testing.T, s *subject, wakes func() int) {
		join(t, s, 1000, 1080)
		for n := 1080; n < 1090; n++ {
			time.Sleep(6 * time.Second)
			join(t, s, n, n+1)
		}
		if n := wakes(); n > 0 {
			t.Errorf("OnChange was called %d times while it was busy", n)
		}
		time.Sleep(11 * time.Second)
		if n := wakes(); n != 1 {
			t.Errorf("OnChange was called %d times, want once", n)
		}
		join(t, s, 1090, 1091) // the idle period is over
		if local, _ := s.youngest(); local != 91 {
			t.Errorf("%d entries are young, want 91", local)
		}
	})
}

func TestIdleCompactionIgnoresFewRecentEntries(t *testing.T) {
	inIdleBubble(t, func(t *testing.T, s *subject, wakes func() int) {
		join(t, s, 1000, 1060)
		time.Sleep(time.Minute)
		if n := wakes(); n > 0 {
			t.Errorf("OnChange was called %d times", n)
		}
		if n := s.changes(func() { commit(t, s.Renderer(), false, nothing) }); n > 0 {
			t.Errorf("%d messages", n)
		}
	})
}
