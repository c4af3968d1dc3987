package policy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// cautious is a renderer that can block interfaces.
type cautious struct {
	*renderertest.Recorder
	mu     sync.Mutex
	n      int
	holds  bool
	err    error
	answer []bool // that observers were given
}

// answers sets the answers of the renderer from now on.
func (c *cautious) answers(holdsRules bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds, c.err = holdsRules, err
}

// asked is how often it was asked.
func (c *cautious) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// observe records the value that an observer receives.
func (c *cautious) observe(holdsRules bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = append(c.answer, holdsRules)
}

func (c *cautious) changes() []bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.answer)
}

// Quarantine implements renderer.Quarantiner.
func (c *cautious) Quarantine(context.Context) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.holds, c.err
}

// wrapped is a renderer around another one.
type wrapped struct{ renderer.Renderer }

func (w wrapped) Unwrap() renderer.Renderer { return w.Renderer }

func TestPluginQuarantinesUntilFirstState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cautious{Recorder: renderertest.NewRecorder("one", t), err: errors.New("not there")}
		p := start(t, Deps{Renderers: []renderer.Renderer{wrapped{c}, renderertest.NewRecorder("two", t)},
			Observer: Observer{Quarantine: c.observe}})
		synctest.Wait()
		if c.asked() != 0 {
			t.Errorf("asked %d times before there is a dataplane", c.asked())
		}
		p.Prompt() // the dataplane is there
		synctest.Wait()
		time.Sleep(10 * defaultMinBackoff) // the bubble's clock
		if synctest.Wait(); c.asked() < 3 || len(c.changes()) != 0 {
			t.Fatalf("asked %d times within ten times the shortest pause, changed %v", c.asked(), c.changes())
		}
		c.answers(false, nil)
		time.Sleep(2 * defaultMaxBackoff)
		synctest.Wait()
		failed := c.asked()
		time.Sleep(2 * defaultMaxBackoff)
		if synctest.Wait(); c.asked() != failed || !slices.Equal(c.changes(), []bool{false}) {
			t.Errorf("asked %d times after it worked, changed %v", c.asked()-failed, c.changes())
		}
		c.answers(true, nil)
		p.Prompt()
		if synctest.Wait(); !slices.Equal(c.changes(), []bool{false, true}) || c.Calls() != 0 {
			t.Errorf("changed %v, %d commits", c.changes(), c.Calls())
		}
		mustApply(t, p, shop(t))
		asked := c.asked()
		p.Prompt()
		if synctest.Wait(); c.asked() != asked || c.Calls() != 2 {
			t.Errorf("after the first state: asked %d times more, %d commits", c.asked()-asked, c.Calls())
		}
	})
}

func TestHandlerQuarantinesUntilFirstState(t *testing.T) {
	c := &cautious{Recorder: renderertest.NewRecorder("cautious", t), err: errors.New("not there")}
	h, _ := startHandler(t, Deps{Renderers: []renderer.Renderer{c}})
	if err := h.Reapply(t.Context()); err == nil || c.asked() != 1 || h.RetryAt().IsZero() {
		t.Errorf("%v, asked %d times, retry at %s", err, c.asked(), h.RetryAt())
	}
	c.answers(false, nil)
	if err := h.Retry(t.Context()); err != nil || c.asked() != 2 || !h.RetryAt().IsZero() {
		t.Errorf("%v, asked %d times, retry at %s", err, c.asked(), h.RetryAt())
	}
	if err := errors.Join(h.Update(t.Context(), shop(t).Deltas), h.Reapply(t.Context())); err != nil || c.asked() != 3 || c.Calls() != 0 {
		t.Errorf("before the whole state: %v, asked %d times, %d commits", err, c.asked(), c.Calls())
	}
	if err := errors.Join(h.Resync(t.Context(), shop(t).Deltas), h.Reapply(t.Context())); err != nil || c.asked() != 3 {
		t.Errorf("%v, asked %d times after it received a state", err, c.asked())
	}
}
