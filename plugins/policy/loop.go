package policy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// errInterrupted reports that there is other work than waiting for changes.
var errInterrupted = errors.New("interrupted")

// loop is the event loop. Any goroutine may call prompt, wake, want and atWork.
type loop struct {
	source Source
	driver *driver
	mu     sync.Mutex // of the driver; free while the loop waits, and during the work of renderers

	asked    chan struct{} // holds a token if a caller may wait for a snapshot
	prompted atomic.Bool   // Prompt was called
	// start of the current work; nil while the loop waits
	busy      atomic.Pointer[time.Time]
	interrupt atomic.Pointer[context.CancelFunc] // wakes the loop
	turns     int                                // since the loop last waited
}

// run is the loop. It ends with ctx.
func (l *loop) run(ctx context.Context) {
	e, ended := l.driver.engine, false
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		l.busy.Store(nil)
		changes, err := l.receive(ctx, ended)
		l.busy.Store(new(time.Now()))
		switch { // errors are in the status, and retried
		case ctx.Err() != nil:
			_ = l.driver.run(ctx, e.join())
			return
		case err == nil:
			_ = l.apply(ctx, changes)
		case !errors.Is(err, errInterrupted):
			ended = true
			e.sourceEnded(err)
		case e.retries.due(time.Now()):
			_ = l.driver.retry(ctx)
		case e.waiting():
			_ = l.apply(ctx, model.Changes{}) // renderers go on
		}
		if l.prompted.Swap(false) {
			_ = l.driver.recommit(ctx)
		}
	}
}

// apply passes changes down to the renderers. The step also answers a prompt that came before the
// renderers start; a later prompt gets a step of its own.
func (l *loop) apply(ctx context.Context, changes model.Changes) error {
	prompted := l.driver.engine.answers(changes) && l.prompted.Swap(false)
	return l.driver.apply(ctx, changes, prompted)
}

// While renderers have not done all of their work the event loop only takes the changes that are
// there. After so many turns it waits for pollInterval, so that others get the processor.
const (
	pollTurns    = 8
	pollInterval = time.Millisecond
)

// receive waits for changes until ctx ends or a retry is due, and not for long while renderers have
// not done all of their work. A source that has ended yields none.
func (l *loop) receive(ctx context.Context, ended bool) (model.Changes, error) {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	// A requester sets prompted first and then calls interrupt. So does a renderer that has done
	// its work. Here the order is reversed, so one of the two sees the other.
	l.interrupt.Store(&cancel)
	if l.prompted.Load() {
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
	l.mu.Unlock()
	defer l.mu.Lock()
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

// pause returns how long to wait for changes in this turn, while renderers have more work.
func (l *loop) pause() time.Duration {
	if l.turns++; l.turns%pollTurns == 0 {
		return pollInterval
	}
	return 1
}

// unlocked runs the work of renderers. Meanwhile snapshots can be built.
func (l *loop) unlocked(ctx context.Context, work func(context.Context) error) error {
	l.mu.Unlock()
	defer l.mu.Lock()
	return work(ctx)
}

// answer builds the requested snapshots until ctx ends.
func (l *loop) answer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.asked:
			l.mu.Lock()
			l.driver.engine.buildSnapshot()
			l.mu.Unlock()
		}
	}
}

// want requests a snapshot.
func (l *loop) want() {
	select {
	case l.asked <- struct{}{}:
	default: // there is a token
	}
}

// prompt requests a commit of every renderer.
func (l *loop) prompt() {
	l.prompted.Store(true)
	l.wake()
}

// wake makes the loop look at what there is besides changes, if it waits for changes.
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
