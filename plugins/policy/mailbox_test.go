package policy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// post is a mailbox under test, whose work is a goroutine's.
type post struct {
	*mailbox
	t        *testing.T
	r        *renderertest.Recorder
	revision int64
}

// inPost runs a test with a mailbox. Its renderer has the whole state, without pods.
func inPost(t *testing.T, test func(p *post)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := renderertest.NewRecorder("one", t)
		d := Deps{ApplyTimeout: time.Hour}
		if err := d.complete(); err != nil {
			t.Fatal(err)
		}
		p := &post{newMailbox(r, &d, func() {}), t, r, 0}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.run(ctx) }()
		p.send(renderer.Changes{Resync: true})
		test(p)
		cancel()
		<-done
	})
}

// send posts changes and waits until nothing goes on without time passing.
func (p *post) send(c renderer.Changes) {
	p.revision++
	p.post(time.Now(), c, p.revision)
	synctest.Wait()
}

func (p *post) want(what string, commits int, acknowledged int64) {
	p.t.Helper()
	if s := p.collect(); p.r.Calls() != commits || s.acknowledged != acknowledged {
		p.t.Errorf("%s: revision %d is acknowledged after %d calls, want %d after %d", what, s.acknowledged, p.r.Calls(), acknowledged, commits)
	}
}

// TestMailboxForgetsPodsThatCameAndWent while the renderer hung or failed: what a renderer never held
// need not be removed, and nobody waits for it.
func TestMailboxForgetsPodsThatCameAndWent(t *testing.T) {
	inPost(t, func(p *post) {
		named := func(i int) api.PodID { return api.PodID{Namespace: "shop", Name: fmt.Sprint("job-", i)} }
		flip := func(i int) {
			var comes, goes renderer.Changes
			comes.Render(named(i), renderer.PodConfig{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
			goes.Remove(named(i))
			p.send(comes)
			p.send(goes)
		}
		p.r.SetHook(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		p.send(podChanges(0)) // it is held from now on
		for i := range 1000 {
			flip(i)
		}
		var ends renderer.Changes
		ends.Remove(api.PodID{Namespace: "shop", Name: "pod-0"})
		p.send(ends)
		p.mu.Lock()
		waits := p.merger.Take()
		p.merger.Add(waits)
		p.mu.Unlock()
		if len(waits.Pods) != 1 || len(p.waitingPods()) != 0 {
			t.Errorf("%d pods are in the merger, want the one that is held; %d wait", len(waits.Pods), len(p.waitingPods()))
		}
		p.r.SetHook(nil)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if len(p.r.Pods()) != 0 || len(p.held) != 0 {
			t.Errorf("in the end there are %v, held are %v", p.r.Pods(), p.held)
		}
	})
}

// podChanges renders one pod of a few.
func podChanges(i int) (c renderer.Changes) {
	c.Render(api.PodID{Namespace: "shop", Name: fmt.Sprint("pod-", i%10)}, renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 10)})}})
	return c
}

func TestMailboxMergesWhatComesWhileRendererIsSlow(t *testing.T) {
	inPost(t, func(p *post) {
		p.r.SetHook(func(context.Context) error { time.Sleep(time.Minute); return nil })
		began := time.Now()
		for i := range 1000 {
			p.send(podChanges(i))
		}
		p.want("while it is at work", 1, 1)
		if since := p.busySince(); !since.Equal(began) || len(p.waitingPods()) != 10 {
			t.Errorf("busy since %s, %d pods wait", since, len(p.waitingPods()))
		}
		time.Sleep(2*time.Minute + 1)
		synctest.Wait()
		p.want("in the end", 3, 1001)
		if len(p.r.Pods()) != 10 || len(p.waitingPods()) != 0 || !p.busySince().IsZero() {
			t.Errorf("%d pods, %d wait", len(p.r.Pods()), len(p.waitingPods()))
		}
	})
}

// TestMailboxIsBoundedWhileRendererHangs for an hour of changes: it holds the newest state of what
// there is, not what was.
func TestMailboxIsBoundedWhileRendererHangs(t *testing.T) {
	inPost(t, func(p *post) {
		p.r.SetHook(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		member := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}
		for i := range 3600 {
			c := podChanges(i)
			if i%2 == 0 {
				c.UpdateSet(7, member, nil)
			} else {
				c.UpdateSet(7, nil, member)
			}
			p.send(c)
			time.Sleep(time.Second)
		}
		p.mu.Lock()
		waits := p.merger.Take()
		p.merger.Add(waits)
		p.mu.Unlock()
		if len(waits.Pods) > 10 || len(waits.Sets) > 1 {
			t.Errorf("%d pods and %d sets wait", len(waits.Pods), len(waits.Sets))
		}
	})
}

// TestMailboxAcknowledgesRevisionsWithoutChanges at once where nothing is left to do, and else with
// what is.
func TestMailboxAcknowledgesRevisionsWithoutChanges(t *testing.T) {
	inPost(t, func(p *post) {
		p.send(renderer.Changes{})
		p.want("a revision that changes nothing", 1, 2)
		p.r.SetHook(func(context.Context) error { time.Sleep(time.Second); return nil })
		p.send(podChanges(0))
		p.send(renderer.Changes{})
		p.want("while it is at work", 1, 2)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		p.want("when it is done", 2, 4)
		p.r.SetHook(func(context.Context) error { return errDown })
		p.send(podChanges(1))
		p.send(renderer.Changes{})
		p.want("after a failure", 3, 4)
	})
}

func TestMailboxKickDuringApplyMeansOnceMore(t *testing.T) {
	inPost(t, func(p *post) {
		p.r.SetHook(func(context.Context) error { time.Sleep(time.Second); return nil })
		p.send(podChanges(0))
		p.kick(time.Now())
		p.kick(time.Now())
		time.Sleep(time.Minute)
		synctest.Wait()
		p.want("after two kicks", 3, 2)
	})
}

// TestMailboxLosesNothing: values are handed over also when the context has ended, and never again.
func TestMailboxLosesNothing(t *testing.T) {
	r := renderertest.NewRecorder("one", t)
	d := Deps{}
	if err := d.complete(); err != nil {
		t.Fatal(err)
	}
	m := newMailbox(r, &d, func() {})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	send := func(ctx context.Context, c renderer.Changes, revision int64) {
		m.post(time.Now(), c, revision)
		for m.work(ctx) {
		}
	}
	send(t.Context(), renderer.Changes{Resync: true}, 1)
	r.FailNext(renderertest.FailBefore)
	send(t.Context(), podChanges(0), 2)
	send(ended, podChanges(1), 3)
	if got := len(r.Pods()); got != 0 {
		t.Fatalf("%d pods although nothing worked", got)
	}
	m.kick(time.Now())
	if m.work(t.Context()); len(r.Pods()) != 2 || m.collect().acknowledged != 3 {
		t.Errorf("%d pods, want 2", len(r.Pods()))
	}
}

// TestMailboxRetries after pauses that double, begin anew with a kick, and are not made longer by
// failures between.
func TestMailboxRetries(t *testing.T) {
	inPost(t, func(p *post) {
		var at []time.Duration
		began := time.Now()
		p.r.SetHook(func(context.Context) error { at = append(at, time.Since(began)/time.Millisecond); return errDown })
		p.send(podChanges(0))
		time.Sleep(50 * time.Millisecond)
		p.send(podChanges(1))
		time.Sleep(700 * time.Millisecond)
		p.kick(time.Now())
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if want := []time.Duration{0, 50, 100, 300, 700, 750, 850}; !slices.Equal(at, want) {
			t.Errorf("called after %v ms, want %v", at, want)
		}
	})
}

// TestMailboxForgetsRevisionsOfAnotherStore: the new ones are lower, and what waited does not wait for
// one that never comes.
func TestMailboxForgetsRevisionsOfAnotherStore(t *testing.T) {
	inPost(t, func(p *post) {
		p.revision = 1000
		p.r.SetHook(func(context.Context) error { return errDown })
		p.send(podChanges(0))
		p.forget()
		p.revision = 4
		p.r.SetHook(nil)
		p.send(podChanges(1))
		p.want("a change of the new store", 3, 5)
		if waiting := p.waitingPods(); len(waiting) != 0 {
			t.Errorf("%v wait although all is in force", waiting)
		}
	})
}

func TestMailboxDoesNotRetryRefusals(t *testing.T) {
	inPost(t, func(p *post) {
		p.r.SetHook(func(context.Context) error { return fmt.Errorf("pod a: %w", errTooLarge) })
		p.send(podChanges(0))
		time.Sleep(time.Hour)
		synctest.Wait()
		p.want("a refusal", 2, 1)
		p.r.SetHook(nil)
		p.send(podChanges(1))
		p.want("the next value", 3, 3)
	})
}

// TestMailboxRevisionIsNotHeldBackByMissingInterface: all else is in force, and the renderer names
// the pod.
func TestMailboxRevisionIsNotHeldBackByMissingInterface(t *testing.T) {
	inPost(t, func(p *post) {
		missing := fmt.Errorf("%w for pod shop/web", renderer.ErrNoInterface)
		p.r.SetHook(func(context.Context) error { return missing })
		p.send(podChanges(0))
		p.want("a pod without an interface", 2, 2)
		if s := p.collect(); !errors.Is(s.err, renderer.ErrNoInterface) || s.failures != 1 {
			t.Errorf("%v after %d failures", s.err, s.failures)
		}
		p.send(renderer.Changes{})
		p.want("a revision that changes nothing", 2, 3)
		p.r.SetHook(func(context.Context) error { return errors.Join(missing, errDown) })
		p.send(podChanges(1))
		p.want("another failure beside it", 3, 3)
	})
}

// TestMailboxKickBeforeFirstValueAppliesNothing: the renderer would take rules of an earlier run for
// leftovers.
func TestMailboxKickBeforeFirstValueAppliesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := renderertest.NewRecorder("one", t), Deps{}
		if err := d.complete(); err != nil {
			t.Fatal(err)
		}
		m := newMailbox(r, &d, func() {})
		m.kick(time.Now())
		for m.work(t.Context()) {
		}
		if s := m.collect(); len(s.ended) != 1 || !s.ended[0].quarantined || !s.ended[0].unable || r.Calls() != 0 {
			t.Errorf("a kick before the first value: %+v, %d calls", s.ended, r.Calls())
		}
		m.post(time.Now(), renderer.Changes{Resync: true}, 1)
		m.work(t.Context())
		m.kick(time.Now())
		if !m.work(t.Context()) || !m.collect().synced {
			t.Error("a kick after it does not call the renderer")
		}
	})
}
