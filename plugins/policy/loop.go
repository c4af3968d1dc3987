package policy

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// errInterrupted says that there is something else to do than to wait for changes.
var errInterrupted = errors.New("interrupted")

// run is the event loop. It ends with ctx.
func (p *Plugin) run(ctx context.Context) {
	defer close(p.done)
	e, ended := p.driver.engine, false
	for {
		p.atWork.Store(nil)
		changes, err := p.receive(ctx, ended)
		p.atWork.Store(new(time.Now()))
		switch { // what fails is in the status, and tried again
		case ctx.Err() != nil:
			return
		case err == nil:
			_ = p.apply(ctx, changes)
		case !errors.Is(err, errInterrupted):
			ended = true
			e.sourceEnded(err)
		case e.retries.due(time.Now()):
			_ = p.driver.retry(ctx)
		case e.waiting():
			_ = p.apply(ctx, model.Changes{}) // goes on
		}
		if p.prompted.Swap(false) {
			_ = p.driver.recommit(ctx)
		}
		p.answer()
	}
}

// apply brings changes down to the renderers. The step answers a prompt as well, where
// there was one before any of them is asked: a later one is another one.
func (p *Plugin) apply(ctx context.Context, changes model.Changes) error {
	prompted := p.driver.engine.answers(changes) && p.prompted.Swap(false)
	return p.driver.apply(ctx, changes, prompted)
}

// pollInterval is how long the event loop waits for changes while pods wait for their rules.
const pollInterval = time.Millisecond

// receive waits for changes, until ctx ends, a snapshot is wanted or a retry is due, and only for the
// pollInterval while pods wait for their rules. Of a source that has ended there are none.
func (p *Plugin) receive(ctx context.Context, ended bool) (model.Changes, error) {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	// Whoever wants something sets wanted first and calls interrupt then. Here it is
	// the other way round, so one of the two sees the other.
	p.interrupt.Store(&cancel)
	if p.wanted.Load() || p.prompted.Load() {
		cancel()
	}
	if at := p.driver.engine.retries.at; !at.IsZero() {
		timer := time.AfterFunc(time.Until(at), cancel)
		defer timer.Stop()
	}
	if p.driver.engine.waiting() {
		timer := time.AfterFunc(pollInterval, cancel)
		defer timer.Stop()
	}
	if ended {
		<-wait.Done()
		return model.Changes{}, errInterrupted
	}
	changes, err := p.Source.Next(wait)
	if err != nil && wait.Err() != nil {
		return model.Changes{}, errInterrupted
	}
	return changes, err
}

// answering has renderers do their work, and builds the snapshots that are asked for meanwhile.
func (p *Plugin) answering(ctx context.Context, work func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-p.asked:
			p.answer()
		}
	}
}

// answer builds a snapshot if somebody waits for one.
func (p *Plugin) answer() {
	if p.wanted.Swap(false) {
		p.driver.engine.buildSnapshot()
	}
}
