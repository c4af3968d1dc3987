package policy

import (
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

// engine is the core of the plugin. Changes of the cluster pass through its layers and become one
// value of changes for renderers, which it posts to their mailboxes. It calls no renderer, starts no
// goroutine, never blocks and has no clock: callers pass the time. One goroutine at a time may call
// it.
type engine struct {
	deps Deps
	layers
	mailboxes []*mailbox
	watch     stopwatch

	resynced bool // the whole state has come; before that, nothing is posted
	// last logged reason why interfaces could not be blocked before the first state
	unblocked string
	problems  problemTracker

	status  Status // all but what mailboxes say at the moment
	refused error  // of renderers that failed, if no retry is of use
	closing bool   // errors are expected, and not logged
	state   uint64 // incremented with every change that snapshots can show
	board   *board
}

// newEngine returns an engine. changed is called, by any goroutine, when a renderer has done work:
// collect takes the outcome.
func newEngine(now time.Time, d *Deps, b *board, changed func()) (*engine, error) {
	if err := d.complete(); err != nil {
		return nil, err
	}
	e := &engine{deps: *d, board: b, watch: stopwatch{tell: d.Observer.Stage}, problems: newProblemTracker()}
	e.cache = cache.New()
	e.processor = processor.New(e.cache, processor.Options{Node: d.Node})
	e.configurator = configurator.New(configurator.Options{DenyNode: d.DenyNode, Sets: e.processor})
	for _, r := range d.Renderers {
		e.mailboxes = append(e.mailboxes, newMailbox(r, d, changed))
		e.status.Renderers = append(e.status.Renderers, RendererStatus{Name: r.Name(), Since: now})
	}
	e.publish()
	return e, nil
}

// apply passes one batch of changes through the layers, and posts what changes for renderers. What
// comes before the whole state stays in the cache: rules made of a part of the state would replace
// those of an earlier run.
func (e *engine) apply(now time.Time, changes model.Changes) {
	e.watch.start()
	if e.deps.Registered != nil {
		e.cache.Register(e.deps.Node, e.deps.Registered())
	}
	e.problems.found(e.cache.Update(changes, e.processor))
	e.problems.ended(e.cache.Solved())
	e.renumber()
	e.watch.passed(StageCache)
	e.see(changes)
	e.state++
	first := changes.Resync && !e.resynced
	e.resynced = e.resynced || first
	if !e.resynced {
		e.collect(now, false)
		return
	}
	txn := e.configurator.NewTxn()
	e.problems.found(e.processor.Flush(txn))
	e.problems.ended(e.processor.Solved())
	e.watch.passed(StageProcessor)
	value := txn.Changes()
	value.Resync = first
	e.watch.passed(StageConfigurator)
	for _, m := range e.mailboxes {
		m.post(now, value, e.status.Seen)
	}
	e.status.Local = e.configurator.Pods()
	e.status.Policies, e.status.Pods = e.configurator.Applied()
	e.collect(now, true)
}

// see records the revision of changes. A whole state of a lower one is that of another store: none
// of its revisions is enforced yet.
func (e *engine) see(changes model.Changes) {
	if changes.Resync && changes.Revision < e.status.Seen {
		e.status.Seen, e.status.Revision = changes.Revision, 0
		for _, m := range e.mailboxes {
			m.forget()
		}
		return
	}
	e.status.Seen = max(e.status.Seen, changes.Revision)
}

// prompt makes every renderer look again at what it has installed, and reads the addresses of the
// node and registered ones again. Something has changed in a dataplane or on the node.
func (e *engine) prompt(now time.Time) {
	if e.resynced && (e.deps.Registered != nil || e.renumber()) {
		e.apply(now, model.Changes{})
	}
	for _, m := range e.mailboxes {
		m.kick(now)
	}
}

// renumber passes the addresses of the node to the processor. It reports whether they changed.
func (e *engine) renumber() bool {
	return e.deps.NodeAddresses != nil && e.processor.SetNodeAddresses(e.deps.NodeAddresses())
}

// collect takes what renderers have done since the last call, and publishes the status. applied is
// set when changes were posted just before.
func (e *engine) collect(now time.Time, applied bool) {
	old := e.status.Renderers
	e.status.Renderers = make([]RendererStatus, len(old))
	e.status.BusySince, e.status.Waiting, e.refused = time.Time{}, 0, nil
	revision, synced, calls := e.status.Seen, e.resynced, 0
	waiting := 0 // mailboxes with pods that wait
	reports := []report{{ownName, e.configurator.Unenforced()}}
	var errs, unblocked []error
	for i, m := range e.mailboxes {
		s := m.collect()
		e.status.Renderers[i] = rendererStatus(old[i], s, now)
		e.status.BusySince = earliest(e.status.BusySince, s.busySince)
		revision, synced = min(revision, s.acknowledged), synced && s.synced
		if s.err != nil {
			errs = append(errs, s.err)
		}
		if s.waiting > 0 {
			waiting++
			e.status.Waiting = s.waiting
		}
		if _, ok := renderer.As[renderer.Reporter](m.renderer); ok {
			reports = append(reports, report{m.renderer.Name(), s.unenforced})
		}
		for _, call := range s.ended {
			if call.quarantined {
				unblocked = append(unblocked, e.quarantined(call))
				continue
			}
			calls++
			if e.deps.Observer.Stage != nil {
				e.deps.Observer.Stage(StageApply, call.took)
			}
		}
	}
	if err := errors.Join(errs...); e.status.BusySince.IsZero() && renderer.IsRefused(err) {
		e.refused = err
	}
	if waiting > 1 { // some pods may wait for several
		e.status.Waiting = len(e.waiting())
	}
	e.logRenderers(old)
	e.logUnblocked(errors.Join(unblocked...), len(unblocked) > 0)
	e.problems.readReports(reports)
	e.report()
	if e.resynced {
		e.status.Revision, e.status.Synced = max(e.status.Revision, revision), e.status.Synced || synced
	}
	done := calls > 0 || applied && e.status.BusySince.IsZero()
	if done {
		e.status.Transactions++
		e.state++
	}
	e.publish()
	if done && e.deps.Observer.Transaction != nil {
		e.deps.Observer.Transaction(e.status)
	}
}

// quarantined tells the observer that a renderer has looked for interfaces to block.
func (e *engine) quarantined(call ended) error {
	if call.err == nil && !call.unable && e.deps.Observer.Quarantine != nil {
		e.deps.Observer.Quarantine(call.holdsRules)
	}
	return call.err
}

// logUnblocked logs once why interfaces could not be blocked.
func (e *engine) logUnblocked(err error, asked bool) {
	if !asked || e.closing {
		return
	}
	if text := fmt.Sprint(err); err != nil && text != e.unblocked {
		e.unblocked = text
		e.deps.Log.Warn("interfaces of pods could not be blocked before the first state, retrying", "error", err)
	}
}

// err returns the errors of renderers, joined, each with its name: of those that enforce, or of
// those that are asked to block interfaces.
func (e *engine) err() error {
	var errs []error
	for _, m := range e.mailboxes {
		errs = append(errs, m.err())
	}
	return errors.Join(errs...)
}

// sourceEnded records that no more changes will come. Everything stays in force.
func (e *engine) sourceEnded(err error) {
	e.status.SourceError = err.Error()
	e.board.snapshot.Store(nil) // it does not show that the source has ended
	e.deps.Log.Error("source of state has ended; enforced rules stay in force", "error", err)
	e.publish()
}

// publish publishes the status.
func (e *engine) publish() {
	e.board.publish(&published{number: e.state, status: e.status, refused: e.refused})
}

// buildSnapshot returns a snapshot: the last one if that is current.
func (e *engine) buildSnapshot() *Snapshot {
	if last := e.board.snapshot.Load(); last != nil && last.number == e.state {
		return last
	}
	s := e.snapshot(e.deps.Node, e.waiting(), e.problems.reports(true))
	s.number, s.Status = e.state, e.status
	e.board.snapshot.Store(s)
	return s
}

// waiting returns the pods whose newest rules some renderer does not enforce yet.
func (e *engine) waiting() map[api.PodID]bool {
	out := map[api.PodID]bool{}
	for _, m := range e.mailboxes {
		for _, pod := range m.waitingPods() {
			out[pod] = true
		}
	}
	return out
}

// report reports each problem once when it begins and once when it ends.
func (e *engine) report() {
	if len(e.problems.changed) == 0 {
		return
	}
	begun, ended := e.problems.takeChanged()
	e.status.Problems, e.status.Unenforced = e.problems.counts()
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
func (e *engine) logRenderers(old []RendererStatus) {
	if e.closing {
		return
	}
	for i, r := range e.status.Renderers {
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

// stopwatch measures the duration of stages.
type stopwatch struct {
	last time.Time
	tell func(Stage, time.Duration) // nil disables it
}

func (w *stopwatch) start() { w.passed("") }

// passed reports the time since the last stage.
func (w *stopwatch) passed(s Stage) {
	if w.tell == nil {
		return
	}
	now := time.Now()
	if s != "" {
		w.tell(s, now.Sub(w.last))
	}
	w.last = now
}

// earliest returns the earlier one of two times; a zero time is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
