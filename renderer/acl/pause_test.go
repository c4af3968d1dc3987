package acl_test

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// aPause is how long the vswitch takes for each call that changes it.
const aPause = 10 * time.Millisecond

// withABudget runs a test with 1 000 peers and a budget of 1 %, in a bubble with fake time. tell
// commits a transaction and reports whether a part of it waits, with the number of calls. At the
// start nothing waits.
func withABudget(t *testing.T, test func(t *testing.T, s *subject, tell func(func(*renderer.Changes)) (deferred bool, calls int))) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, peerPods...)
		if err := s.r.Close(); err != nil {
			t.Fatal(err)
		}
		s.options = sluiceacl.Options{Pacing: sluiceacl.Pacing{PauseBudget: 0.01, CompactAfter: -1}}
		s.r, s.tap.pause = s.open(), aPause
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		commit(t, s.Renderer(), true, manyPeers(peerPods, 1000))
		time.Sleep(time.Hour)
		synctest.Wait()
		drain(s.wake)
		test(t, s, func(fill func(*renderer.Changes)) (deferred bool, calls int) {
			t.Helper()
			calls = s.changes(func() {
				err := try(t, s.Renderer(), false, fill)
				if deferred = errors.Is(err, renderer.ErrDeferred); err != nil && !deferred {
					t.Fatal(err)
				}
			})
			return deferred, calls
		})
	})
}

// wantJoined checks whether the first pod admits an address.
func (s *subject) wantJoined(t *testing.T, n int, want api.Action) {
	t.Helper()
	s.want(t, peer(n).Addr().String(), "10.0.0.1", 80, want)
}

// wasPrompted reports whether OnChange was called.
func (s *subject) wasPrompted() bool {
	synctest.Wait()
	defer drain(s.wake)
	return len(s.wake) > 0
}

func TestDeferralAppliesJoinsWithinBudget(t *testing.T) {
	withABudget(t, func(t *testing.T, s *subject, tell func(func(*renderer.Changes)) (bool, int)) {
		total := s.r.State().Pauses.Total
		deferred, calls := tell(joins(1000))
		if deferred || calls == 0 {
			t.Fatalf("VPP was not paused for an hour: deferred %t, %d calls", deferred, calls)
		}
		pause := time.Duration(calls) * aPause
		if got := s.r.State().Pauses.Total - total; got != pause {
			t.Errorf("paused for %s, want %s for %d calls", got, pause, calls)
		}
		for n := 1001; n < 1009; n++ {
			if deferred, calls := tell(joins(n)); !deferred || calls > 0 {
				t.Fatalf("join %d: deferred %t, %d calls", n, deferred, calls)
			}
			time.Sleep(10 * time.Millisecond)
		}
		s.wantJoined(t, 1000, api.Permit)
		s.wantJoined(t, 1008, api.Deny)
		if p := s.r.State().Pauses; p.Waiting != 8 || p.Age(time.Now()) != 80*time.Millisecond {
			t.Errorf("%d wait for %s, want 8 for 80ms", p.Waiting, p.Age(time.Now()))
		}
		took := pause + time.Duration(calls-1)*aPause/8 // VPP forwards between calls
		time.Sleep(min(99*pause, 1500*time.Millisecond-2*took) - 81*time.Millisecond)
		if s.wasPrompted() {
			t.Error("OnChange was called too early")
		}
		time.Sleep(2 * time.Millisecond)
		if !s.wasPrompted() {
			t.Error("OnChange was not called")
		}
		if deferred, again := tell(nothing); deferred || again > calls {
			t.Errorf("8 joins: deferred %t, %d calls, want no more than the %d of one", deferred, again, calls)
		}
		s.wantJoined(t, 1001, api.Permit)
		s.wantJoined(t, 1008, api.Permit)
		if p := s.r.State().Pauses; p.Waiting != 0 || p.Age(time.Now()) != 0 {
			t.Errorf("%d still wait", p.Waiting)
		}
		time.Sleep(time.Minute)
		if s.wasPrompted() {
			t.Error("OnChange was called without work to do")
		}
	})
}

func TestDeferralAppliesLeavesAtOnce(t *testing.T) {
	withABudget(t, func(t *testing.T, s *subject, tell func(func(*renderer.Changes)) (bool, int)) {
		tell(joins(1000))
		tell(joins(1001))
		deferred, calls := tell(leaves(5))
		if !deferred || calls == 0 {
			t.Errorf("a leave while a join waits: deferred %t, %d calls", deferred, calls)
		}
		s.wantJoined(t, 5, api.Deny)
		s.wantJoined(t, 1001, api.Deny)
		deferred, calls = tell(func(x *renderer.Changes) {
			x.UpdateSet(7, []netip.Prefix{peer(1002)}, []netip.Prefix{peer(6)})
		})
		if !deferred || calls == 0 {
			t.Errorf("a leave and a join in one: deferred %t, %d calls", deferred, calls)
		}
		s.wantJoined(t, 6, api.Deny)
		s.wantJoined(t, 1002, api.Deny)
		tell(joins(5)) // it comes back
		s.wantJoined(t, 5, api.Deny)
		if deferred, calls := tell(leaves(1001)); !deferred || calls != 0 {
			t.Errorf("what waited leaves: deferred %t, %d calls", deferred, calls)
		}
		time.Sleep(2 * time.Second)
		if deferred, _ := tell(nothing); deferred {
			t.Error("something waits for more than two seconds")
		}
		for n, want := range map[int]api.Action{5: api.Permit, 6: api.Deny, 1001: api.Deny, 1002: api.Permit} {
			s.wantJoined(t, n, want)
		}
	})
}

func TestDeferralAppliesDeniesAtOnce(t *testing.T) {
	withABudget(t, func(t *testing.T, s *subject, tell func(func(*renderer.Changes)) (bool, int)) {
		deferred, _ := tell(func(x *renderer.Changes) {
			x.UpdateSet(9, []netip.Prefix{peer(7)}, nil)
			x.Render(peerPods[0], renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: list(
				api.ContivRule{Src: api.SetNet(8)}, from(api.SetNet(7), 80), from(api.SetNet(9), 80))})
		})
		if deferred {
			t.Error("new rules wait")
		}
		tell(func(x *renderer.Changes) { x.UpdateSet(9, []netip.Prefix{peer(8)}, nil) })
		if deferred, _ := tell(leaves(8)); deferred { // from one set to another, in two transactions
			t.Error("an address waits for one set and has left another")
		}
		s.wantJoined(t, 8, api.Permit)
		deferred, _ = tell(func(x *renderer.Changes) { // and in one
			x.UpdateSet(9, []netip.Prefix{peer(9)}, nil)
			x.UpdateSet(7, nil, []netip.Prefix{peer(9)})
		})
		if deferred {
			t.Error("an address waits for one set and has left another in one transaction")
		}
		s.wantJoined(t, 9, api.Permit)
		if deferred, calls := tell(func(x *renderer.Changes) { x.UpdateSet(8, []netip.Prefix{peer(10)}, nil) }); deferred || calls == 0 {
			t.Errorf("a set that is denied: deferred %t, %d calls", deferred, calls)
		}
		s.wantJoined(t, 10, api.Deny)
	})
}

func TestDeferralAppliesPermitsBeforeDenyAtOnce(t *testing.T) {
	withABudget(t, func(t *testing.T, s *subject, tell func(func(*renderer.Changes)) (bool, int)) {
		tell(func(x *renderer.Changes) {
			x.UpdateSet(9, []netip.Prefix{peer(7)}, nil)
			x.Render(peerPods[0], renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: list(
				from(api.SetNet(9), 80), api.ContivRule{Src: api.SetNet(8)}, from(api.SetNet(7), 80))})
		})
		if deferred, _ := tell(func(x *renderer.Changes) { x.UpdateSet(9, []netip.Prefix{peer(8)}, nil) }); !deferred {
			t.Error("a join does not wait")
		}
		tell(func(x *renderer.Changes) { x.UpdateSet(8, []netip.Prefix{peer(8)}, nil) })
		s.wantJoined(t, 8, api.Permit) // as before, by another rule
	})
}

func TestDeferralAppliesWaitingMembersWithOthers(t *testing.T) {
	for name, fill := range map[string]func(*renderer.Changes){
		"a pod that gets rules": func(x *renderer.Changes) {
			x.Render(peerPods[2], renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.3")}, Egress: list()})
		},
		"a pod that goes": func(x *renderer.Changes) { x.Remove(peerPods[2]) },
	} {
		t.Run(name, func(t *testing.T) {
			withABudget(t, func(t *testing.T, s *subject, tell func(func(*renderer.Changes)) (bool, int)) {
				tell(joins(1000))
				tell(joins(1001))
				s.wantJoined(t, 1001, api.Deny)
				if deferred, calls := tell(fill); deferred || calls == 0 {
					t.Errorf("deferred %t, %d calls", deferred, calls)
				}
				s.wantJoined(t, 1001, api.Permit)
			})
		})
	}
}

func TestDeferralIsEmptyAfterResyncOrRestart(t *testing.T) {
	withABudget(t, func(t *testing.T, s *subject, tell func(func(*renderer.Changes)) (bool, int)) {
		tell(joins(1000))
		tell(joins(1001))
		commit(t, s.Renderer(), true, manyPeers(peerPods, 1001)) // without the last one
		s.wantJoined(t, 1000, api.Permit)
		s.wantJoined(t, 1001, api.Deny)
		tell(joins(1001))
		s.tap.fail(1)
		if err := try(t, s.Renderer(), false, leaves(1)); err == nil {
			t.Error("a call failed, and the commit worked")
		}
		if deferred, _ := tell(nothing); deferred {
			t.Error("a join waits where everything is read and repaired")
		}
		s.wantJoined(t, 1, api.Deny)
		s.wantJoined(t, 1001, api.Permit)
	})
}

func TestDeferralEndsAfterTwoSeconds(t *testing.T) {
	withABudget(t, func(t *testing.T, s *subject, tell func(func(*renderer.Changes)) (bool, int)) {
		s.tap.pause = 60 * time.Millisecond
		tell(joins(1000)) // 1 % would be half a minute
		if deferred, _ := tell(joins(1001)); !deferred {
			t.Fatal("a join does not wait")
		}
		time.Sleep(600 * time.Millisecond)
		if s.wasPrompted() {
			t.Error("OnChange was called too early")
		}
		if deferred, calls := tell(leaves(1)); !deferred || calls == 0 { // which begins a new pause
			t.Errorf("a leave: deferred %t, %d calls", deferred, calls)
		}
		if !s.wasPrompted() {
			t.Error("OnChange was not called")
		}
		if deferred, _ := tell(joins(1002)); deferred {
			t.Error("a join of two seconds ago, or one that comes with it, waits")
		}
		s.wantJoined(t, 1001, api.Permit)
		s.wantJoined(t, 1002, api.Permit)
	})
}

func TestPauseBudgetIsShareOfTime(t *testing.T) {
	zero := 0.0
	for _, share := range []float64{-0.01, 1.01, zero / zero} {
		if _, err := sluiceacl.New(sluiceacl.Options{Pacing: sluiceacl.Pacing{PauseBudget: share}}); err == nil {
			t.Errorf("%v is accepted", share)
		}
	}
}
