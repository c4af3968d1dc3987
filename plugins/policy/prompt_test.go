package policy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// TestAPromptBeforeTheFirstResyncCommitsNothing keeps what a stack still enforces
// from before: a commit of nothing would take it away and open every pod.
func TestAPromptBeforeTheFirstResyncCommitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rs := startRecorded(t, Deps{}, "one", "two")
		p.Prompt()
		synctest.Wait()
		for _, r := range rs {
			if r.Commits() != 0 {
				t.Errorf("%s committed %d times before it was told any state", r.Name(), r.Commits())
			}
		}
		mustApply(t, p, shop(t))
		before := rs[1].Commits()
		p.Prompt()
		synctest.Wait()
		if got := rs[1].Commits(); got != before+1 {
			t.Errorf("after the resync a prompt caused %d commits, want 1", got-before)
		}
	})
}

// TestAPromptDoesNotPutRetriesOff: something has changed, so what failed before may
// work now, and when it does not, it is tried again soon.
func TestAPromptDoesNotPutRetriesOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renderertest.NewRecorder("one", t)
		p := start(t, Deps{Renderers: []renderer.Renderer{r}})
		mustApply(t, p, shop(t))
		failing := errors.New("no interface")
		r.SetHook(func(context.Context) error { return failing })
		for range 10 {
			p.Prompt()
			synctest.Wait()
		}
		r.SetHook(nil)
		time.Sleep(2 * defaultMinBackoff) // the bubble's clock
		synctest.Wait()
		if s := p.Status(); !s.InSync() {
			t.Errorf("not tried again within twice the shortest pause: %+v", s.Renderers)
		}
	})
}
