package policy

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestPluginSendsChangesToRenderers(t *testing.T) {
	p, rs := startRecorded(t, Deps{}, "one", "two")
	mustApply(t, p, shop(t))
	for _, r := range rs {
		if !r.LastCall().Resync {
			t.Errorf("the first commit of %s is no resync", r.Name())
		}
		if got := r.Verdict(web(addr(1), addr(0))); got != api.Permit {
			t.Errorf("%s: front to web: %s", r.Name(), got)
		}
		if got := r.Verdict(web(addr(2), addr(0))); got != api.Deny {
			t.Errorf("%s: other to web: %s", r.Name(), got)
		}
	}
	mustApply(t, p, changes(t, false, pod(3, "front", false)))
	if got := rs[0].Verdict(web(addr(3), addr(0))); got != api.Permit {
		t.Errorf("a new front to web: %s", got)
	}
	if got := rs[0].LastCall().Operations; got != 1 {
		t.Errorf("a remote pod took %d operations, want 1", got)
	}
	mustApply(t, p, deletion(model.KindNetworkPolicy, "web"))
	if got := rs[0].Verdict(web(addr(2), addr(0))); got != api.Permit {
		t.Errorf("other to web without policy: %s", got)
	}
	mustApply(t, p, deletion(model.KindPod, "pod-0"))
	if diff := cmp.Diff([]api.PodID{podID(2)}, sortedPods(rs[0].Pods())); diff != "" {
		t.Error(diff)
	}
}

func TestPluginResyncsRenderersOnce(t *testing.T) {
	p, rs := startRecorded(t, Deps{}, "one")
	mustApply(t, p, shop(t))
	mustApply(t, p, shop(t))
	if n := rs[0].Calls(); n != 1 {
		t.Errorf("an equal resync: %d commits, want the first only", n)
	}
	mustApply(t, p, changes(t, true, ns(), pod(0, "web", true), pod(1, "front", false), allow("web", "front", "web", 80)))
	if got := rs[0].LastCall(); got.Resync || got.Operations != 1 {
		t.Errorf("a resync without one pod: %+v, want one operation", got)
	}
}

func TestPluginRefusesChangesBeforeWholeState(t *testing.T) {
	p, rs := startRecorded(t, Deps{}, "one")
	if err := p.Apply(t.Context(), changes(t, false, shopObjects(t)[:3]...)); err == nil || rs[0].Calls() != 0 {
		t.Fatalf("before the resync: %v, %d commits", err, rs[0].Calls())
	}
	mustApply(t, p, shop(t))
	if !rs[0].LastCall().Resync || !p.Status().Synced || len(rs[0].Pods()) != 2 {
		t.Fatalf("after the resync: %d pods, status %+v", len(rs[0].Pods()), p.Status())
	}
}

// TestPluginHoldsChangesOfSourceUntilWholeState: of an earlier run, the dataplane may enforce rules
// of pods that are not among the changes.
func TestPluginHoldsChangesOfSourceUntilWholeState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, source := renderertest.NewRecorder("one", t), newChannelSource()
		p := start(t, Deps{Renderers: []renderer.Renderer{r}, Source: source})
		some := changes(t, false, shopObjects(t)[:3]...)
		some.Revision = 3
		source.changes <- some
		p.Prompt()
		synctest.Wait()
		if s := p.Status(); r.Calls() != 0 || s.Seen != 3 || s.Revision != 0 || s.Synced {
			t.Fatalf("before the whole state: %d commits, status %+v", r.Calls(), s)
		}
		ch := shop(t)
		ch.Revision = 4
		source.changes <- ch
		synctest.Wait()
		if s := p.Status(); !r.LastCall().Resync || r.Calls() != 1 || s.Revision != 4 || !s.Synced {
			t.Errorf("after it: %d commits, status %+v", r.Calls(), s)
		}
	})
}

func TestPluginRetriesFailedRendererAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rs := startRecorded(t, Deps{MaxBackoff: 400 * time.Millisecond}, "good", "bad")
		good, bad := rs[0], rs[1]
		down := errors.New("the stack is down")
		bad.SetHook(func(context.Context) error { return down })
		begin := time.Now()
		apply := func(ch model.Changes) { _, _ = p.feed.push(ch); synctest.Wait() }
		apply(shop(t))
		apply(changes(t, false, pod(3, "web", true)))
		if len(good.Pods()) != 3 || len(bad.Pods()) != 0 || time.Since(begin) != 0 {
			t.Fatalf("good has %d pods and bad %d, after %s", len(good.Pods()), len(bad.Pods()), time.Since(begin))
		}
		if s := p.Status(); s.Revision != 0 || s.Seen != 2 || s.InSync() || s.Renderers[0].Error != "" || s.Renderers[1].Failures != 2 {
			t.Fatalf("status %+v", s)
		}
		// 100 ms, 200 ms, then every 400 ms.
		for i, at := range []time.Duration{100, 300, 700, 1100, 1500} {
			<-time.After(time.Until(begin.Add(at*time.Millisecond - 1)))
			synctest.Wait()
			before := bad.Calls()
			<-time.After(time.Nanosecond)
			synctest.Wait()
			if before != 2+i || bad.Calls() != before+1 {
				t.Fatalf("retry %d: %d commits before and %d after %d ms", i+1, before, bad.Calls(), at)
			}
		}
		if good.Calls() != 2 {
			t.Errorf("the good renderer committed %d times, want 2", good.Calls())
		}
		bad.SetHook(nil)
		if err := p.WaitIdle(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(good.Dump(), bad.Dump()); diff != "" {
			t.Error(diff)
		}
		// The next failure starts with the shortest pause again.
		bad.FailNext(renderertest.FailBefore)
		begin = time.Now()
		mustApply(t, p, changes(t, false, pod(4, "web", true)))
		if got := time.Since(begin); got != 100*time.Millisecond {
			t.Errorf("the first retry came after %s, want 100ms", got)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPluginEndsAndRetriesSlowCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rs := startRecorded(t, Deps{ApplyTimeout: time.Second}, "slow")
		blocked := true
		rs[0].SetHook(func(ctx context.Context) error {
			if !blocked {
				return nil
			}
			<-ctx.Done()
			blocked = false
			return ctx.Err()
		})
		begin := time.Now()
		mustApply(t, p, shop(t))
		if got := time.Since(begin); got != 1100*time.Millisecond || len(rs[0].Pods()) != 2 {
			t.Errorf("%d pods after %s, want 2 after 1.1s", len(rs[0].Pods()), got)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCloseDoesNotWaitForSourceOrCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := renderertest.NewRecorder("slow", t)
		slow.SetHook(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		source := newChannelSource()
		p := start(t, Deps{Source: source, Renderers: []renderer.Renderer{slow}})
		source.changes <- shop(t)
		synctest.Wait() // in the Apply
		begin := time.Now()
		for range 2 {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("it took %s", d)
		}
		if err := p.WaitIdle(t.Context(), 1); !errors.Is(err, ErrNotRunning) {
			t.Errorf("WaitIdle after Close: %v", err)
		}
		if _, err := p.Snapshot(t.Context()); !errors.Is(err, ErrNotRunning) {
			t.Errorf("Snapshot after Close: %v", err)
		}
	})
}

func TestCloseLeavesStuckRendererBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stubborn{make(chan struct{})}
		p := New(Deps{Renderers: []renderer.Renderer{s}})
		if err := errors.Join(p.Init(), p.AfterInit()); err != nil {
			t.Fatal(err)
		}
		_, _ = p.feed.push(shop(t))
		synctest.Wait()
		begin := time.Now()
		if err := p.Close(); !errors.Is(err, ErrStuck) || time.Since(begin) >= 5*time.Second {
			t.Errorf("error %v after %s", err, time.Since(begin))
		}
		close(s.release)
	})
}

func TestPluginKeepsStateWhenSourceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renderertest.NewRecorder("one", t)
		source := newChannelSource()
		p := start(t, Deps{Source: source, Renderers: []renderer.Renderer{r}})
		source.changes <- shop(t)
		synctest.Wait()
		r.FailNext(renderertest.FailBefore, renderertest.FailBefore)
		source.changes <- changes(t, false, pod(3, "web", true))
		close(source.end)
		synctest.Wait()
		if got := p.Status().SourceError; got != errEnd.Error() {
			t.Errorf("source error %q", got)
		}
		if err := p.WaitIdle(t.Context(), 0); err != nil || len(r.Pods()) != 3 {
			t.Errorf("the retries after the end: %v, %d pods", err, len(r.Pods()))
		}
		s, err := p.Snapshot(t.Context())
		if err != nil || len(s.Pods) != 4 || s.Status.SourceError == "" {
			t.Errorf("snapshot %+v, %v", s, err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPluginChecksLifeCycle(t *testing.T) {
	p := New(Deps{Name: "netpol"})
	if got := p.String(); got != "netpol" {
		t.Errorf("name %q", got)
	}
	if got := New(Deps{}).String(); got != "policy" {
		t.Errorf("default name %q", got)
	}
	if err := p.AfterInit(); err == nil {
		t.Error("started without Init")
	}
	if err := p.Apply(t.Context(), shop(t)); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Apply before Init: %v", err)
	}
	if err := p.WaitIdle(t.Context(), 0); !errors.Is(err, ErrNotRunning) {
		t.Errorf("WaitIdle before Init: %v", err)
	}
	if _, err := p.Snapshot(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Snapshot before Init: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close before AfterInit: %v", err)
	}
	if err := p.Init(); err != nil {
		t.Fatal(err)
	}
	if err := p.Init(); err == nil {
		t.Error("initialised twice")
	}
	if err := p.AfterInit(); err != nil {
		t.Fatal(err)
	}
	if err := p.AfterInit(); err == nil {
		t.Error("started twice")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	twins := New(Deps{Renderers: []renderer.Renderer{renderertest.NewRecorder("a", t), renderertest.NewRecorder("a", t)}})
	if err := twins.Init(); err == nil {
		t.Error("two renderers have one name")
	}
	if err := start(t, Deps{Source: newChannelSource()}).Apply(t.Context(), shop(t)); !errors.Is(err, ErrHasSource) {
		t.Errorf("Apply beside a source: %v", err)
	}
}

func TestWaitIdleErrorNamesWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rs := startRecorded(t, Deps{}, "one")
		rs[0].SetHook(func(context.Context) error { return errors.New("no memory") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Apply(ctx, shop(t))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "revision 1, 0 is enforced, renderer one: ") || !strings.Contains(err.Error(), "no memory") {
			t.Errorf("error %v", err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestObserverGetsStagesTransactionsProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stages []Stage
		var transactions []Status
		var problems []api.Problem
		var log bytes.Buffer
		p, _ := startRecorded(t, Deps{
			Log: slog.New(slog.NewTextHandler(&log, nil)),
			Observer: Observer{
				Stage:       func(s Stage, _ time.Duration) { stages = append(stages, s) },
				Transaction: func(s Status) { transactions = append(transactions, s) },
				Problem:     func(p api.Problem) { problems = append(problems, p) },
			},
		}, "one")
		broken := allow("broken", "front", "web", 80)
		broken.Ingress[0].Peers[0] = &model.NetworkPolicy_Peer{IpBlock: &model.NetworkPolicy_IPBlock{Cidr: "nonsense"}}
		ch := shop(t)
		ch.Deltas = append(ch.Deltas, changes(t, false, broken).Deltas...)
		mustApply(t, p, ch)
		if err := p.Close(); err != nil { // so that the observer is done
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Stage{StageCache, StageProcessor, StageConfigurator, StageApply}, stages); diff != "" {
			t.Error(diff)
		}
		if len(transactions) != 1 || transactions[0].Revision != 1 || !transactions[0].Synced {
			t.Errorf("transactions %+v", transactions)
		}
		if len(problems) != 1 || problems[0].Object != "NetworkPolicy shop/broken" || !strings.Contains(log.String(), "shop/broken") {
			t.Errorf("problems %v, log %s", problems, &log)
		}
	})
}

func TestPluginLogsRendererFailureAndRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p, rs := startRecorded(t, Deps{Log: slog.New(slog.NewTextHandler(&log, nil))}, "one")
		rs[0].FailNext(renderertest.FailBefore, renderertest.FailBefore, renderertest.FailAfter)
		mustApply(t, p, shop(t))
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if failed, recovered := strings.Count(log.String(), "renderer failed"), strings.Count(log.String(), "has recovered"); failed != 1 || recovered != 1 {
			t.Errorf("%d failures and %d recoveries are logged, want one each:\n%s", failed, recovered, &log)
		}
	})
}

func TestStatusCountsAppliedPoliciesAndPods(t *testing.T) {
	p, _ := startRecorded(t, Deps{}, "one")
	want := func(what string, local, policies, pods int) {
		t.Helper()
		if s := p.Status(); s.Local != local || s.Policies != policies || s.Pods != pods {
			t.Errorf("%s: %d local pods, %d policies for %d pods, want %d, %d for %d", what, s.Local, s.Policies, s.Pods, local, policies, pods)
		}
	}
	mustApply(t, p, changes(t, true, ns(), pod(0, "web", true), pod(1, "web", false), pod(2, "other", true)))
	want("no policy", 2, 0, 0)
	mustApply(t, p, changes(t, false, allow("web", "front", "web", 80), allow("nobody", "front", "absent", 80)))
	want("a policy for one of them, and one for none", 2, 1, 1)
	mustApply(t, p, changes(t, false, pod(3, "web", true), allow("more", "front", "web", 81), allow("web", "other", "web", 80)))
	want("a pod and a policy more, and one that is different", 3, 2, 2)
	mustApply(t, p, deletion(model.KindPod, "pod-0"))
	want("a pod less", 2, 2, 1)
	mustApply(t, p, shop(t))
	want("another state", 2, 1, 1)
	mustApply(t, p, deletion(model.KindNetworkPolicy, "web"))
	want("no policy any more", 2, 0, 0)
}

// TestPluginWaitsForNoSlowRenderer: while one dataplane takes a minute, what comes is enforced in
// the others at once.
func TestPluginWaitsForNoSlowRenderer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rs := startRecorded(t, Deps{ApplyTimeout: time.Hour}, "fast", "slow")
		fast, slow := rs[0], rs[1]
		slow.SetHook(func(ctx context.Context) error {
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		begin := time.Now()
		first, _ := p.feed.push(shop(t))
		time.Sleep(time.Second)
		if at := p.loop.atWork(); !at.IsZero() || !p.AtWork().Equal(begin) {
			t.Errorf("the loop works since %s, the plugin since %s", at, p.AtWork())
		}
		second, _ := p.feed.push(changes(t, false, pod(3, "web", true)))
		synctest.Wait()
		s := p.Status()
		if len(fast.Pods()) != 3 || len(slow.Pods()) != 0 || s.Seen != second || s.Revision != 0 || s.InSync() || !s.BusySince.Equal(begin) {
			t.Errorf("fast has %d pods, slow %d, %+v", len(fast.Pods()), len(slow.Pods()), s)
		}
		if err := p.WaitIdle(t.Context(), first); err != nil || time.Since(begin) != 2*time.Minute {
			t.Errorf("%v: the second revision is enforced after %s, want two commits of the slow one", err, time.Since(begin))
		}
		if diff := cmp.Diff(fast.Dump(), slow.Dump()); diff != "" {
			t.Error(diff)
		}
		if s := p.Status(); s.Revision != second || !s.InSync() || slow.Calls() != 2 {
			t.Errorf("%d commits, %+v", slow.Calls(), s)
		}
		_, _ = p.feed.push(changes(t, false, pod(4, "web", true)))
		time.Sleep(time.Second)
		begin = time.Now()
		if err := p.Close(); err != nil || time.Since(begin) != 0 || !p.Status().BusySince.IsZero() {
			t.Errorf("close: %v after %s, status %+v", err, time.Since(begin), p.Status())
		}
	})
}

// TestPluginRetriesSlowFailuresLessOften: the delay doubles although turns are shorter.
func TestPluginRetriesSlowFailuresLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rs := startRecorded(t, Deps{MaxBackoff: 400 * time.Millisecond}, "good", "slow")
		down := errors.New("the stack is down")
		var begun []time.Duration
		begin := time.Now()
		rs[1].SetHook(func(context.Context) error {
			begun = append(begun, time.Since(begin))
			time.Sleep(time.Second)
			return down
		})
		_, _ = p.feed.push(shop(t))
		time.Sleep(6 * time.Second)
		want := []time.Duration{0, 1100, 2300, 3700, 5100} // each a second, then 100, 200 and 400 ms
		for i := range want {
			want[i] *= time.Millisecond
		}
		synctest.Wait()
		if diff := cmp.Diff(want, begun); diff != "" {
			t.Error(diff)
		}
		rs[1].SetHook(nil)
		if err := p.WaitIdle(t.Context(), 1); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestPluginIsNotInSyncBetweenFailureAndReport: the call has ended, and its error is not in the status
// yet.
func TestPluginIsNotInSyncBetweenFailureAndReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renderertest.NewRecorder("one", t)
		asked := false
		var p *Plugin
		p = start(t, Deps{Renderers: []renderer.Renderer{r}, Observer: Observer{Stage: func(s Stage, _ time.Duration) {
			if s != StageApply { // this one is reported before the status is published
				return
			}
			if s := p.Status(); asked && s.InSync() {
				t.Errorf("it is in sync: %+v", s)
			}
		}}})
		mustApply(t, p, shop(t))
		asked = true
		r.SetHook(func(context.Context) error { time.Sleep(time.Second); return errors.New("down") })
		_, _ = p.feed.push(changes(t, false, pod(3, "web", true)))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := p.Status(); s.Renderers[0].Failures == 0 {
			t.Errorf("nothing has failed: %+v", s)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}
