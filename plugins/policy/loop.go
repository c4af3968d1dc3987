package policy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/configurator"
	"github.com/sluice-net/sluice/renderer"
)

// errInterrupted says that there is something else to do than to wait for changes.
var errInterrupted = errors.New("interrupted")

// run is the event loop. It ends with ctx.
func (p *Plugin) run(ctx context.Context) {
	defer close(p.done)
	for {
		p.atWork.Store(nil)
		changes, err := p.next(ctx)
		p.atWork.Store(new(time.Now()))
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			_ = p.apply(ctx, changes) // what failed is in the status, and tried again
		case !errors.Is(err, errInterrupted):
			p.sourceEnded(err)
		case !p.retryAt.IsZero() && !time.Now().Before(p.retryAt):
			_ = p.retry(ctx)
		case p.waiting():
			_ = p.apply(ctx, model.Changes{}) // goes on
		}
		if p.prompted.Swap(false) {
			_ = p.recommit(ctx)
		}
		if p.wanted.Swap(false) {
			p.buildSnapshot()
		}
	}
}

// pollInterval is how long the event loop waits for changes while pods wait for their rules.
const pollInterval = time.Millisecond

// waiting reports whether pods wait for their rules.
func (p *Plugin) waiting() bool { return p.configurator.Waiting() > 0 }

// next waits for changes, until ctx ends, a snapshot is wanted or a retry is due, and only for the
// pollInterval while pods wait for their rules.
func (p *Plugin) next(ctx context.Context) (model.Changes, error) {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	// Whoever wants something sets wanted first and calls interrupt then. Here it is
	// the other way round, so one of the two sees the other.
	p.interrupt.Store(&cancel)
	if p.wanted.Load() || p.prompted.Load() {
		cancel()
	}
	if !p.retryAt.IsZero() {
		timer := time.AfterFunc(time.Until(p.retryAt), cancel)
		defer timer.Stop()
	}
	if p.waiting() {
		timer := time.AfterFunc(pollInterval, cancel)
		defer timer.Stop()
	}
	if p.sourceErr != nil {
		<-wait.Done()
		return model.Changes{}, errInterrupted
	}
	changes, err := p.Source.Next(wait)
	if err != nil && wait.Err() != nil {
		return model.Changes{}, errInterrupted
	}
	return changes, err
}

// sourceEnded keeps everything as it is, for good.
func (p *Plugin) sourceEnded(err error) {
	p.sourceErr = err
	p.snapshot.Store(nil) // it does not say so
	p.Log.Error("source of state has ended, what is enforced stays enforced", "err", err)
	p.publish()
}

// apply brings one batch of changes down to the renderers. Its error says which of
// them failed.
func (p *Plugin) apply(ctx context.Context, changes model.Changes) error {
	watch := p.stopwatch()
	resync := changes.Resync && !p.resynced
	prompted := (p.resynced || resync) && p.prompted.Swap(false) // before anybody is asked: a later one is another one
	if p.Registered != nil {
		p.cache.Register(p.Node, p.Registered())
	}
	p.found(p.cache.Update(changes, p.processor))
	p.ended(p.cache.Solved())
	p.renumber()
	watch(StageCache)
	txn := p.configurator.NewTxn(resync)
	if resync && p.told {
		// Changes came before the first resync. The renderers are going to forget
		// them, so they have to be told everything.
		p.found(p.processor.Replay(txn))
	} else {
		p.found(p.processor.Flush(txn))
	}
	p.ended(p.processor.Solved())
	p.resynced, p.told = p.resynced || resync, true
	watch(StageProcessor)
	txn.Prepare()
	watch(StageConfigurator)
	p.report() // before renderers, which may take their time
	if prompted {
		p.backoff = 0
		txn.CommitAll() // as recommit does
	}
	p.draft.Seen = max(p.draft.Seen, changes.Revision)
	err := p.commit(ctx, txn)
	watch(StageCommit)
	p.finish(ctx)
	return err
}

// retry lets the renderers that failed try again.
func (p *Plugin) retry(ctx context.Context) error {
	if !p.told {
		return p.quarantine(ctx)
	}
	return p.empty(ctx, p.configurator.NewTxn(false))
}

// recommit lets every renderer look again at what it has installed. Something is
// different since it was tried before, so a failure begins a new row of retries.
//
// Before the first resync the renderers know of nothing, and what a stack holds from before must
// not be taken for leftovers.
func (p *Plugin) recommit(ctx context.Context) error {
	p.backoff = 0
	switch {
	case !p.told:
		return p.quarantine(ctx)
	case !p.resynced:
		return ctx.Err()
	case p.Registered != nil || p.renumber():
		p.prompted.Store(true) // apply has all commit
		return p.apply(ctx, model.Changes{})
	}
	txn := p.configurator.NewTxn(false)
	txn.CommitAll()
	return p.empty(ctx, txn)
}

// renumber tells the processor the addresses of the node. It reports whether they are others.
func (p *Plugin) renumber() bool {
	return p.NodeAddresses != nil && p.processor.SetNodeAddresses(p.NodeAddresses())
}

// empty commits a transaction that has no changes.
func (p *Plugin) empty(ctx context.Context, txn *configurator.Txn) error {
	watch := p.stopwatch()
	p.retryAt = time.Time{}
	err := p.commit(ctx, txn)
	watch(StageCommit)
	p.finish(ctx)
	return err
}

// commit schedules a retry when a renderer fails. A failure while one is scheduled
// already does not put it off. Where all that failed was refused, another try would end
// alike: whatever changes is one, so none is scheduled.
//
// The error is in the status of the renderers as well, from where it is logged.
func (p *Plugin) commit(ctx context.Context, txn *configurator.Txn) error {
	ctx, cancel := context.WithTimeout(ctx, p.CommitTimeout)
	defer cancel()
	txn.Prepare() // all that changes what snapshots are built of
	p.state++
	p.draft.Committing = time.Now()
	p.publish()
	err := p.answering(ctx, txn.Commit)
	p.draft.Committing = time.Time{}
	p.schedule(err)
	return err
}

// schedule plans a retry of what failed.
func (p *Plugin) schedule(err error) {
	switch {
	case err == nil || renderer.IsRefused(err):
		p.retryAt, p.backoff = time.Time{}, 0
	case p.retryAt.IsZero():
		p.backoff = min(max(2*p.backoff, p.MinBackoff), p.MaxBackoff)
		p.retryAt = time.Now().Add(p.backoff)
	}
}

// answering has renderers do their work, and builds the snapshots that are asked for meanwhile. A
// Handler is asked by its host only, which waits.
func (p *Plugin) answering(ctx context.Context, work func(context.Context) error) error {
	if p.asked == nil {
		return work(ctx)
	}
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-p.asked:
			if p.wanted.Swap(false) {
				p.buildSnapshot()
			}
		}
	}
}

// finish makes the outcome of a transaction visible. Commits that fail because the
// plugin is being closed are no news.
func (p *Plugin) finish(ctx context.Context) {
	p.draft.Transactions++
	p.state++
	p.draft.Local = p.configurator.Pods()
	p.draft.Policies, p.draft.Pods = p.configurator.Applied()
	p.draft.Waiting = p.configurator.Waiting()
	old := p.draft.Renderers
	p.draft.Renderers = rendererStatus(old, p.configurator.Renderers(), time.Now())
	p.readReports()
	p.report()
	if ctx.Err() == nil {
		p.logRenderers(old, p.draft.Renderers)
	}
	p.advance()
	p.publish()
	if p.Observer.Transaction != nil {
		p.Observer.Transaction(p.Status())
	}
}

// attempt is a revision whose changes were committed by a time.
type attempt struct {
	revision int64
	ended    time.Time
}

// advance brings the revision that is enforced up to date: to what was seen when nothing is left to
// do, and while renderers defer something, to what all of them enforce.
func (p *Plugin) advance() {
	if p.configurator.InSync() {
		p.attempts = nil
		p.draft.Revision = p.draft.Seen
		p.draft.Synced = p.draft.Synced || p.resynced
		return
	}
	until, known := p.configurator.EnforcedUntil()
	if !known {
		p.attempts = nil // what failed may take back what was enforced
		return
	}
	n := 0
	for ; n < len(p.attempts) && p.attempts[n].ended.Before(until); n++ {
		p.draft.Revision = p.attempts[n].revision
		p.draft.Synced = p.draft.Synced || p.resynced
	}
	p.attempts = append(slices.Delete(p.attempts, 0, n), attempt{p.draft.Seen, time.Now()})
}

// logRenderers logs what is different, so that a renderer that fails over and over
// in the same way is logged once.
func (p *Plugin) logRenderers(old, renderers []RendererStatus) {
	for i, r := range renderers {
		switch {
		case r.Error != "" && r.Error != old[i].Error && r.Refused:
			p.Log.Warn("renderer refused and will be tried again when something changes", "renderer", r.Name, "err", r.Error, "failures", r.Failures)
		case r.Error != "" && r.Error != old[i].Error:
			p.Log.Warn("renderer failed and will be tried again", "renderer", r.Name, "err", r.Error, "failures", r.Failures)
		case r.Error == "" && old[i].Error != "":
			p.Log.Info("renderer has recovered", "renderer", r.Name, "failures", r.Failures)
		}
	}
}

// stopwatch returns a function that tells the observer the time since it was
// called last.
func (p *Plugin) stopwatch() func(Stage) {
	if p.Observer.Stage == nil {
		return func(Stage) {}
	}
	last := time.Now()
	return func(s Stage) {
		now := time.Now()
		p.Observer.Stage(s, now.Sub(last))
		last = now
	}
}
