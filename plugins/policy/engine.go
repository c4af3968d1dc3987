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

// engine is the core of the plugin: it passes changes through the layers and decides what to do
// when renderers fail. It starts no goroutine, never blocks and has no clock: callers pass the
// time. It returns the work of renderers as a step, which a Plugin or a Handler runs. Only one
// goroutine at a time may call the engine, and only buildSnapshot may be called during a step.
type engine struct {
	deps Deps
	layers
	passed func(Stage) // called at the end of a stage

	resynced bool // renderers have been resynced
	flushed  bool // the processor has been flushed
	// last logged reason why interfaces could not be blocked before the first state
	unblocked string
	problems  problemTracker
	retries   retries
	revisions revisions

	draft Status
	state uint64 // incremented with every change that snapshots can show
	board *board
}

// step is work for the renderers; the zero step is no work.
type step struct {
	work func(context.Context) error
	// brief work calls no renderer, so nothing is done meanwhile
	brief bool
	// quarantined handles the outcome of the work. It is nil for a transaction, whose outcome
	// finish handles.
	quarantined func(outcome)
}

// outcome is how and when a step ended.
type outcome struct {
	at      time.Time
	err     error
	closing bool // the plugin is closing; errors are expected
}

// turn is how long a step may take before the event loop looks for changes again. Renderers that
// need longer go on beside it.
const turn = 25 * time.Millisecond

// newEngine returns an engine; its dependencies must be complete. See newDriver for ended.
func newEngine(now time.Time, d Deps, b *board, passed func(Stage), ended func()) *engine {
	e := &engine{deps: d, passed: passed, board: b, problems: newProblemTracker(), retries: retries{min: d.MinBackoff, max: d.MaxBackoff}}
	e.cache = cache.New()
	e.processor = processor.New(e.cache, processor.Options{Node: d.Node})
	pace := configurator.Pace{Timeout: d.CommitTimeout}
	if ended != nil {
		pace.Turn, pace.Ended = turn, ended
	}
	e.configurator = configurator.New(configurator.Options{DenyNode: d.DenyNode, Renderers: d.Renderers, Sets: e.processor, Pace: pace})
	e.draft.Renderers = rendererStatus(nil, e.configurator.Renderers(), now)
	e.publish()
	return e
}

// waiting reports whether renderers have work that goes on without another change.
func (e *engine) waiting() bool { return e.configurator.Unfinished() }

// answers reports whether the step for some changes also answers a prompt, because it includes all
// renderers.
func (e *engine) answers(changes model.Changes) bool { return e.resynced || changes.Resync }

// apply passes one batch of changes down to the renderers. With prompted all renderers commit, and
// backoff starts anew.
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
		// Changes came before the first resync. The resync makes renderers forget them, so
		// everything is sent again.
		e.problems.found(e.processor.Replay(txn))
	} else {
		e.problems.found(e.processor.Flush(txn))
	}
	e.problems.ended(e.processor.Solved())
	e.resynced, e.flushed = e.resynced || resync, true
	e.passed(StageProcessor)
	txn.Prepare()
	e.passed(StageConfigurator)
	e.report() // before the renderers, which may take long
	if prompted {
		e.retries.pause = 0
		txn.CommitAll()
	}
	e.see(changes)
	return e.commit(now, txn)
}

// see records the revision of changes. A whole state of a lower one is that of another store: none
// of its revisions is enforced yet.
func (e *engine) see(changes model.Changes) {
	if changes.Resync && changes.Revision < e.draft.Seen {
		e.draft.Seen, e.draft.Revision = changes.Revision, 0
		e.revisions.attempts = nil
		return
	}
	e.draft.Seen = max(e.draft.Seen, changes.Revision)
}

// retry lets the failed renderers try again.
func (e *engine) retry(now time.Time) step {
	if !e.flushed {
		return e.quarantine()
	}
	e.retries.at = time.Time{}
	return e.commit(now, e.configurator.NewTxn(false))
}

// recommit makes every renderer check again what it has installed. The environment has changed
// since the last attempt, so backoff starts anew.
//
// Before the first resync it does nothing: the renderers have no desired state yet and would take
// rules of an earlier run for leftovers.
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

// renumber passes the addresses of the node to the processor. It reports whether they changed.
func (e *engine) renumber() bool {
	return e.deps.NodeAddresses != nil && e.processor.SetNodeAddresses(e.deps.NodeAddresses())
}

// commit returns the step of a transaction.
func (e *engine) commit(now time.Time, txn *configurator.Txn) step {
	txn.Prepare() // includes every change that snapshots show
	e.state++
	if e.draft.Committing = e.configurator.Committing(); e.draft.Committing.IsZero() {
		e.draft.Committing = txn.Began()
	}
	brief := txn.Idle()
	if !brief {
		e.publish()
	}
	return step{work: txn.Commit, brief: brief}
}

// finish publishes the outcome of a transaction.
func (e *engine) finish(o outcome) {
	e.draft.Committing = e.configurator.Committing()
	if e.draft.Committing.IsZero() || o.err != nil && !renderer.IsRefused(o.err) {
		e.retries.schedule(o.at, o.err)
	}
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

// quarantine makes renderers block the interfaces of pods while there is no state to enforce.
func (e *engine) quarantine() step {
	var outcomes []bool // of the renderers that could check
	return step{
		work: func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, e.deps.CommitTimeout)
			defer cancel()
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
				e.deps.Log.Warn("interfaces of pods could not be blocked before the first state, retrying", "error", o.err)
			}
		},
	}
}

// quarantine reports whether dataplanes enforce rules of an earlier run, as far as their renderers
// could check.
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

// join waits until no renderer is at work. It is a step: the context of the others has ended, so
// what goes on ends soon.
func (e *engine) join() step {
	if e.configurator.Committing().IsZero() {
		return step{}
	}
	return step{work: func(context.Context) error {
		e.configurator.Join()
		return e.configurator.Err()
	}}
}

// sourceEnded records that no more changes will come. Everything stays in force.
func (e *engine) sourceEnded(err error) {
	e.draft.SourceError = err.Error()
	e.board.snapshot.Store(nil) // it does not show that the source has ended
	e.deps.Log.Error("source of state has ended; enforced rules stay in force", "error", err)
	e.publish()
}

// publish publishes the draft.
func (e *engine) publish() {
	// During a step only buildSnapshot is called, and renderers may be failing at the moment.
	now := &published{of: e.state, status: e.draft, working: !e.draft.Committing.IsZero() || e.waiting()}
	if !now.working {
		if err := e.configurator.Err(); renderer.IsRefused(err) {
			now.refused = err
		}
	}
	e.board.publish(now)
}

// buildSnapshot builds a snapshot and wakes the waiters, unless the last one is current.
func (e *engine) buildSnapshot() {
	if last := e.board.snapshot.Load(); last != nil && last.of == e.state {
		return
	}
	s := e.snapshot(e.deps.Node, e.problems.reports(true))
	s.of, s.Status = e.state, e.draft
	e.board.snapshot.Store(s)
	e.publish()
}

// report reports each problem once when it begins and once when it ends.
func (e *engine) report() {
	if len(e.problems.changed) == 0 {
		return
	}
	begun, ended := e.problems.take()
	e.draft.Problems, e.draft.Unenforced = e.problems.counts()
	for _, x := range begun {
		if e.deps.Observer.Known == nil || !e.deps.Observer.Known(x) {
			e.deps.Log.Warn("object is partially enforced", attributes(x)...)
		}
		if e.deps.Observer.Problem != nil {
			e.deps.Observer.Problem(x)
		}
	}
	for _, x := range ended {
		e.deps.Log.Info("problem solved", attributes(x)...)
		if e.deps.Observer.Solved != nil {
			e.deps.Observer.Solved(x)
		}
	}
}

func attributes(x api.Problem) []any {
	return []any{"object", x.Object, "field", x.Field, "class", x.Class, "reason", x.Reason}
}

// logRenderers logs changes only, so that a renderer that keeps failing in the same way is logged
// once.
func (e *engine) logRenderers(old, renderers []RendererStatus) {
	for i, r := range renderers {
		switch {
		case r.Error != "" && r.Error != old[i].Error && r.Refused:
			e.deps.Log.Warn("renderer refused the state, will be retried when the state changes", "renderer", r.Name, "error", r.Error, "failures", r.Failures)
		case r.Error != "" && r.Error != old[i].Error:
			e.deps.Log.Warn("renderer failed, retrying", "renderer", r.Name, "error", r.Error, "failures", r.Failures)
		case r.Error == "" && old[i].Error != "":
			e.deps.Log.Info("renderer has recovered", "renderer", r.Name, "failures", r.Failures)
		}
	}
}
