package policy

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// errInterrupted says that there is something else to do than to wait for changes.
var errInterrupted = errors.New("interrupted")

// loop is the event loop. It owns the driver; prompt, want and atWork are for everybody.
type loop struct {
	source Source
	driver *driver

	wanted    atomic.Bool                        // somebody waits for a snapshot
	asked     chan struct{}                      // holds a token when somebody may
	prompted  atomic.Bool                        // Prompt was called
	busy      atomic.Pointer[time.Time]          // since when the loop has not waited; nil while it does
	interrupt atomic.Pointer[context.CancelFunc] // ends the loop's waiting
}

// run is the loop. It ends with ctx.
func (l *loop) run(ctx context.Context) {
	e, ended := l.driver.engine, false
	for {
		l.busy.Store(nil)
		changes, err := l.receive(ctx, ended)
		l.busy.Store(new(time.Now()))
		switch { // what fails is in the status, and tried again
		case ctx.Err() != nil:
			return
		case err == nil:
			_ = l.apply(ctx, changes)
		case !errors.Is(err, errInterrupted):
			ended = true
			e.sourceEnded(err)
		case e.retries.due(time.Now()):
			_ = l.driver.retry(ctx)
		case e.waiting():
			_ = l.apply(ctx, model.Changes{}) // goes on
		}
		if l.prompted.Swap(false) {
			_ = l.driver.recommit(ctx)
		}
		l.answer()
	}
}

// apply brings changes down to the renderers. The step answers a prompt as well, where
// there was one before any of them is asked: a later one is another one.
func (l *loop) apply(ctx context.Context, changes model.Changes) error {
	prompted := l.driver.engine.answers(changes) && l.prompted.Swap(false)
	return l.driver.apply(ctx, changes, prompted)
}

// pollInterval is how long the event loop waits for changes while pods wait for their rules.
const pollInterval = time.Millisecond

// receive waits for changes, until ctx ends, a snapshot is wanted or a retry is due, and only for
// the pollInterval while pods wait for their rules. Of a source that has ended there are none.
func (l *loop) receive(ctx context.Context, ended bool) (model.Changes, error) {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	// Whoever wants something sets wanted first and calls interrupt then. Here it is
	// the other way round, so one of the two sees the other.
	l.interrupt.Store(&cancel)
	if l.wanted.Load() || l.prompted.Load() {
		cancel()
	}
	if at := l.driver.engine.retries.at; !at.IsZero() {
		timer := time.AfterFunc(time.Until(at), cancel)
		defer timer.Stop()
	}
	if l.driver.engine.waiting() {
		timer := time.AfterFunc(pollInterval, cancel)
		defer timer.Stop()
	}
	if ended {
		<-wait.Done()
		return model.Changes{}, errInterrupted
	}
	changes, err := l.source.Next(wait)
	if err != nil && wait.Err() != nil {
		return model.Changes{}, errInterrupted
	}
	return changes, err
}

// answering has renderers do their work, and builds the snapshots that are asked for meanwhile.
func (l *loop) answering(ctx context.Context, work func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-l.asked:
			l.answer()
		}
	}
}

// answer builds a snapshot if somebody waits for one.
func (l *loop) answer() {
	if l.wanted.Swap(false) {
		l.driver.engine.buildSnapshot()
	}
}

// want asks for a snapshot.
func (l *loop) want() {
	l.wanted.Store(true)
	select {
	case l.asked <- struct{}{}:
	default: // there is a token
	}
	l.wake()
}

// prompt asks to let every renderer commit.
func (l *loop) prompt() {
	l.prompted.Store(true)
	l.wake()
}

// wake ends the loop's waiting, for whoever has said before what he wants.
func (l *loop) wake() {
	if interrupt := l.interrupt.Load(); interrupt != nil {
		(*interrupt)()
	}
}

// atWork returns since when the loop has been at work; zero while it waits.
func (l *loop) atWork() time.Time {
	if since := l.busy.Load(); since != nil {
		return *since
	}
	return time.Time{}
}
