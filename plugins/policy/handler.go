package policy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// Handler is the policy plugin for an agent that has a main loop of its own, whose
// events it handles: the whole state first, then what changes. Where a Plugin has an
// event loop, a Handler has none. It starts no goroutine and sets no timer; everything
// happens within its methods, so also what renderers do: a renderer whose stack is a
// transaction of the host's writes into the one that is open.
//
// It has the life cycle of a Plugin. Methods may be called by any goroutine, and
// proceed one after the other. Observer functions must not call the Handler.
type Handler struct {
	mu     sync.Mutex
	deps   Deps
	board  board
	driver *driver
	state  handlerState
	events int64 // that were delivered
}

type handlerState uint8

const (
	handlerNew handlerState = iota
	handlerRunning
	handlerClosed
)

// NewHandler returns a Handler; nothing happens before Init. The Source must be nil:
// the host delivers. MinBackoff and MaxBackoff bound what RetryAt says.
func NewHandler(d Deps) *Handler { return &Handler{deps: d} }

// String returns the name of the plugin.
func (h *Handler) String() string { return h.deps.name() }

// Init checks the dependencies and wires the layers.
func (h *Handler) Init() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.state != handlerNew:
		return fmt.Errorf("plugin %s is initialised already", h)
	case h.deps.Source != nil:
		return fmt.Errorf("plugin %s: a host that delivers events has no source", h)
	}
	driver, err := newDriver(&h.deps, &h.board, inline)
	if err != nil {
		return err
	}
	h.driver, h.state = driver, handlerRunning
	return nil
}

// inline runs the work of renderers where it is.
func inline(ctx context.Context, work func(context.Context) error) error { return work(ctx) }

// AfterInit does nothing: the host delivers when it is ready to.
func (h *Handler) AfterInit() error { return nil }

// Close ends the Handler, once the event that is being handled is done. What renderers
// have installed stays installed. It may be called at any time and more than once.
func (h *Handler) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = handlerClosed
	return nil
}

// Resync takes the whole state: an object that it does not name does not exist. The
// first Resync is one for the renderers as well, which adopt or remove what they find
// of an earlier run; a later one costs what it changes.
//
// The error joins those of the renderers that failed, each with its name. The state is
// taken nevertheless and must not be delivered again: see Retry. Values are kept and
// must not be changed afterwards.
func (h *Handler) Resync(ctx context.Context, state []model.Delta) error {
	return h.handle(ctx, model.Changes{Resync: true, Deltas: state})
}

// Update takes changes, at most one of an object; a nil Value is a deletion. They may
// come before the first Resync, and about errors and values it is like it.
func (h *Handler) Update(ctx context.Context, changes []model.Delta) error {
	return h.handle(ctx, model.Changes{Deltas: changes})
}

func (h *Handler) handle(ctx context.Context, changes model.Changes) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != handlerRunning {
		return ErrNotRunning
	}
	h.events++
	changes.Revision = h.events
	return h.whole(ctx, h.driver.apply(ctx, changes, false))
}

// whole goes on until no pod waits for its rules. The error is that of the newest commit, which
// tries again what failed before.
func (h *Handler) whole(ctx context.Context, err error) error {
	for h.driver.engine.waiting() && ctx.Err() == nil {
		err = h.driver.apply(ctx, model.Changes{}, false)
	}
	return err
}

// Retry lets the renderers that failed try again. An Update does that as well, so a
// host may also just wait for the next event, if there is sure to be one soon.
func (h *Handler) Retry(ctx context.Context) error {
	return h.again(ctx, (*driver).retry)
}

// Recommit lets every renderer look again at what it has installed, because something
// in its stack has changed: what a Plugin does when it is prompted. Before the first
// Resync there is nothing that could be installed; renderers block the interfaces of pods
// then, where they can and are asked to (renderer.Quarantiner).
func (h *Handler) Recommit(ctx context.Context) error {
	return h.again(ctx, (*driver).recommit)
}

func (h *Handler) again(ctx context.Context, commit func(*driver, context.Context) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.state != handlerRunning:
		return ErrNotRunning
	case h.driver.engine.flushed && !h.driver.engine.resynced:
		return ctx.Err()
	}
	return h.whole(ctx, commit(h.driver, ctx))
}

// RetryAt says when Retry should be called, after pauses that double; zero when
// nothing has failed, and when every renderer that failed refused (renderer.ErrRefused):
// only a change mends that.
func (h *Handler) RetryAt() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.driver == nil:
		return time.Time{}
	case h.driver.engine.waiting() && h.driver.engine.retries.at.IsZero(): // a context has ended meanwhile
		return time.Now()
	}
	return h.driver.engine.retries.at
}

// Status returns how far the plugin is; its revisions count events. It never blocks.
func (h *Handler) Status() Status { return h.board.Status() }

// Snapshot returns the present state. It is built unless nothing has changed since the
// last one was.
func (h *Handler) Snapshot() (*Snapshot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != handlerRunning {
		return nil, fmt.Errorf("take a snapshot: %w", ErrNotRunning)
	}
	if s := h.board.snapshot.Load(); s == nil || s.of != h.driver.engine.state {
		h.driver.engine.buildSnapshot()
	}
	return h.board.snapshot.Load(), nil
}
