package configurator

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// Committing is when the Commit began that goes on; zero: none.
	Committing time.Time
}

// reportEvery is how often a renderer that is not finished is asked what it cannot enforce: that
// changes with every turn.
const reportEvery = time.Second

// Pace bounds how long transactions and renderers take.
type Pace struct {
	// Turn bounds a transaction, from NewTxn to the end of Txn.Commit: a renderer that needs longer
	// goes on beside it. Zero: Commit waits for all renderers.
	Turn time.Duration
	// Timeout bounds the Commit of a renderer; zero: nothing does.
	Timeout time.Duration
	// Ended is called, from any goroutine, when the Commit of a renderer has ended. The next
	// transaction, even an empty one, takes its outcome. It may be nil.
	Ended func()
}

// target is a renderer, its status, and the commit that it is at.
type target struct {
	renderer renderer.Renderer
	status   RendererStatus
	defers   bool // its last Commit is not over, or deferred a part: renderer.ErrDeferred
	// start of the oldest Commit that it partly defers; zero if not known
	since      time.Time
	unfinished bool // it can go on at once: renderer.Deferred
	// waiting are the pods that wait meanwhile; nil: none. Dump reads it during a commit.
	waiting    atomic.Pointer[[]api.PodID]
	unenforced []renderer.Unenforced // as reported after a Commit; see reportEvery
	reported   time.Time

	commits []commit    // those that may be partly deferred, and that which goes on
	running chan result // receives the result of the Commit that goes on; nil: none
	fresh   bool        // the open transaction found the result of a Commit that went on
	// queue has what came while a Commit went on, until the next one takes it; nil: nothing
	queue *queue
}

// commit is when a Commit began, and when the oldest change came that had waited for it; zero: none
// had.
type commit struct{ began, waited time.Time }

// result is what a Commit ended with.
type result struct {
	err        error
	unenforced []renderer.Unenforced
	reported   time.Time // zero: not asked
}

// enqueue keeps changes for the next Apply, while one goes on. That one is due then, even without
// changes: what goes on may have looked already.
func (t *target) enqueue(c renderer.Changes, now time.Time) {
	if t.queue == nil {
		t.queue = &queue{since: now}
	}
	t.queue.changes.Add(c)
}

// start begins to apply changes, and before them what waited. The returned function does the work:
// it may run in any goroutine, and accesses nothing of the target that others do.
func (t *target) start(ctx context.Context, changes renderer.Changes, c commit, p Pace) (work func()) {
	if t.queue != nil {
		c.waited = earliest(c.waited, t.queue.since)
		t.queue.changes.Add(changes)
		changes = t.queue.changes.Take()
	}
	if oldest := earliest(c.began, c.waited); !t.defers || oldest.Before(t.since) {
		t.since = oldest
	}
	t.note(c)
	running, asked := make(chan result, 1), t.reported
	t.defers, t.unfinished, t.running, t.queue = true, false, running, nil
	t.status.Committing = c.began
	return func() {
		running <- run(ctx, p.Timeout, t.renderer, changes, asked)
		if p.Ended != nil {
			p.Ended()
		}
	}
}

// run has a renderer apply changes. asked is when the renderer was last asked what it cannot enforce. It
// does not recover panics: a crash is better than a dataplane that is no longer updated.
func run(ctx context.Context, timeout time.Duration, of renderer.Renderer, changes renderer.Changes, asked time.Time) result {
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = limited
	}
	o := result{err: of.Apply(ctx, changes)}
	if d, ok := errors.AsType[*renderer.Deferred](o.err); ok && d.Unfinished && time.Since(asked) < reportEvery {
		return o
	}
	if r, ok := renderer.As[renderer.Reporter](of); ok {
		o.unenforced, o.reported = r.Unenforced(), time.Now()
	}
	return o
}

// poll takes the result of an Apply that has ended, and reports whether there was one.
func (t *target) poll() bool {
	if !t.ended() {
		return false
	}
	t.settle(<-t.running)
	return true
}

// ended reports whether a Commit has ended whose result was not taken yet.
func (t *target) ended() bool { return len(t.running) > 0 }

// settle records the result of a Commit.
func (t *target) settle(o result) {
	err := o.err
	t.running, t.since, t.unfinished, t.status.Committing = nil, time.Time{}, false, time.Time{}
	var waiting []api.PodID
	if t.defers = errors.Is(err, renderer.ErrDeferred); t.defers {
		if d, ok := errors.AsType[*renderer.Deferred](err); ok {
			t.since, t.unfinished = t.oldestOf(d.Since), d.Unfinished
			waiting = d.Waiting
		} else {
			t.commits = t.commits[len(t.commits)-1:] // since when is not known
		}
		err = nil
	} else {
		t.commits = nil
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
	if !o.reported.IsZero() {
		t.unenforced, t.reported = o.unenforced, o.reported
	}
}

// maxNoted bounds the Commits that are noted. Further ones count as one with the oldest.
const maxNoted = 64

// note adds a Commit that begins.
func (t *target) note(c commit) {
	if t.commits = append(t.commits, c); len(t.commits) > maxNoted {
		first, second := t.commits[0], t.commits[1]
		t.commits = t.commits[1:]
		t.commits[0] = commit{first.began, earliest(first.waited, second.waited)}
	}
}

// leave lets a Commit go on beside the transactions. The renderer may look at its clock when the
// first one is over, so the Commit counts from the begin of that.
func (t *target) leave() {
	if last := &t.commits[len(t.commits)-1]; last.waited.IsZero() {
		last.waited = last.began
	}
}

// oldestOf returns when the oldest change came of the Commits that a renderer defers, given when
// the first of them began for the renderer; zero if that is not known. It forgets earlier Commits.
func (t *target) oldestOf(since time.Time) time.Time {
	for len(t.commits) > 1 && (since.IsZero() || !t.commits[1].began.After(since)) {
		t.commits = t.commits[1:]
	}
	if !since.IsZero() {
		for _, c := range t.commits {
			since = earliest(since, c.waited)
		}
	}
	return since
}

// goesOn reports whether the next transaction has something to do for the renderer, even without
// changes.
func (t *target) goesOn() bool {
	return t.unfinished || t.ended() || t.running == nil && t.queue != nil
}

// isDue reports whether the renderer has work that it can begin. One that has just failed has none
// until it is retried.
func (t *target) isDue(hasChanges bool) bool {
	return t.running == nil && (hasChanges || t.queue != nil || t.status.Err != nil && !t.fresh || t.unfinished)
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

// wait waits until a Commit of each of some renderers has ended, or a turn that began earlier is
// over. A turn of zero has no end.
func (ts targets) wait(turn time.Duration, began time.Time) {
	var over <-chan time.Time
	if turn > 0 && len(ts) > 0 {
		timer := time.NewTimer(max(turn-time.Since(began), turn/8))
		defer timer.Stop()
		over = timer.C
	}
	for _, t := range ts {
		select {
		case o := <-t.running:
			t.settle(o)
		case <-over:
			for _, t := range ts {
				if t.poll(); t.running != nil {
					t.leave()
				}
			}
			return
		}
	}
}

// OwnName is the name of the configurator among the names of renderers.
const OwnName = "configurator"

// Unenforced lists what a renderer's dataplane cannot enforce.
type Unenforced struct {
	Renderer string
	Rules    []renderer.Unenforced // shared; the same slice while nothing changes
}
