package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/internal/cache"
	"github.com/sluice-net/sluice/plugins/policy/internal/configurator"
	"github.com/sluice-net/sluice/plugins/policy/internal/processor"
	"github.com/sluice-net/sluice/renderer"
)

// engine is the core of the plugin: it brings changes through the layers and knows what is
// to be done when renderers fail. It starts no goroutine, waits for nothing and has no
// clock: it is told the time. What renderers have to do is a step, which its shell runs: a
// Plugin, or a Handler. One goroutine at a time calls the engine, and not during a step,
// but for buildSnapshot.
type engine struct {
	deps Deps
	layers
	passed func(Stage) // hears that a stage has ended

	resynced  bool   // renderers were told to resync
	flushed   bool   // the processor was flushed before
	unblocked string // why interfaces could not be blocked before the first state, as it was logged
	problems  problemTracker
	retries   retries
	revisions revisions

	draft Status
	state uint64 // counts what snapshots can differ in
	board *board
}

// step is what renderers have to do; the zero step is nothing.
type step struct {
	work func(context.Context) error
	// quarantined takes what became of the work. Nil is that of a transaction, which finish
	// takes.
	quarantined func(outcome)
}

// outcome is how and when a step ended.
type outcome struct {
	at      time.Time
	err     error
	closing bool // the plugin is being closed, so that errors are no news
}

// newEngine returns an engine of dependencies that are complete.
func newEngine(now time.Time, d Deps, b *board, passed func(Stage)) *engine {
	e := &engine{deps: d, passed: passed, board: b, problems: newProblemTracker(), retries: retries{min: d.MinBackoff, max: d.MaxBackoff}}
	e.cache = cache.New()
	e.processor = processor.New(e.cache, processor.Options{Node: d.Node})
	e.configurator = configurator.New(configurator.Options{DenyNode: d.DenyNode, Renderers: d.Renderers, Sets: e.processor})
	e.draft.Renderers = rendererStatus(nil, e.configurator.Renderers(), now)
	e.publish()
	return e
}

// waiting reports whether pods wait for their rules.
func (e *engine) waiting() bool { return e.configurator.Waiting() > 0 }

// answers reports whether the step of some changes is also one of all renderers for a
// prompt.
func (e *engine) answers(changes model.Changes) bool { return e.resynced || changes.Resync }

// apply brings one batch of changes down to the renderers. prompted has all of them commit,
// and begins a new row of retries.
func (e *engine) apply(now time.Time, changes model.Changes, prompted bool) step {
	resync := changes.Resync && !e.resynced
	if e.deps.Registered != nil {
		e.cache.Register(e.deps.Node, e.deps.Registered())
	}
	e.problems.found(e.cache.Update(changes, e.processor))
	e.problems.ended(e.cache.Solved())
	e.renumber()
	e.passed(StageCache)
	txn := e.configurator.NewTxn(resync)
	if resync && e.flushed {
		// Changes came before the first resync. The renderers are going to forget
		// them, so they have to be told everything.
		e.problems.found(e.processor.Replay(txn))
	} else {
		e.problems.found(e.processor.Flush(txn))
	}
	e.problems.ended(e.processor.Solved())
	e.resynced, e.flushed = e.resynced || resync, true
	e.passed(StageProcessor)
	txn.Prepare()
	e.passed(StageConfigurator)
	e.report() // before renderers, which may take their time
	if prompted {
		e.retries.pause = 0
		txn.CommitAll()
	}
	e.draft.Seen = max(e.draft.Seen, changes.Revision)
	return e.commit(now, txn)
}

// retry lets the renderers that failed try again.
func (e *engine) retry(now time.Time) step {
	if !e.flushed {
		return e.quarantine()
	}
	e.retries.at = time.Time{}
	return e.commit(now, e.configurator.NewTxn(false))
}

// recommit lets every renderer look again at what it has installed. Something is
// different since it was tried before, so a failure begins a new row of retries.
//
// Before the first resync the renderers know of nothing, and what a stack holds from before must
// not be taken for leftovers: there is nothing to do.
func (e *engine) recommit(now time.Time) step {
	e.retries.pause = 0
	switch {
	case !e.flushed:
		return e.quarantine()
	case !e.resynced:
		return step{}
	case e.deps.Registered != nil || e.renumber():
		return e.apply(now, model.Changes{}, true)
	}
	txn := e.configurator.NewTxn(false)
	txn.CommitAll()
	e.retries.at = time.Time{}
	return e.commit(now, txn)
}

// renumber tells the processor the addresses of the node. It reports whether they are others.
func (e *engine) renumber() bool {
	return e.deps.NodeAddresses != nil && e.processor.SetNodeAddresses(e.deps.NodeAddresses())
}

// commit returns the step of a transaction.
func (e *engine) commit(now time.Time, txn *configurator.Txn) step {
	txn.Prepare() // all that changes what snapshots are built of
	e.state++
	e.draft.Committing = now
	e.publish()
	return step{work: txn.Commit}
}

// finish makes the outcome of a transaction visible.
func (e *engine) finish(o outcome) {
	e.draft.Committing = time.Time{}
	e.retries.schedule(o.at, o.err)
	e.passed(StageCommit)
	e.draft.Transactions++
	e.state++
	e.draft.Local = e.configurator.Pods()
	e.draft.Policies, e.draft.Pods = e.configurator.Applied()
	e.draft.Waiting = e.configurator.Waiting()
	old := e.draft.Renderers
	e.draft.Renderers = rendererStatus(old, e.configurator.Renderers(), o.at)
	e.problems.readReports(e.configurator.Unenforced())
	e.report()
	if !o.closing {
		e.logRenderers(old, e.draft.Renderers)
	}
	if revision, newer := e.revisions.advance(o.at, e.configurator, e.draft.Seen); newer {
		e.draft.Revision, e.draft.Synced = revision, e.draft.Synced || e.resynced
	}
	e.publish()
	if e.deps.Observer.Transaction != nil {
		e.deps.Observer.Transaction(e.draft)
	}
}

// quarantine has renderers block the interfaces of pods, as long as there is nothing that they
// could be told.
func (e *engine) quarantine() step {
	var outcomes []bool // of the renderers that could look
	return step{
		work: func(ctx context.Context) (err error) {
			outcomes, err = quarantine(ctx, e.deps.Renderers)
			return err
		},
		quarantined: func(o outcome) {
			for _, holdsRules := range outcomes {
				if e.deps.Observer.Quarantine != nil {
					e.deps.Observer.Quarantine(holdsRules)
				}
			}
			e.retries.at = time.Time{}
			e.retries.schedule(o.at, o.err)
			if text := fmt.Sprint(o.err); o.err != nil && !o.closing && text != e.unblocked {
				e.unblocked = text
				e.deps.Log.Warn("interfaces of pods could not be blocked before the first state; it is tried again", "error", o.err)
			}
		},
	}
}

// quarantine returns whether dataplanes enforce rules of an earlier run, as far as their
// renderers could look.
func quarantine(ctx context.Context, renderers []renderer.Renderer) (outcomes []bool, err error) {
	var errs []error
	for _, r := range renderers {
		q, ok := renderer.As[renderer.Quarantiner](r)
		if !ok {
			continue
		}
		holdsRules, err := q.Quarantine(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("renderer %s: %w", r.Name(), err))
			continue
		}
		outcomes = append(outcomes, holdsRules)
	}
	return outcomes, errors.Join(errs...)
}

// sourceEnded keeps everything as it is, for good.
func (e *engine) sourceEnded(err error) {
	e.draft.SourceError = err.Error()
	e.board.snapshot.Store(nil) // it does not say so
	e.deps.Log.Error("source of state has ended, what is enforced stays enforced", "err", err)
	e.publish()
}

// publish makes the draft visible.
func (e *engine) publish() {
	now := &published{of: e.state, status: e.draft}
	if e.draft.Committing.IsZero() && !e.waiting() { // else renderers may fail just now
		if err := e.configurator.Err(); renderer.IsRefused(err) {
			now.refused = err
		}
	}
	e.board.publish(now)
}

// buildSnapshot collects the state and wakes those who wait for it.
func (e *engine) buildSnapshot() {
	s := e.snapshot(e.deps.Node, e.problems.reports(true))
	s.of, s.Status = e.state, e.draft
	e.board.snapshot.Store(s)
	e.publish()
}

// report tells people once that a problem began, and once that it ended.
func (e *engine) report() {
	if len(e.problems.changed) == 0 {
		return
	}
	begun, ended := e.problems.take()
	e.draft.Problems, e.draft.Unenforced = e.problems.counts()
	for _, x := range begun {
		if e.deps.Observer.Known == nil || !e.deps.Observer.Known(x) {
			e.deps.Log.Warn("not enforced as it is", attributes(x)...)
		}
		if e.deps.Observer.Problem != nil {
			e.deps.Observer.Problem(x)
		}
	}
	for _, x := range ended {
		e.deps.Log.Info("problem is solved", attributes(x)...)
		if e.deps.Observer.Solved != nil {
			e.deps.Observer.Solved(x)
		}
	}
}

func attributes(x api.Problem) []any {
	return []any{"object", x.Object, "field", x.Field, "class", x.Class, "reason", x.Reason}
}

// logRenderers logs what is different, so that a renderer that fails over and over
// in the same way is logged once.
func (e *engine) logRenderers(old, renderers []RendererStatus) {
	for i, r := range renderers {
		switch {
		case r.Error != "" && r.Error != old[i].Error && r.Refused:
			e.deps.Log.Warn("renderer refused and will be tried again when something changes", "renderer", r.Name, "err", r.Error, "failures", r.Failures)
		case r.Error != "" && r.Error != old[i].Error:
			e.deps.Log.Warn("renderer failed and will be tried again", "renderer", r.Name, "err", r.Error, "failures", r.Failures)
		case r.Error == "" && old[i].Error != "":
			e.deps.Log.Info("renderer has recovered", "renderer", r.Name, "failures", r.Failures)
		}
	}
}
