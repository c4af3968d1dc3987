package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

var (
	errTooLarge = renderer.Refusal("too many rules")
	errDown     = errors.New("the dataplane is down")
)

// failWith has every commit of a renderer fail.
func failWith(r *renderertest.Recorder, err error) {
	r.SetHook(func(context.Context) error { return err })
}

// pass advances the bubble's clock beyond any delay between retries.
func pass() {
	time.Sleep(10 * defaultMaxBackoff)
	synctest.Wait()
}

func TestPluginRetriesRefusedCommitOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p, rs := startRecorded(t, Deps{Log: slog.New(slog.NewTextHandler(&log, nil))}, "one", "two")
		failWith(rs[0], fmt.Errorf("pod a: %w", errTooLarge))
		_, _ = p.feed.push(shop(t))
		pass()
		if got := rs[0].Calls(); got != 1 {
			t.Fatalf("%d commits while nothing changed, want 1", got)
		}
		if s := p.Status(); s.InSync() || !s.Renderers[0].Refused || s.Renderers[1].Refused || s.Revision != 0 {
			t.Errorf("status %+v, want that of one renderer that refused", s)
		}
		p.Prompt()
		pass()
		_, _ = p.feed.push(changes(t, false, pod(3, "web", true)))
		pass()
		if got := rs[0].Calls(); got != 3 {
			t.Errorf("%d commits after a prompt and a change, want 3", got)
		}
		failWith(rs[1], errDown) // which is retried, alone
		p.Prompt()
		pass()
		if got := rs[0].Calls(); got != 4 || rs[1].Calls() < 10 {
			t.Errorf("%d and %d commits, want retries of the renderer that may recover", got, rs[1].Calls())
		}
		rs[0].SetHook(nil)
		rs[1].SetHook(nil)
		p.Prompt()
		if err := p.WaitIdle(t.Context(), 2); err != nil || p.Status().Renderers[0].Refused {
			t.Errorf("after the recovery: %v, %+v", err, p.Status())
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "retried when the state changes"); n != 1 {
			t.Errorf("the refusal is logged %d times, want once:\n%s", n, &log)
		}
	})
}

func TestPluginRetriesRefusalBesideOtherError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rs := startRecorded(t, Deps{}, "one")
		failWith(rs[0], errors.Join(errTooLarge, errDown))
		_, _ = p.feed.push(shop(t))
		pass()
		if got := rs[0].Calls(); got < 3 || p.Status().Renderers[0].Refused {
			t.Errorf("%d commits, status %+v, want retries", got, p.Status())
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWaitIdleEndsWithRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rs := startRecorded(t, Deps{}, "one", "two")
		failWith(rs[0], fmt.Errorf("pod a: %w", errTooLarge))
		begin := time.Now()
		if err := p.Apply(t.Context(), shop(t)); !errors.Is(err, errTooLarge) || !strings.Contains(err.Error(), "renderer one: ") || time.Since(begin) != 0 {
			t.Errorf("%v after %s, want the refusal at once", err, time.Since(begin))
		}
		waited := make(chan error)
		go func() { waited <- p.WaitIdle(t.Context(), 2) }() // of a revision that was not tried
		synctest.Wait()
		select {
		case err := <-waited:
			t.Fatalf("did not wait for a change that may mend it: %v", err)
		default:
		}
		rs[0].SetHook(nil)
		_, _ = p.feed.push(changes(t, false, pod(3, "web", true)))
		if err := <-waited; err != nil {
			t.Errorf("a change mended it: %v", err)
		}
		failWith(rs[0], errTooLarge)
		failWith(rs[1], errDown)
		_, _ = p.feed.push(changes(t, false, pod(4, "web", true)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.WaitIdle(ctx, 3); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want to wait for the renderer that may recover", err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestHandlerRetryAtIgnoresRefusal(t *testing.T) {
	h, r := startHandler(t, Deps{})
	failWith(r, errTooLarge)
	if err := h.Resync(t.Context(), shop(t).Deltas); !errors.Is(err, errTooLarge) || !h.RetryAt().IsZero() {
		t.Fatalf("%v, retry at %s, want none", err, h.RetryAt())
	}
	failWith(r, errors.Join(errTooLarge, errDown))
	if err := h.Reapply(t.Context()); !errors.Is(err, errDown) || h.RetryAt().IsZero() {
		t.Fatalf("%v without a time to retry", err)
	}
}
