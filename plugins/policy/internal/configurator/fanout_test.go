package configurator

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// pair is a Configurator with two Recorders.
func pair(t renderertest.Reporter) (*Configurator, *renderertest.Recorder, *renderertest.Recorder) {
	one, two := renderertest.NewRecorder("one", t), renderertest.NewRecorder("two", t)
	return New(Options{Renderers: []renderer.Renderer{one, two}}), one, two
}

func TestTxnEmptyRetriesFailedRenderer(t *testing.T) {
	c, one, two := pair(t)
	two.FailNext(renderertest.FailBefore, renderertest.FailBefore)
	txn := c.NewTxn(true)
	configure(0, spread("p", 1))(txn)
	err := txn.Commit(t.Context())
	if !errors.Is(err, renderertest.ErrInjected) || !strings.Contains(err.Error(), "renderer two: ") || strings.Contains(err.Error(), "renderer one: ") {
		t.Fatalf("error %v, want one of renderer two only", err)
	}
	if c.InSync() {
		t.Error("in sync although a renderer failed")
	}
	if err := c.NewTxn(false).Commit(t.Context()); !errors.Is(err, renderertest.ErrInjected) {
		t.Fatalf("error %v, want that of the second failure", err)
	}
	if err := c.NewTxn(false).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one.Dump(), two.Dump()); diff != "" {
		t.Error(diff)
	}
	want := []RendererStatus{{Name: "one", InSync: true, Commits: 1}, {Name: "two", InSync: true, Commits: 1, Failures: 2}}
	if diff := cmp.Diff(want, c.Renderers()); diff != "" {
		t.Error(diff)
	}
	if one.Commits() != 1 || !c.InSync() {
		t.Errorf("renderer one committed %d times, want once", one.Commits())
	}
}

func TestInSyncIsFalseBeforeFirstCommit(t *testing.T) {
	c, _, _ := pair(t)
	for _, s := range c.Renderers() {
		if s.InSync {
			t.Errorf("%s is in sync", s.Name)
		}
	}
}

func TestTxnJoinsErrorsOfRenderers(t *testing.T) {
	c, one, two := pair(t)
	one.FailNext(renderertest.FailAfter)
	two.FailNext(renderertest.FailBefore)
	err := c.NewTxn(true).Commit(t.Context())
	if err == nil || !strings.Contains(err.Error(), "renderer one: ") || !strings.Contains(err.Error(), "renderer two: ") {
		t.Errorf("error %v, want both names", err)
	}
}

func TestTxnIsCommittedOnce(t *testing.T) {
	c, one, _ := pair(t)
	txn := c.NewTxn(true)
	if err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := txn.Commit(t.Context()); err == nil || one.Commits() != 1 {
		t.Errorf("error %v after %d commits of the renderer", err, one.Commits())
	}
}

func TestRenderersCommitInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, one, two := pair(t)
		meet := make(chan struct{}) // both must arrive, or the test is deadlocked
		one.SetHook(func(context.Context) error { meet <- struct{}{}; return nil })
		two.SetHook(func(context.Context) error { <-meet; return nil })
		if err := c.NewTxn(true).Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCommitEndsWithContextAndLosesNothing(t *testing.T) {
	c, one, two := pair(t)
	two.SetHook(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
	ctx, cancel := context.WithCancel(t.Context())
	one.SetHook(func(context.Context) error { cancel(); return nil })
	txn := c.NewTxn(true)
	configure(0, spread("p", 1))(txn)
	if err := txn.Commit(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want that of the context", err)
	}
	// Changes that come while the context is done are kept as well.
	txn = c.NewTxn(false)
	configure(1, spread("q", 2))(txn)
	if err := txn.Commit(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want that of the context", err)
	}
	one.SetHook(nil)
	two.SetHook(nil)
	if err := c.NewTxn(false).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one.Dump(), two.Dump()); diff != "" || len(two.Pods()) != 2 {
		t.Errorf("%d pods are installed, want 2; %s", len(two.Pods()), diff)
	}
}

// TestConfiguratorHasNoHistory drives a Configurator through random transactions, with failing
// renderers, and compares with one that receives the final state at once.
func TestConfiguratorHasNoHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { // hides Deadline, which bubbles do not have
			c, one, two := pair(t)
			c.pace.Turn = rapid.SampledFrom([]time.Duration{0, 1}).Draw(t, "turn")
			if c.pace.Turn > 0 {
				slow := func(context.Context) error { time.Sleep(2 * time.Microsecond); return nil }
				one.SetHook(slow)
				two.SetHook(slow)
			}
			w := world{pods: map[int][]*api.ContivPolicy{}, sets: map[api.SetID]netip.Prefix{}}
			library := [][]*api.ContivPolicy{nil, {spread("p", 1)}, {spread("p", 2)}, drawPolicies(t), drawPolicies(t)}
			for range rapid.IntRange(1, 10).Draw(t, "transactions") {
				one.FailNext(rapid.SampledFrom([]renderertest.Failure{renderertest.NoFailure, renderertest.FailBefore, renderertest.FailAfter}).Draw(t, "failure"))
				resync := rapid.IntRange(0, 6).Draw(t, "resync when 0") == 0
				time.Sleep(time.Duration(rapid.IntRange(0, 3).Draw(t, "µs since the last one")) * time.Microsecond)
				txn := c.NewTxn(resync)
				w.drawInto(t, txn, library, resync)
				if err := txn.Commit(context.Background()); err != nil && !errors.Is(err, renderertest.ErrInjected) {
					t.Fatal(err)
				}
			}
			one.FailNext() // a queued failure makes the repair fail at most once
			for range 3000 {
				err := c.NewTxn(false).Commit(context.Background())
				c.Join()
				if err == nil && c.InSync() {
					break
				}
			}
			fresh, want, _ := pair(t)
			txn := fresh.NewTxn(true)
			w.tell(txn)
			if err := txn.Commit(context.Background()); err != nil {
				t.Fatal(err)
			}
			for _, r := range []*renderertest.Recorder{one, two} {
				if diff := cmp.Diff(want.Dump(), r.Dump()); diff != "" {
					t.Fatalf("renderer %s: %s", r.Name(), diff)
				}
			}
			if diff := cmp.Diff(footprint(fresh), footprint(c)); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(fresh.Unenforced(), c.Unenforced()); diff != "" {
				t.Fatal(diff)
			}
		})
	})
}

// world is the desired state of a Configurator.
type world struct {
	pods map[int][]*api.ContivPolicy
	sets map[api.SetID]netip.Prefix // one member each
}

func (w *world) tell(txn *Txn) {
	for pod, policies := range w.pods {
		configure(pod, policies...)(txn)
	}
	for id, member := range w.sets {
		txn.UpdateSet(id, []netip.Prefix{member}, nil)
	}
}

// drawInto changes the world and sends the changes, or everything in a resync.
func (w *world) drawInto(t *rapid.T, txn *Txn, library [][]*api.ContivPolicy, resync bool) {
	changes := txn
	if resync {
		changes = New(Options{}).NewTxn(false) // a transaction that is never committed
	}
	for range rapid.IntRange(0, 4).Draw(t, "pods") {
		pod := rapid.IntRange(0, 4).Draw(t, "pod")
		if rapid.IntRange(0, 3).Draw(t, "remove when 0") == 0 {
			delete(w.pods, pod)
			changes.Remove(podID(pod))
			continue
		}
		w.pods[pod] = rapid.SampledFrom(library).Draw(t, "its policies")
		configure(pod, w.pods[pod]...)(changes)
	}
	id := rapid.SampledFrom([]api.SetID{300, 301}).Draw(t, "set")
	if old, ok := w.sets[id]; ok {
		delete(w.sets, id)
		changes.UpdateSet(id, nil, []netip.Prefix{old})
	} else {
		w.sets[id] = pfx("10.0.0.1/32")
		changes.UpdateSet(id, []netip.Prefix{w.sets[id]}, nil)
	}
	if resync {
		w.tell(txn)
	}
}

// working is a renderer that may have more work, and counts how often it is asked for a report.
type working struct {
	*renderertest.Recorder
	unfinished bool
	asked      int
}

func (w *working) Unenforced() []renderer.Unenforced {
	w.asked++
	return nil
}

func (w *working) Apply(ctx context.Context, c renderer.Changes) error {
	if err := w.Recorder.Apply(ctx, c); err != nil || !w.unfinished {
		return err
	}
	return &renderer.Deferred{Unfinished: true}
}

func TestCommitAsksWhoIsNotFinishedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &working{Recorder: renderertest.NewRecorder("working", t), unfinished: true}
		c := New(Options{Renderers: []renderer.Renderer{w}})
		commit := func(resync bool) {
			if err := c.NewTxn(resync).Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		commit(true)
		commit(false)
		if commit(false); w.asked != 1 {
			t.Errorf("asked %d times within a moment, want once", w.asked)
		}
		time.Sleep(reportEvery)
		if commit(false); w.asked != 2 {
			t.Errorf("asked %d times after a second, want twice", w.asked)
		}
		w.unfinished = false
		if commit(false); w.asked != 3 {
			t.Errorf("asked %d times at the end, want three times", w.asked)
		}
	})
}

// slowPair is a pair of which the second renderer needs an hour for a Commit, until its hook is
// removed, and transactions have turns of 40 ms.
func slowPair(t *testing.T) (*Configurator, *renderertest.Recorder, *renderertest.Recorder) {
	one, two := renderertest.NewRecorder("one", t), renderertest.NewRecorder("two", t)
	two.SetHook(func(ctx context.Context) error {
		select {
		case <-time.After(time.Hour):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return New(Options{Renderers: []renderer.Renderer{one, two}, Pace: Pace{Turn: 40 * time.Millisecond}}), one, two
}

// commitPod commits a pod with one policy, and returns how long that took.
func commitPod(t *testing.T, c *Configurator, i int) time.Duration {
	t.Helper()
	began := time.Now()
	txn := c.NewTxn(false)
	configure(i, spread("p", 1))(txn)
	if err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

// goOn commits an empty transaction.
func goOn(t *testing.T, c *Configurator) {
	t.Helper()
	if err := c.NewTxn(false).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wantSame requires that two renderers have the same.
func wantSame(t *testing.T, one, two *renderertest.Recorder) {
	t.Helper()
	if diff := cmp.Diff(one.Dump(), two.Dump()); diff != "" {
		t.Error(diff)
	}
}

// wantUntil requires that what ended before a time is enforced, and no more.
func wantUntil(t *testing.T, c *Configurator, want time.Time) {
	t.Helper()
	if until, known := c.EnforcedUntil(); !known || !until.Equal(want) {
		t.Errorf("enforced until %s (known: %t), want %s", until, known, want)
	}
}

func TestTxnWaitsForNoSlowRenderer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, one, two := slowPair(t)
		began := time.Now()
		if took := commitPod(t, c, 0); took != 40*time.Millisecond {
			t.Errorf("the first transaction took %s, want its turn of 40ms", took)
		}
		for i := 1; i < 100; i++ {
			if took := commitPod(t, c, i); took != 0 {
				t.Errorf("transaction %d took %s, want none of the time of the slow renderer", i, took)
			}
		}
		if len(one.Pods()) != 100 || len(two.Pods()) != 0 || c.Committing().IsZero() || c.InSync() {
			t.Errorf("%d and %d pods, running since %s, in sync %t", len(one.Pods()), len(two.Pods()), c.Committing(), c.InSync())
		}
		wantUntil(t, c, began)
		two.SetHook(nil)
		time.Sleep(time.Until(began.Add(time.Hour - 1)))
		if c.Unfinished() {
			t.Error("there is an outcome of a Commit that has not ended")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !c.Unfinished() {
			t.Error("a Commit that has ended has no outcome")
		}
		goOn(t, c)
		wantSame(t, one, two)
		if n := two.Commits(); n != 2 || !c.InSync() || !c.Committing().IsZero() {
			t.Errorf("%d commits, want one more for all that came meanwhile; in sync %t, running since %s", n, c.InSync(), c.Committing())
		}
	})
}

func TestEnforcedUntilCountsWhatWaitsForRenderer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := slowPair(t)
		commitPod(t, c, 0)
		time.Sleep(time.Minute)
		second := time.Now()
		commitPod(t, c, 1)
		time.Sleep(time.Minute)
		commitPod(t, c, 2)
		time.Sleep(time.Hour)
		goOn(t, c) // begins with the others
		wantUntil(t, c, second)
		c.Join()
	})
}

// TestEnforcedUntilCountsWhatWaitedForDeferringCommit: a renderer knows when its Commits began, not
// what had waited for them.
func TestEnforcedUntilCountsWhatWaitedForDeferringCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, two := slowPair(t)
		commitPod(t, c, 0)
		time.Sleep(time.Minute)
		second := time.Now()
		commitPod(t, c, 1) // waits
		time.Sleep(time.Hour)
		var began time.Time
		two.SetHook(func(context.Context) error {
			if began.IsZero() {
				began = time.Now()
			}
			return &renderer.Deferred{Since: began}
		})
		for range 3 {
			txn := c.NewTxn(false)
			txn.CommitAll()
			if err := txn.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantUntil(t, c, second)
			time.Sleep(time.Minute)
		}
		began = time.Now() // what waited is in force, and a later Commit is not
		third := time.Now()
		commitPod(t, c, 2)
		wantUntil(t, c, third)
		two.SetHook(nil)
		commitPod(t, c, 3)
		if until, known := c.EnforcedUntil(); known || !c.InSync() {
			t.Errorf("in sync %t, until %s", c.InSync(), until)
		}
	})
}

func TestTxnOfResyncReplacesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, one, two := slowPair(t)
		commitPod(t, c, 0)
		commitPod(t, c, 1)
		two.SetHook(nil)
		txn := c.NewTxn(true)
		configure(2, spread("p", 1))(txn)
		configure(3, spread("p", 1))(txn)
		if err := txn.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(one.Pods()) != 2 || !one.LastCommit().Resync || two.Commits() != 0 {
			t.Errorf("%d pods of a resync, want 2 without waiting for the other renderer", len(one.Pods()))
		}
		c.Join()
		goOn(t, c)
		if diff := cmp.Diff(one.Dump(), two.Dump()); diff != "" || len(two.Pods()) != 2 || !two.LastCommit().Resync {
			t.Errorf("%d pods, want 2 of a resync; %s", len(two.Pods()), diff)
		}
	})
}

// TestTxnForAllIsRepeatedAfterRunningCommit: the Commit that goes on may have looked already.
func TestTxnForAllIsRepeatedAfterRunningCommit(t *testing.T) {
	for _, prompted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, _, two := slowPair(t)
			commitPod(t, c, 0)
			txn := c.NewTxn(false)
			if prompted {
				txn.CommitAll()
			}
			if err := txn.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			goOn(t, c)
			if c.Join(); (two.Commits() == 2) != prompted {
				t.Errorf("prompted %t: %d commits", prompted, two.Commits())
			}
		})
	}
}

func TestTxnDoesNotRetryWhatHasJustFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, two := slowPair(t)
		commitPod(t, c, 0)
		two.FailNext(renderertest.FailBefore)
		time.Sleep(time.Hour)
		if err := c.NewTxn(false).Commit(t.Context()); !errors.Is(err, renderertest.ErrInjected) || !c.Committing().IsZero() {
			t.Errorf("error %v, running since %s; want the error of the Commit that has ended, and no other", err, c.Committing())
		}
		two.SetHook(nil)
		if err := c.NewTxn(false).Commit(t.Context()); err != nil || !c.InSync() {
			t.Errorf("a retry: %v, in sync %t", err, c.InSync())
		}
	})
}

// TestEnforcedUntilCountsFromTurn: a renderer may look at its clock when the turn is over.
func TestEnforcedUntilCountsFromTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, two := slowPair(t)
		two.SetHook(func(context.Context) error {
			time.Sleep(time.Second) // it waits for its lock
			return &renderer.Deferred{Since: time.Now()}
		})
		began := time.Now()
		commitPod(t, c, 0)
		time.Sleep(2 * time.Second)
		goOn(t, c)
		wantUntil(t, c, began)
	})
}

// TestWaitingCountsWhileCommitGoesOn: pods that wait in a renderer wait while it works.
func TestWaitingCountsWhileCommitGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, two := slowPair(t)
		two.SetHook(func(context.Context) error {
			return &renderer.Deferred{Since: time.Now(), Unfinished: true, Waiting: []api.PodID{podID(0)}}
		})
		commitPod(t, c, 0)
		two.SetHook(func(context.Context) error { time.Sleep(time.Second); return nil })
		goOn(t, c)
		if n := c.Waiting(); n != 1 || !c.Dump().Pods[0].Waiting {
			t.Errorf("%d pods wait, the dump says %t", n, c.Dump().Pods[0].Waiting)
		}
		c.Join()
	})
}

func TestTxnKeepsNewestStateOfPodsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, one, two := slowPair(t)
		commitPod(t, c, 0)
		for i := range 1000 {
			txn := c.NewTxn(false)
			configure(1, spread("p", byte(1+i%2)))(txn)
			if i%3 == 0 {
				txn.Remove(podID(2))
			} else {
				configure(2, spread("p", byte(1+i%2)))(txn)
			}
			if err := txn.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if waits := c.targets[1].queue.changes.Take(); len(waits.Pods) != 2 {
			t.Errorf("%d states of 2 pods wait", len(waits.Pods))
		} else {
			c.targets[1].queue.changes.Add(waits)
		}
		two.SetHook(nil)
		c.Join()
		goOn(t, c)
		wantSame(t, one, two)
	})
}

func TestEnforcedUntilNeedsFewCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, two := slowPair(t)
		first := time.Now()
		for _, isKnown := range []bool{true, false} {
			err := renderer.ErrDeferred
			if isKnown {
				err = &renderer.Deferred{Since: first}
			}
			two.SetHook(func(context.Context) error { time.Sleep(time.Second); return err })
			for range 3 * maxNoted {
				commitPod(t, c, 0)
				txn := c.NewTxn(false)
				txn.CommitAll() // waits
				if err := txn.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
			}
			if n := len(c.targets[1].commits); n > maxNoted {
				t.Errorf("%v: %d commits are noted", err, n)
			}
			if until, known := c.EnforcedUntil(); known != isKnown || known && until.After(first) {
				t.Errorf("%v: enforced until %s (known: %t), want %s", err, until, known, first)
			}
		}
		c.Join()
	})
}
