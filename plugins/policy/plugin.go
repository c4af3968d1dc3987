package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// Errors of the life cycle.
var (
	// ErrNotRunning says that the event loop was not started or has stopped.
	ErrNotRunning = errors.New("the policy plugin is not running")
	// ErrStuck says that Close did not wait any longer for the event loop.
	ErrStuck = errors.New("the event loop of the policy plugin did not stop in time")
	// ErrHasSource says that changes come from a Source, not by Apply.
	ErrHasSource = errors.New("the policy plugin has a source, so changes cannot be applied to it")
)

// closeTimeout bounds Close; renderers that ignore the end of their context are
// left behind.
const closeTimeout = 4 * time.Second

// Plugin enforces policy for the pods of one node. Init, AfterInit and Close are
// called in this order by one goroutine; the other methods are for everybody,
// between Init and Close. A Plugin lives once: to start again, make another one.
// Nothing is shared between Plugins, so a process may have any number of them.
type Plugin struct {
	Deps

	board  board // for everybody
	feed   *feed // when there is no Source
	loop   loop
	cancel context.CancelFunc // stops the loop; nil before AfterInit
	done   chan struct{}      // closed when the loop has stopped
}

// New returns a Plugin; nothing happens before Init. Fields of Deps that are set after
// New and before Init count as well: agents that fill in the dependencies of their
// plugins do so.
func New(d Deps) *Plugin { return &Plugin{Deps: d} }

// String returns the name of the plugin.
func (p *Plugin) String() string { return p.name() }

// Init checks the dependencies and wires the layers. It waits for nothing and starts
// nothing, so a Plugin that was only initialised needs no Close.
func (p *Plugin) Init() error {
	if p.done != nil {
		return fmt.Errorf("plugin %s is initialised already", p)
	}
	driver, err := newDriver(&p.Deps, &p.board, p.loop.answering)
	if err != nil {
		return err
	}
	if p.Source == nil {
		p.feed = newFeed()
		p.Source = p.feed
	}
	p.loop.source, p.loop.driver, p.loop.asked = p.Source, driver, make(chan struct{}, 1)
	p.done = make(chan struct{})
	return nil
}

// AfterInit starts the event loop and does not wait for anything.
func (p *Plugin) AfterInit() error {
	if p.done == nil || p.cancel != nil {
		return fmt.Errorf("plugin %s must be initialised once before it is started, and started once", p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		p.loop.run(ctx)
	}()
	return nil
}

// Close stops the event loop and waits for it, for less than 5 s. What renderers
// have installed stays installed. It may be called at any time and more than once.
func (p *Plugin) Close() error {
	if p.cancel == nil {
		return nil
	}
	p.cancel()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-p.done:
		return nil
	case <-timeout.C:
		return fmt.Errorf("close plugin %s: %w", p, ErrStuck)
	}
}

// Prompt asks the event loop to let every renderer commit, although no state has
// changed: something in a stack did. It never blocks, and may be called at any time;
// before AfterInit it takes effect then.
func (p *Plugin) Prompt() { p.loop.prompt() }

// Status returns how far the plugin is. It never blocks.
func (p *Plugin) Status() Status { return p.board.Status() }

// Watch returns how far the plugin is, and what is closed when that has changed.
func (p *Plugin) Watch() (Status, <-chan struct{}) { return p.board.Watch() }

// AtWork returns since when the event loop has been at work without looking for changes; zero while
// it waits for some. It never blocks.
func (p *Plugin) AtWork() time.Time { return p.loop.atWork() }

// Apply brings changes down to the renderers and waits until all of them enforce
// them. It is for plugins without a Source, such as tools that have no store. The
// first changes should be a resync. When ctx ends before, the changes are not lost.
func (p *Plugin) Apply(ctx context.Context, changes model.Changes) error {
	switch {
	case p.done == nil:
		return ErrNotRunning
	case p.feed == nil:
		return ErrHasSource
	}
	return p.WaitIdle(ctx, p.feed.push(changes))
}

// WaitIdle waits until the changes up to a revision of the store are enforced by
// every renderer, and no renderer has anything left to do. It does not wait for what
// only a further change can bring about: when the revision was tried and every renderer
// that fails refused, its error wraps theirs.
func (p *Plugin) WaitIdle(ctx context.Context, revision int64) error {
	if p.done == nil {
		return ErrNotRunning
	}
	for {
		now := p.board.status.Load()
		if now.status.Transactions > 0 && now.status.Revision >= revision && now.status.InSync() {
			return nil
		}
		if now.refused != nil && now.status.Seen >= revision {
			return fmt.Errorf("revision %d is not enforced, %d is: %w", revision, now.status.Revision, now.refused)
		}
		if err := p.next(ctx, now); err != nil {
			return fmt.Errorf("wait for revision %d, %d is enforced%s: %w", revision, now.status.Revision, now.status.failing(), err)
		}
	}
}

// Snapshot returns the present state. The event loop builds it, unless nothing has changed since
// it built the last one. It waits for no commit: while one runs, the state is the one that is to
// be enforced, and the status says since when.
func (p *Plugin) Snapshot(ctx context.Context) (*Snapshot, error) {
	if p.done == nil {
		return nil, ErrNotRunning
	}
	for {
		now := p.board.status.Load()
		if s := p.board.snapshot.Load(); s != nil && s.of == now.of {
			return s, nil
		}
		p.loop.want()
		if err := p.next(ctx, now); err != nil {
			return nil, fmt.Errorf("take a snapshot: %w", err)
		}
	}
}

// next waits until there is a newer status.
func (p *Plugin) next(ctx context.Context, now *published) error {
	select {
	case <-now.next:
		return nil
	case <-p.done:
		return ErrNotRunning
	case <-ctx.Done():
		return ctx.Err()
	}
}
