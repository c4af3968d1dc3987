package policy

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// TestPluginCountsDeferredAsNotEnforced: deferring is not a failure either, so
// nothing is retried before the renderer prompts.
func TestPluginCountsDeferredAsNotEnforced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renderertest.NewRecorder("one", t)
		source := &channelSource{changes: make(chan model.Changes, 2)}
		p := start(t, Deps{Renderers: []renderer.Renderer{r}, Source: source})
		send := func(revision int64) {
			ch := shop(t)
			ch.Revision = revision
			source.changes <- ch
			synctest.Wait()
		}
		send(1)
		if s := p.Status(); s.Revision != 1 {
			t.Fatalf("revision %d, want 1", s.Revision)
		}
		r.SetHook(func(context.Context) error { return renderer.ErrDeferred })
		p.Prompt() // a commit that has something to do
		synctest.Wait()
		send(2)
		pass()
		s := p.Status()
		if s.Revision != 1 || s.Seen != 2 || !s.InSync() || s.Renderers[0].Failures != 0 {
			t.Errorf("while a part is deferred: %+v", s)
		}
		commits := r.Commits()
		pass()
		if r.Commits() != commits {
			t.Error("what is deferred was tried again before the renderer asked for it")
		}
		r.SetHook(nil)
		p.Prompt()
		synctest.Wait()
		if s := p.Status(); s.Revision != 2 {
			t.Errorf("revision %d after the prompt, want 2", s.Revision)
		}
	})
}

// TestPluginReportsEnforcedBesideDeferred: with continuous changes, the enforced
// revision still advances.
func TestPluginReportsEnforcedBesideDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renderertest.NewRecorder("one", t)
		source := &channelSource{changes: make(chan model.Changes, 2)}
		p := start(t, Deps{Renderers: []renderer.Renderer{r}, Source: source})
		var since atomic.Value // of time.Time
		send := func(revision, want int64) {
			t.Helper()
			time.Sleep(time.Second)
			ch := shop(t)
			ch.Revision = revision
			source.changes <- ch
			synctest.Wait()
			p.Prompt() // a commit that has something to do
			synctest.Wait()
			if s := p.Status(); s.Revision != want || s.Seen != revision {
				t.Errorf("after revision %d: revision %d is enforced, want %d", revision, s.Revision, want)
			}
		}
		send(1, 1)
		began := time.Now()
		since.Store(began)
		r.SetHook(func(context.Context) error { return &renderer.Deferred{Since: since.Load().(time.Time)} })
		p.Prompt()
		synctest.Wait()
		send(2, 1)
		send(3, 1)
		since.Store(began.Add(1500 * time.Millisecond))
		send(4, 2)
		since.Store(began.Add(2500 * time.Millisecond))
		send(5, 3)
		r.SetHook(func(context.Context) error { return errors.New("out of order") })
		send(6, 3)
		r.SetHook(func(context.Context) error { return &renderer.Deferred{Since: since.Load().(time.Time)} })
		since.Store(time.Now())
		send(7, 3)
		since.Store(time.Now().Add(time.Millisecond))
		send(8, 7)
		r.SetHook(nil)
		send(9, 9)
	})
}
