package policy

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// TestPluginDoesNotTakeWhatARendererDefersForEnforced: it is no failure either, so nothing is
// tried again before the renderer prompts.
func TestPluginDoesNotTakeWhatARendererDefersForEnforced(t *testing.T) {
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
