package configurator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// RendererStatus is the status of a renderer.
type RendererStatus struct {
	Name     string
	InSync   bool   // its last Commit succeeded; false before the first
	Err      error  // of its last Commit
	Commits  uint64 // number of successful ones
	Failures uint64
}

// reportEvery is how often a renderer that is not finished is asked what it cannot enforce: that
// changes with every turn.
const reportEvery = time.Second

// target is a renderer and its status.
type target struct {
	renderer renderer.Renderer
	status   RendererStatus
	defers   bool // it deferred a part of its last Commit: renderer.ErrDeferred
	// start of the oldest Commit that it partly defers; zero if not known
	since      time.Time
	unfinished bool // it can go on at once: renderer.Deferred
	// waiting are the pods that wait meanwhile; nil: none. Dump reads it during a commit.
	waiting    atomic.Pointer[[]api.PodID]
	unenforced []renderer.Unenforced // as reported after a Commit; see reportEvery
	reported   time.Time
}

// commit runs in a goroutine of its own and accesses nothing but its target.
func (t *target) commit(ctx context.Context, txn renderer.Txn) {
	err := txn.Commit(ctx)
	t.since, t.unfinished = time.Time{}, false
	var waiting []api.PodID
	if t.defers = errors.Is(err, renderer.ErrDeferred); t.defers {
		if d, ok := errors.AsType[*renderer.Deferred](err); ok {
			t.since, t.unfinished = d.Since, d.Unfinished
			waiting = d.Waiting
		}
		err = nil
	}
	t.waiting.Store(&waiting)
	if err != nil {
		t.status.Failures++
		t.status.Err = fmt.Errorf("renderer %s: %w", t.status.Name, err)
	} else {
		t.status.Commits++
		t.status.Err = nil
	}
	t.status.InSync = err == nil
	if t.unfinished && time.Since(t.reported) < reportEvery {
		return
	}
	if r, ok := renderer.As[renderer.Reporter](t.renderer); ok {
		t.unenforced, t.reported = r.Unenforced(), time.Now()
	}
}

// isDue reports whether the renderer has work.
func (t *target) isDue(hasChanges bool) bool {
	return hasChanges || t.status.Err != nil || t.unfinished
}

// held returns the pods that wait in the renderer.
func (t *target) held() []api.PodID {
	if w := t.waiting.Load(); w != nil {
		return *w
	}
	return nil
}

// targets are all renderers, in the order of Options.
type targets []*target

// waits reports whether a pod waits in a renderer.
func (ts targets) waits(pod api.PodID) bool {
	return slices.ContainsFunc(ts, func(t *target) bool { return slices.Contains(t.held(), pod) })
}

// err joins the errors of each renderer's last Commit, each with the renderer's name.
func (ts targets) err() error {
	var errs []error
	for _, t := range ts {
		if t.status.Err != nil {
			errs = append(errs, t.status.Err)
		}
	}
	return errors.Join(errs...)
}

// commit commits the transactions of the renderers that have work. It does not recover panics: a
// crash is better than a dataplane that is no longer updated.
func (ts targets) commit(ctx context.Context, txns []renderer.Txn, hasChanges bool) error {
	var due []int
	for i, t := range ts {
		if t.isDue(hasChanges) {
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
	return ts.err() // renderers without work have not failed
}

// OwnName is the name of the configurator among the names of renderers.
const OwnName = "configurator"

// Unenforced lists what a renderer's dataplane cannot enforce.
type Unenforced struct {
	Renderer string
	Rules    []renderer.Unenforced // shared; the same slice while nothing changes
}
