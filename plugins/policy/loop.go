package policy

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// errInterrupted reports that there is other work than waiting for changes.
var errInterrupted = errors.New("interrupted")

// loop is the event loop. It owns the driver; any goroutine may call prompt, want and atWork.
type loop struct {
	source Source
	driver *driver

	wanted   atomic.Bool   // a caller waits for a snapshot
	asked    chan struct{} // holds a token if a caller may wait
	prompted atomic.Bool   // Prompt was called
	// start of the current work; nil while the loop waits
	busy      atomic.Pointer[time.Time]
	interrupt atomic.Pointer[context.CancelFunc] // wakes the loop
	turns     int                                // since the loop last waited
}

// run is the loop. It ends with ctx.
func (l *loop) run(ctx context.Context) {
	e, ended := l.driver.engine, false
	defer e.close()
	for {
		l.busy.Store(nil)
		changes, err := l.receive(ctx, ended)
		l.busy.Store(new(time.Now()))
		switch { // errors are in the status, and retried
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
			_ = l.apply(ctx, model.Changes{}) // continues with waiting pods
		}
		if l.prompted.Swap(false) {
			_ = l.driver.recommit(ctx)
		}
		l.answer()
	}
}

// apply passes changes down to the renderers. The step also answers a prompt that came before the
// renderers start; a later prompt gets a step of its own.
func (l *loop) apply(ctx context.Context, changes model.Changes) error {
	prompted := l.driver.engine.answers(changes) && l.prompted.Swap(false)
	return l.driver.apply(ctx, changes, prompted)
}

// While pods wait for their rules the event loop only takes the changes that are there. After so
// many turns it waits for pollInterval, so that others get the processor.
const (
	pollTurns    = 8
	pollInterval = time.Millisecond
)

// receive waits for changes until ctx ends, a snapshot is requested or a retry is due, and not for
// long while pods wait for their rules. A source that has ended yields none.
func (l *loop) receive(ctx context.Context, ended bool) (model.Changes, error) {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	// A requester sets wanted first and then calls interrupt. Here the order is reversed, so one of
	// the two sees the other.
	l.interrupt.Store(&cancel)
	if l.wanted.Load() || l.prompted.Load() {
		cancel()
	}
	if at := l.driver.engine.retries.at; !at.IsZero() {
		timer := time.AfterFunc(time.Until(at), cancel)
		defer timer.Stop()
	}
	if l.driver.engine.waiting() {
		timer := time.AfterFunc(l.pause(), cancel)
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

// pause returns how long to wait for changes in this turn, while pods wait for their rules.
func (l *loop) pause() time.Duration {
	if l.turns++; l.turns%pollTurns == 0 {
		return pollInterval
	}
	return 1
}

// answering runs the work of renderers, and meanwhile builds requested snapshots.
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

// answer builds a snapshot if a caller waits for one.
func (l *loop) answer() {
	if l.wanted.Swap(false) {
		l.driver.engine.buildSnapshot()
	}
}

// want requests a snapshot.
func (l *loop) want() {
	l.wanted.Store(true)
	select {
	case l.asked <- struct{}{}:
	default: // there is a token
	}
	l.wake()
}

// prompt requests a commit of every renderer.
func (l *loop) prompt() {
	l.prompted.Store(true)
	l.wake()
}

// wake wakes the loop; the caller has already recorded its request.
func (l *loop) wake() {
	if interrupt := l.interrupt.Load(); interrupt != nil {
		(*interrupt)()
	}
}

// atWork returns the start of the loop's current work, or the zero time while it waits.
func (l *loop) atWork() time.Time {
	if since := l.busy.Load(); since != nil {
		return *since
	}
	return time.Time{}
}
