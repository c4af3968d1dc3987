package policy

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
)

func shopObjects(t testing.TB) (objects []proto.Message) {
	for _, d := range shop(t).Deltas {
		objects = append(objects, d.Value)
	}
	return objects
}

func snapshot(t testing.TB, p *Plugin) *Snapshot {
	t.Helper()
	s, err := p.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSnapshotHasEverything(t *testing.T) {
	p, _ := startRecorded(t, Deps{}, "one")
	blocks := allow("blocks", "front", "other", 443)
	blocks.Ingress[0].Peers[0].PodSelector = nil
	blocks.Ingress[0].Peers[0].IpBlock = ipBlock("198.51.100.0/24", "198.51.100.7/32")
	mustApply(t, p, changes(t, true, append(shopObjects(t), blocks)...))
	s := snapshot(t, p)

	var pods []string
	for _, pod := range s.Pods {
		word := "remote"
		if pod.Enforced {
			word = "enforced"
		}
		pods = append(pods, pod.ID.Name+" "+word)
	}
	if diff := cmp.Diff([]string{"pod-0 enforced", "pod-1 remote", "pod-2 enforced"}, pods); diff != "" {
		t.Error(diff)
	}
	web := s.Pods[0]
	if len(web.Policies) != 1 || web.Policies[0].Name != "web" || len(web.Ingress.Rules()) != 3 || web.Egress != nil || web.Labels == nil || web.Node != node {
		t.Errorf("pod %+v", web)
	}
	if web.Ingress.Rules()[0].Src.Set != api.NodeSet || web.Ingress.Origins(1)[0].Rule != 0 || web.Ingress.Origins(2)[0].Rule != api.IsolationRule {
		t.Errorf("rules %+v", web.Ingress)
	}
	if len(s.Policies) != 2 || s.Policies[1].ID.Name != "web" || !cmp.Equal(s.Policies[1].Pods, []api.PodID{podID(0)}) || !strings.Contains(s.Policies[1].Subject, "web") {
		t.Errorf("policies %+v", s.Policies)
	}
	var meanings []string
	for _, set := range s.Sets {
		if len(set.Members) > 0 {
			meanings = append(meanings, set.Meaning)
		}
	}
	if len(meanings) != 3 || meanings[0] != "addresses of the node" || meanings[2] != "blocks" {
		t.Errorf("sets %+v", s.Sets)
	}
	if len(s.Namespaces) != 1 || s.Status.Revision != 1 || len(s.Problems) != 0 {
		t.Errorf("snapshot %+v", s)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

func TestSnapshotIsSharedUntilChange(t *testing.T) {
	p, _ := startRecorded(t, Deps{}, "one")
	mustApply(t, p, shop(t))
	first := snapshot(t, p)
	if snapshot(t, p) != first {
		t.Error("a new snapshot although nothing happened")
	}
	mustApply(t, p, changes(t, false, pod(3, "web", true)))
	if second := snapshot(t, p); second == first || len(second.Pods) != 4 || len(first.Pods) != 3 {
		t.Errorf("%d pods in the second snapshot, %d in the first", len(second.Pods), len(first.Pods))
	}
}

func TestSnapshotBeforeFirstChange(t *testing.T) {
	p, _ := startRecorded(t, Deps{}, "one")
	if s := snapshot(t, p); len(s.Pods) != 0 || s.Status.Synced {
		t.Errorf("snapshot %+v", s)
	}
}

func TestSnapshotWaitsForNoCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rs := startRecorded(t, Deps{}, "one")
		rs[0].SetHook(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		_, _ = p.feed.push(shop(t))
		synctest.Wait() // in the Apply
		for range 2 {   // built, and built already
			s, err := p.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if s.Status.BusySince.IsZero() || s.Status.InSync() || s.Status.Seen != 1 || s.Status.Revision != 0 || len(s.Pods) != 3 {
				t.Errorf("snapshot of %d pods with the status %+v", len(s.Pods), s.Status)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if s := p.Status(); !s.BusySince.IsZero() {
			t.Errorf("a plugin that has ended commits: %+v", s)
		}
	})
}

// TestSnapshotWaitsForNoStep: while the loop is at work, the snapshot of before is as of the call.
func TestSnapshotWaitsForNoStep(t *testing.T) {
	var hold atomic.Bool
	entered, leave := make(chan struct{}), make(chan struct{})
	p, _ := startRecorded(t, Deps{Observer: Observer{Stage: func(s Stage, _ time.Duration) {
		if s == StageCache && hold.Swap(false) {
			close(entered)
			<-leave
		}
	}}}, "one")
	mustApply(t, p, shop(t))
	first := snapshot(t, p)
	hold.Store(true)
	if _, err := p.feed.push(changes(t, false, pod(3, "web", true))); err != nil {
		t.Fatal(err)
	}
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if s, err := p.Snapshot(ctx); err != nil || s != first {
		t.Errorf("%v, the same snapshot: %t", err, s == first)
	}
	close(leave)
}

// TestLocalIsPartOfSnapshot: the enforced pods with their lists, and what sets stand for.
func TestLocalIsPartOfSnapshot(t *testing.T) {
	p, _ := startRecorded(t, Deps{}, "one")
	mustApply(t, p, shop(t))
	whole := snapshot(t, p)
	local, err := p.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	enforced := slices.DeleteFunc(slices.Clone(whole.Pods), func(p Pod) bool { return !p.Enforced })
	if len(enforced) == 0 || len(enforced) != len(local.Pods) || len(whole.Sets) == 0 || len(whole.Sets) != len(local.Sets) {
		t.Fatalf("%d pods and %d sets, want %d and %d", len(local.Pods), len(local.Sets), len(enforced), len(whole.Sets))
	}
	for i, want := range enforced {
		if got := local.Pods[i]; got.ID != want.ID || got.Ingress != want.Ingress || got.Egress != want.Egress || !slices.Equal(got.Policies, want.Policies) {
			t.Errorf("pod %s: %+v, want %+v", want.ID, got, want)
		}
	}
	meanings := map[api.SetID]string{}
	for _, s := range whole.Sets {
		meanings[s.ID] = s.Meaning
	}
	for _, s := range local.Sets {
		if s.Meaning != meanings[s.ID] || s.Members != nil {
			t.Errorf("set %s means %q, want %q, with members %v", s.ID, s.Meaning, meanings[s.ID], s.Members)
		}
	}
}

func TestSnapshotTimesOut(t *testing.T) {
	p := New(Deps{})
	if err := p.Init(); err != nil { // nothing runs that could build one
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Snapshot(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestSnapshotReadersDoNotDisturbChanges(t *testing.T) {
	p, rs := startRecorded(t, Deps{}, "one")
	mustApply(t, p, shop(t))
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, err := p.Snapshot(context.Background())
				if err != nil || int64(len(s.Pods)) != 2+s.Status.Seen {
					t.Errorf("snapshot at revision %d has %d pods, %v", s.Status.Seen, len(s.Pods), err)
					return
				}
			}
		})
	}
	for i := range 200 {
		mustApply(t, p, changes(t, false, pod(3+i, "web", true)))
	}
	close(stop)
	readers.Wait()
	if n := len(rs[0].Pods()); n != 202 {
		t.Errorf("%d pods are installed, want 202", n)
	}
}
