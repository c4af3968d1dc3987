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

// loop is the event loop: it owns the engine and waits for no renderer. Any goroutine may call
// prompt, look and atWork.
type loop struct {
	source Source
	engine *engine
	mu     sync.Mutex // of the engine; free while the loop waits

	asked    chan func(*engine) // what to call between two steps
	prompted atomic.Bool        // Prompt was called
	worked   atomic.Bool        // a renderer has done work
	// start of the current work; nil while the loop waits
	busy      atomic.Pointer[time.Time]
	interrupt atomic.Pointer[context.CancelFunc] // wakes the loop
}

// run is the loop. It ends with ctx.
func (l *loop) run(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.busy.Store(nil)
	for ended := false; ; {
		l.busy.Store(nil)
		changes, err := l.receive(ctx, ended)
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		l.busy.Store(&now)
		l.worked.Store(false)
		if l.prompted.Swap(false) {
			l.engine.prompt(now)
		}
		switch {
		case err == nil:
			l.engine.apply(now, changes)
			continue
		case !errors.Is(err, errInterrupted):
			ended = true
			l.engine.sourceEnded(err)
		}
		l.engine.collect(now, false)
	}
}

// receive waits for changes, until ctx ends or there is something else to do. A source that has
// ended yields none.
func (l *loop) receive(ctx context.Context, ended bool) (model.Changes, error) {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	// Who has something to do sets a flag first and then calls interrupt. Here the order is reversed,
	// so one of the two sees the other.
	l.interrupt.Store(&cancel)
	if l.prompted.Load() || l.worked.Load() {
		cancel()
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

// answer calls what was asked for between two steps, until ctx ends.
func (l *loop) answer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-l.asked:
			l.mu.Lock()
			f(l.engine)
			l.mu.Unlock()
		}
	}
}

// prompt makes the loop prompt the renderers.
func (l *loop) prompt() {
	l.prompted.Store(true)
	l.wake()
}

// look makes the loop collect what renderers have done.
func (l *loop) look() {
	l.worked.Store(true)
	l.wake()
}

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
