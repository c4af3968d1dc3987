package policy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

func startHandler(t testing.TB, d Deps) (*Handler, *renderertest.Recorder) {
	t.Helper()
	r := renderertest.NewRecorder("one", t)
	d.Node, d.Renderers = node, append(d.Renderers, r)
	h := NewHandler(d)
	if err := errors.Join(h.Init(), h.AfterInit()); err != nil {
		t.Fatal(err)
	}
	return h, r
}

func TestHandlerHasRenderedWhenItReturns(t *testing.T) {
	h, r := startHandler(t, Deps{})
	if err := h.Resync(t.Context(), shop(t).Deltas); err != nil {
		t.Fatal(err)
	}
	if !r.LastCall().Resync || r.Verdict(web(addr(1), addr(0))) != api.Permit || r.Verdict(web(addr(2), addr(0))) != api.Deny {
		t.Fatalf("after the resync, %+v:\n%s", r.LastCall(), r.Dump())
	}
	if err := h.Update(t.Context(), changes(t, false, pod(3, "front", false)).Deltas); err != nil {
		t.Fatal(err)
	}
	if got := r.LastCall(); got.Resync || got.Operations != 1 {
		t.Errorf("a remote pod: %+v, want one operation", got)
	}
	if err := h.Resync(t.Context(), changes(t, true, ns()).Deltas); err != nil {
		t.Fatal(err)
	}
	if got := r.LastCall(); got.Resync || len(r.Pods()) != 0 {
		t.Errorf("a later resync: %+v, %d pods", got, len(r.Pods()))
	}
	if s := h.Status(); s.Revision != 3 || !s.Synced {
		t.Errorf("status %+v, want that of three events", s)
	}
}

func TestHandlerRendersLikePlugin(t *testing.T) {
	p, want := startRecorded(t, Deps{}, "one")
	h, got := startHandler(t, Deps{})
	for i, ch := range []model.Changes{
		shop(t), changes(t, false, pod(4, "web", true)),
		deletion(model.KindNetworkPolicy, "web"), shop(t),
	} {
		mustApply(t, p, ch)
		deliver := h.Update
		if ch.Resync {
			deliver = h.Resync
		}
		if err := deliver(t.Context(), ch.Deltas); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[0].Dump(), got.Dump()); diff != "" {
			t.Fatalf("event %d (-plugin +handler):\n%s", i, diff)
		}
	}
}

// TestHandlerHoldsChangesUntilWholeState: of an earlier run, the dataplane may enforce rules of pods
// that are not among the changes.
func TestHandlerHoldsChangesUntilWholeState(t *testing.T) {
	h, r := startHandler(t, Deps{})
	if err := errors.Join(h.Update(t.Context(), changes(t, false, shopObjects(t)[:3]...).Deltas), h.Reapply(t.Context())); err != nil || r.Calls() != 0 || !h.RetryAt().IsZero() {
		t.Fatalf("before the whole state: %v, %d commits, retry at %s", err, r.Calls(), h.RetryAt())
	}
	if err := h.Resync(t.Context(), shop(t).Deltas); err != nil || !r.LastCall().Resync || r.Calls() != 1 || len(r.Pods()) != 2 {
		t.Fatalf("after it: %v, %+v, %d commits, %d pods", err, r.LastCall(), r.Calls(), len(r.Pods()))
	}
}

func TestHandlerRetryAtNamesNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r := startHandler(t, Deps{MaxBackoff: 200 * time.Millisecond})
		down := errors.New("the stack is down")
		r.SetHook(func(context.Context) error { return down })
		if err := h.Resync(t.Context(), shop(t).Deltas); !errors.Is(err, down) || !strings.Contains(err.Error(), "one") {
			t.Fatalf("the resync ended with %v, want the error of the renderer and its name", err)
		}
		for _, pause := range []time.Duration{100, 200, 200} {
			if got := time.Until(h.RetryAt()); got != pause*time.Millisecond {
				t.Fatalf("retry in %s, want %dms", got, pause)
			}
			<-time.After(time.Until(h.RetryAt()))
			if err := h.Retry(t.Context()); !errors.Is(err, down) {
				t.Fatalf("the retry ended with %v", err)
			}
		}
		r.SetHook(nil)
		if err := h.Retry(t.Context()); err != nil || !h.RetryAt().IsZero() || len(r.Pods()) != 2 {
			t.Fatalf("after the recovery: %v, retry at %s, %d pods", err, h.RetryAt(), len(r.Pods()))
		}
	})
}

func TestHandlerReapplyBeforeResyncDoesNothing(t *testing.T) {
	h, r := startHandler(t, Deps{})
	if err := errors.Join(h.Reapply(t.Context()), h.Retry(t.Context())); err != nil || r.Calls() != 0 {
		t.Fatalf("before the first resync: %v, %d commits", err, r.Calls())
	}
	if err := errors.Join(h.Resync(t.Context(), shop(t).Deltas), h.Reapply(t.Context())); err != nil || r.Calls() != 2 {
		t.Fatalf("after it: %v, %d commits, want 2", err, r.Calls())
	}
}

func TestHandlerSnapshotIsOfLastEvent(t *testing.T) {
	h, _ := startHandler(t, Deps{})
	if err := h.Resync(t.Context(), shop(t).Deltas); err != nil {
		t.Fatal(err)
	}
	first, err := h.Snapshot()
	if err != nil || len(first.Pods) != 3 {
		t.Fatalf("%d pods, %v", len(first.Pods), err)
	}
	if again, _ := h.Snapshot(); again != first {
		t.Error("nothing has changed, and the snapshot is another one")
	}
	if err := h.Update(t.Context(), deletion(model.KindPod, "pod-1").Deltas); err != nil {
		t.Fatal(err)
	}
	if s, err := h.Snapshot(); err != nil || len(s.Pods) != 2 || len(first.Pods) != 3 {
		t.Errorf("%d pods now and %d before, %v", len(s.Pods), len(first.Pods), err)
	}
}

func TestHandlerLifeCycle(t *testing.T) {
	if err := NewHandler(Deps{Source: newChannelSource()}).Init(); err == nil {
		t.Error("a handler takes a source")
	}
	h := NewHandler(Deps{Name: "mine"})
	if err := h.Update(t.Context(), nil); !errors.Is(err, ErrNotRunning) || h.String() != "mine" {
		t.Errorf("before Init: %v, name %q", err, h)
	}
	if err := h.Init(); err != nil {
		t.Fatal(err)
	}
	if err := h.Init(); err == nil {
		t.Error("it can be initialised twice")
	}
	if err := errors.Join(h.Close(), h.Close()); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{h.Resync(t.Context(), nil), h.Update(t.Context(), nil), h.Retry(t.Context()), h.Reapply(t.Context())} {
		if !errors.Is(err, ErrNotRunning) {
			t.Errorf("after Close: %v", err)
		}
	}
	if _, err := h.Snapshot(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a snapshot after Close: %v", err)
	}
}
