package configurator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/renderer"
)

// RendererStatus says how a renderer is doing.
type RendererStatus struct {
	Name     string
	InSync   bool   // its newest Commit worked; false before the first
	Err      error  // of its newest Commit
	Commits  uint64 // that worked
	Failures uint64
}

// target is a renderer and what became of it.
type target struct {
	renderer   renderer.Renderer
	status     RendererStatus
	defers     bool                  // a part of what was committed: renderer.ErrDeferred
	since      time.Time             // when the oldest Commit began of which it defers a part; zero when it does not say
	unenforced []renderer.Unenforced // as the renderer said after its newest Commit
}

// commit runs in a goroutine of its own and touches nothing but its target.
func (t *target) commit(ctx context.Context, txn renderer.Txn) {
	err := txn.Commit(ctx)
	t.since = time.Time{}
	if t.defers = errors.Is(err, renderer.ErrDeferred); t.defers {
		if d, ok := errors.AsType[*renderer.Deferred](err); ok {
			t.since = d.Since
		}
		err = nil
	}
	if err != nil {
		t.status.Failures++
		t.status.Err = fmt.Errorf("renderer %s: %w", t.status.Name, err)
	} else {
		t.status.Commits++
		t.status.Err = nil
	}
	t.status.InSync = err == nil
	if r, ok := renderer.As[renderer.Reporter](t.renderer); ok {
		t.unenforced = r.Unenforced()
	}
}

// targets are all renderers, in the order of Options.
type targets []*target

// err joins the errors of the newest Commit of every renderer, each with its name.
func (ts targets) err() error {
	var errs []error
	for _, t := range ts {
		errs = append(errs, t.status.Err)
	}
	return errors.Join(errs...)
}

// commit commits the transactions of the renderers that have something to do. A
// panic in one of them is not recovered: it ends the process rather than leave a
// stack that nobody looks after.
func (ts targets) commit(ctx context.Context, txns []renderer.Txn, told bool) error {
	var due []int
	for i, t := range ts {
		if told || t.status.Err != nil {
			due = append(due, i)
		}
	}
	if len(due) == 0 {
		return nil
	}
	var wg sync.WaitGroup
	for _, i := range due[1:] {
		wg.Go(func() { ts[i].commit(ctx, txns[i]) })
	}
	ts[due[0]].commit(ctx, txns[due[0]])
	wg.Wait()
	return ts.err() // who is not due has not failed
}

// OwnName stands for the configurator where renderers are named.
const OwnName = "configurator"

// Unenforced is what a renderer's stack cannot enforce.
type Unenforced struct {
	Renderer string
	Rules    []renderer.Unenforced // shared; the same slice as long as nothing is different
}
