package policy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// Handler is the policy plugin for an agent with a main loop of its own: the agent passes it the
// complete state first, then changes. Unlike a Plugin, a Handler has no event loop. It starts no
// goroutine and sets no timer. All work happens within its methods, including that of renderers, so
// a renderer can write into an open transaction of the host.
//
// It has the life cycle of a Plugin. Methods may be called from any goroutine; they run one at a
// time. Observer functions must not call the Handler.
type Handler struct {
	mu     sync.Mutex
	deps   Deps
	board  board
	engine *engine
	state  handlerState
	events int64 // number of delivered events
}

type handlerState uint8

const (
	handlerNew handlerState = iota
	handlerRunning
	handlerClosed
)

// NewHandler returns a Handler; nothing happens before Init. The Source must be nil: the host
// delivers the changes. MinBackoff and MaxBackoff bound the delays behind RetryAt.
func NewHandler(d Deps) *Handler { return &Handler{deps: d} }

// String returns the name of the plugin.
func (h *Handler) String() string { return h.deps.name() }

// Init validates the dependencies and connects the layers.
func (h *Handler) Init() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.state != handlerNew:
		return fmt.Errorf("plugin %s is initialised already", h)
	case h.deps.Source != nil:
		return fmt.Errorf("plugin %s: a host that delivers events has no source", h)
	}
	engine, err := newEngine(time.Now(), &h.deps, &h.board, func() {})
	if err != nil {
		return err
	}
	h.engine, h.state = engine, handlerRunning
	return nil
}

// AfterInit does nothing: the host decides when to deliver.
func (h *Handler) AfterInit() error { return nil }

// Close closes the Handler after the event in progress. The installed rules stay installed. It may
// be called at any time and more than once.
func (h *Handler) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = handlerClosed
	return nil
}

// Resync passes the complete state: objects that are not in it do not exist. The first Resync also
// resyncs the renderers, which adopt or remove the rules of an earlier run; later ones send only
// differences.
//
// The error joins those of the failed renderers, each with its name. The state is accepted
// nevertheless and must not be delivered again: see Retry. Values are kept and must not be modified
// afterwards.
func (h *Handler) Resync(ctx context.Context, state []model.Delta) error {
	return h.handle(ctx, model.Changes{Resync: true, Deltas: state})
}

// Update passes changes, at most one per object; a nil Value is a deletion. What comes before the
// first Resync is enforced with it: until then the dataplane keeps the rules of an earlier run.
// Errors and values are treated as by Resync.
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
	h.engine.apply(time.Now(), changes)
	h.retryFailed()
	return h.work(ctx)
}

// work has the renderers do what is due. It returns their errors, also earlier ones.
func (h *Handler) work(ctx context.Context) error {
	for _, m := range h.engine.mailboxes {
		for m.work(ctx) {
		}
	}
	h.engine.collect(time.Now(), false)
	return h.engine.err()
}

func (h *Handler) retryFailed() {
	for _, m := range h.engine.mailboxes {
		m.retry(time.Now())
	}
}

// Retry lets the failed renderers try again. Update does so, too, so a host may wait for the next
// event if one is sure to come soon.
func (h *Handler) Retry(ctx context.Context) error { return h.again(ctx, h.retryFailed) }

// Reapply makes every renderer check again what it has installed, after a change in its dataplane:
// a prompted Plugin does the same. Before the first Resync nothing can be installed; renderers then
// block the interfaces of pods where they can and are configured to (renderer.Quarantiner).
func (h *Handler) Reapply(ctx context.Context) error {
	return h.again(ctx, func() { h.engine.prompt(time.Now()) })
}

func (h *Handler) again(ctx context.Context, ask func()) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != handlerRunning {
		return ErrNotRunning
	}
	ask()
	return h.work(ctx)
}

// RetryAt returns when to call Retry; the delays double. It returns the zero time if nothing has
// failed, or if every failed renderer refused the state (renderer.ErrRefused), which only a change
// can solve.
func (h *Handler) RetryAt() (at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.engine == nil {
		return time.Time{}
	}
	for _, m := range h.engine.mailboxes {
		at = earliest(at, m.nextRetry())
	}
	return at
}

// Status returns the current status; its revisions count events. It never blocks.
func (h *Handler) Status() Status { return h.board.Status() }

// Snapshot returns the current state. It reuses the last snapshot if nothing has changed since.
func (h *Handler) Snapshot() (*Snapshot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != handlerRunning {
		return nil, fmt.Errorf("take a snapshot: %w", ErrNotRunning)
	}
	return h.engine.buildSnapshot(), nil
}
