package acl_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// permitting returns the pods that admit an address.
func permitting(s *subject, src string) (pods []int) {
	for i := range sharingPods {
		dst := sharingAddress(i).String()
		if s.Verdict(api.Flow{Src: addr(src), Dst: addr(dst), Protocol: api.TCP, SrcPort: 40000, DstPort: 80}) == api.Permit {
			pods = append(pods, i)
		}
	}
	return pods
}

// TestTurnsDoNotDelayJoins removes an old address, which takes a
// turn for each of the four groups. Addresses that join between two turns are in force on all pods
// at once, a further removal is included, and no group gets more turns than it needs.
func TestTurnsDoNotDelayJoins(t *testing.T) {
	all := scattered(5003)
	s, _ := sharing(t, 5000)
	s.r.OneTurn()
	at := func(n int) string { return all[n].Addr().String() }
	wantOn := func(n, want int) {
		t.Helper()
		if got := permitting(s, at(n)); len(got) != want {
			t.Errorf("address %d: pods %v let it in, want %d", n, got, want)
		}
	}
	before := time.Now()
	var began []time.Time
	step := func(add, remove []int) (since time.Time) {
		t.Helper()
		began = append(began, time.Now())
		err := try(t, s.r, false, func(x *renderer.Changes) {
			for _, n := range add {
				x.UpdateSet(throng, all[n:n+1], nil)
			}
			for _, n := range remove {
				x.UpdateSet(throng, nil, all[n:n+1])
			}
		})
		deferred, ok := errors.AsType[*renderer.Deferred](err)
		if !ok {
			if err != nil {
				t.Fatal(err)
			}
			return since
		}
		if s.r.State().Pauses.Behind != deferred.Since {
			t.Errorf("state is behind since %s, Commit says %s", s.r.State().Pauses.Behind, deferred.Since)
		}
		return deferred.Since
	}
	first := step(nil, []int{10})
	if first.Before(before) || first.After(time.Now()) {
		t.Fatalf("not in force since %s, want since the first Commit", first)
	}
	wantOn(10, sharingPods-sharers)
	if step([]int{5000}, nil) != first {
		t.Error("the second Commit left another one behind")
	}
	wantOn(5000, sharingPods)
	wantOn(10, sharingPods-2*sharers)
	step(nil, []int{20, 5000}) // one older and one recent address
	wantOn(5000, 0)
	wantOn(10, sharingPods-3*sharers)
	wantOn(20, sharingPods-sharers)
	since := step([]int{5001}, nil)
	wantOn(10, 0)
	wantOn(20, sharingPods-2*sharers)
	wantOn(5001, sharingPods)
	if since.Before(began[2]) || since.After(began[3]) {
		t.Errorf("behind since %s, want since the third Commit, %s", since, began[2])
	}
	step(nil, nil)
	if since := step(nil, nil); !since.IsZero() {
		t.Errorf("behind since %s after every group had its turn", since)
	}
	wantOn(20, 0)
	wantGroups(t, s)
	drain(s.wake)
	if calls := s.changes(func() { step(nil, nil) }); calls > 0 {
		t.Errorf("%d calls, and there is nothing to do", calls)
	}
}

// TestTurnsSurviveRestart replaces the renderer and changes policy while half of the
// groups have had their turn.
func TestTurnsSurviveRestart(t *testing.T) {
	all := scattered(5001)
	for name, resync := range map[string]func(s *subject, pods []api.PodID) func(*renderer.Changes){
		"same state": func(s *subject, pods []api.PodID) func(*renderer.Changes) {
			return func(x *renderer.Changes) {
				x.UpdateSet(throng, slices.Delete(slices.Clone(all[:5000]), 10, 11), nil)
				for i := range sharingPods {
					letIn(x, pods[i], i)
				}
			}
		},
		"other peers, fewer pods": func(s *subject, pods []api.PodID) func(*renderer.Changes) {
			return func(x *renderer.Changes) {
				x.UpdateSet(throng, all[11:], nil)
				for i := range sharingPods - 3 {
					letIn(x, pods[i], i)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, pods := sharing(t, 5000)
			s.r.OneTurn()
			leave := func(x *renderer.Changes) { x.UpdateSet(throng, nil, all[10:11]) }
			for range 2 {
				if err := try(t, s.r, false, leave); !errors.Is(err, renderer.ErrDeferred) {
					t.Fatal(err)
				}
				leave = nothing
			}
			s.reopen(t, sluiceacl.Options{})
			s.r.OneTurn()
			commit(t, s.Renderer(), true, resync(s, pods))
			if got := permitting(s, all[10].Addr().String()); name == "same state" && len(got) > 0 {
				t.Errorf("pods %v let in what has left", got)
			}
			if got := permitting(s, all[11].Addr().String()); len(got) != sharingPods {
				t.Errorf("only pods %v let in what stays", got)
			}
			wantGroups(t, s)
		})
	}
}
