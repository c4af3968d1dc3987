package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// Errors of the life cycle.
var (
	// ErrNotRunning reports that the event loop was not started or has stopped.
	ErrNotRunning = errors.New("the policy plugin is not running")
	// ErrStuck reports that Close stopped waiting for the event loop.
	ErrStuck = errors.New("the event loop of the policy plugin did not stop in time")
	// ErrHasSource reports that changes come from a Source, not through Apply.
	ErrHasSource = errors.New("the policy plugin has a source, so changes cannot be applied to it")
)

// closeTimeout bounds Close. Renderers that ignore the end of their context are abandoned.
const closeTimeout = 4 * time.Second

// Plugin enforces policy for the pods of one node. One goroutine calls Init, AfterInit and Close in
// this order; any goroutine may call the other methods between Init and Close. A Plugin cannot be
// restarted: create another one. Plugins share nothing, so a process may have any number of them.
type Plugin struct {
	Deps

	board  board // for all goroutines
	feed   *feed // if there is no Source
	loop   loop
	cancel context.CancelFunc // stops the loop; nil before AfterInit
	done   chan struct{}      // closed when the loop has stopped and no snapshot is built
}

// New returns a Plugin; nothing happens before Init. Fields of Deps may also be set between New and
// Init: agents that inject the dependencies of their plugins do so.
func New(d Deps) *Plugin { return &Plugin{Deps: d} }

// String returns the name of the plugin.
func (p *Plugin) String() string { return p.name() }

// Init validates the dependencies and connects the layers. It neither blocks nor starts anything,
// so a Plugin that was only initialized needs no Close.
func (p *Plugin) Init() error {
	if p.done != nil {
		return fmt.Errorf("plugin %s is initialised already", p)
	}
	e, err := newEngine(time.Now(), &p.Deps, &p.board, p.loop.look)
	if err != nil {
		return err
	}
	if p.Source == nil {
		p.feed = newFeed()
		p.Source = p.feed
	}
	p.loop.source, p.loop.engine, p.loop.asked = p.Source, e, make(chan func(*engine))
	p.done = make(chan struct{})
	return nil
}

// AfterInit starts the event loop, and a goroutine for each renderer, and returns at once.
func (p *Plugin) AfterInit() error {
	if p.done == nil || p.cancel != nil {
		return fmt.Errorf("plugin %s must be initialised once before it is started, and started once", p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		var others sync.WaitGroup
		others.Go(func() { p.loop.answer(ctx) })
		for _, m := range p.loop.engine.mailboxes {
			others.Go(func() { m.run(ctx) })
		}
		p.loop.run(ctx)
		others.Wait()
		p.loop.engine.closing = true
		p.loop.engine.collect(time.Now(), false)
	}()
	return nil
}

// Close stops the event loop and waits for it, for less than 5 s. The installed rules stay
// installed. It may be called at any time and more than once.
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

// Prompt makes every renderer look again although no state has changed, after a change in a dataplane.
// It never blocks, and may be called at any time; a call before AfterInit takes effect after it.
func (p *Plugin) Prompt() { p.loop.prompt() }

// Status returns the current status. It never blocks.
func (p *Plugin) Status() Status {
	s, _ := p.Watch()
	return s
}

// Watch returns the current status, and a channel that is closed when the status has changed.
func (p *Plugin) Watch() (Status, <-chan struct{}) {
	s, next := p.board.Watch()
	if p.done == nil {
		return s, next
	}
	s.BusySince, s.Renderers = time.Time{}, slices.Clone(s.Renderers)
	for i, m := range p.loop.engine.mailboxes {
		r := &s.Renderers[i]
		if since := m.busySince(); !since.IsZero() { // else what has ended may not be collected yet
			r.BusySince = since
		}
		s.BusySince = earliest(s.BusySince, r.BusySince)
	}
	return s, next
}

// AtWork returns since when the event loop has been working without looking for changes, or the
// oldest call of a renderer goes on; it is zero while there is neither. It never blocks.
func (p *Plugin) AtWork() time.Time {
	return earliest(p.loop.atWork(), p.Status().BusySince)
}

// Apply passes changes down to the renderers and waits until all of them enforce the changes. It is
// for plugins without a Source, such as tools without a store. The first changes must be a
// resync. If ctx ends earlier, the changes are not lost.
func (p *Plugin) Apply(ctx context.Context, changes model.Changes) error {
	switch {
	case p.done == nil:
		return ErrNotRunning
	case p.feed == nil:
		return ErrHasSource
	}
	revision, err := p.feed.push(changes)
	if err != nil {
		return fmt.Errorf("plugin %s: %w", p, err)
	}
	return p.WaitIdle(ctx, revision)
}

// WaitIdle waits until every renderer enforces the changes up to a revision of the store and has no
// work left. It does not wait for what only another change can solve: if the revision was tried and
// every failed renderer refused it, the returned error wraps theirs.
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

// Snapshot returns the current state. It is built between the steps of the event loop, unless
// nothing has changed since the last one. It does not wait for a running Apply: during one the
// snapshot shows the state that is to be enforced, and the status shows when the Apply began.
func (p *Plugin) Snapshot(ctx context.Context) (*Snapshot, error) {
	if p.done == nil {
		return nil, ErrNotRunning
	}
	if s := p.board.snapshot.Load(); s != nil && s.number >= p.board.status.Load().number {
		return s, nil // also while the loop is at work
	}
	return p.ask(ctx, (*engine).buildSnapshot)
}

// Local returns the part of a snapshot that is about this node: its enforced pods with their lists,
// and the sets, without their members. It costs what the node has, however large the cluster is.
func (p *Plugin) Local(ctx context.Context) (*Snapshot, error) {
	return p.ask(ctx, func(e *engine) *Snapshot { return e.local() })
}

// ask has the engine make a snapshot between the steps of the event loop.
func (p *Plugin) ask(ctx context.Context, snapshot func(*engine) *Snapshot) (*Snapshot, error) {
	if p.done == nil {
		return nil, ErrNotRunning
	}
	answer := make(chan *Snapshot, 1)
	asked := p.loop.asked
	for {
		select {
		case asked <- func(e *engine) { answer <- snapshot(e) }:
			asked = nil
		case s := <-answer:
			return s, nil
		case <-p.done:
			return nil, fmt.Errorf("take a snapshot: %w", ErrNotRunning)
		case <-ctx.Done():
			return nil, fmt.Errorf("take a snapshot: %w", ctx.Err())
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
