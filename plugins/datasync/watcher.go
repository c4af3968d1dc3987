package datasync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/follow"
)

// Store is the store with the reflected state.
type Store = follow.Store

// ErrStopped reports that Run has returned and nothing is pending any more.
var ErrStopped = errors.New("the watcher of the store has stopped")

// Config of a Watcher. Store and Log are needed.
type Config struct {
	Store  Store
	Prefix string // of the cluster in the store; empty means model.DefaultPrefix
	Log    *slog.Logger
	// OnProblem is called for every key whose value cannot be used, once per value, by the
	// goroutine of Run. It must not block. It may be nil.
	OnProblem func(api.Problem)
	// MinBackoff and MaxBackoff bound the delay between attempts to read the store after a failure;
	// zero means 50 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration
	// File saves the last state across restarts; empty for none. It is read only if the store
	// cannot be read; its content is then in force until the store can be read. It is written at
	// most every SaveEvery, zero means 30 s, and when Run ends.
	File      string
	SaveEvery time.Duration
	// Needed is closed when the file is needed at once, see follow.Config. With nil the file is
	// read after the store has failed.
	Needed <-chan struct{}
}

const defaultSaveEvery = 30 * time.Second

// Watcher follows the store. Run and Next each belong to one goroutine; any goroutine may call
// Status.
type Watcher struct {
	cfg     Config
	wake    chan struct{} // holds a token if something may be pending
	done    chan struct{} // closed when Run returns
	started atomic.Bool
	status  atomic.Pointer[published]

	mu      sync.Mutex
	pending pending

	// The following fields belong to the goroutine of Run, or of deliver on its behalf. They hold
	// state while they change the decoder.
	state   sync.Mutex // for the goroutine that saves
	unsaved bool       // the decoder has changes that are not in the file
	decoder decoder
	proof   proof
	draft   Status // the next Status
}

// New returns a Watcher; nothing happens before Run.
func New(cfg Config) *Watcher {
	cfg.Prefix = cmp.Or(cfg.Prefix, model.DefaultPrefix)
	cfg.SaveEvery = cmp.Or(cfg.SaveEvery, defaultSaveEvery)
	w := &Watcher{
		cfg:  cfg,
		wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	w.decoder = decoder{
		prefix: cfg.Prefix,
		marker: model.MarkerKey(cfg.Prefix),
		report: w.problem,
		known:  map[string][]byte{},
		bad:    map[string]unusual{},
	}
	w.proof = proof{prefix: cfg.Prefix, holds: w.decoder.holds, equals: w.decoder.equals}
	w.publish()
	return w
}

// Next waits until changes are pending and returns all of them. The first ones are a resync. The
// caller owns the slice; the values are shared and immutable. It returns the context's error, or
// ErrStopped after Run.
func (w *Watcher) Next(ctx context.Context) (model.Changes, error) {
	for {
		if changes, ok := w.takePending(); ok {
			return changes, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return model.Changes{}, ctx.Err()
		case <-w.done:
			if changes, ok := w.takePending(); ok {
				return changes, nil
			}
			return model.Changes{}, ErrStopped
		}
	}
}

func (w *Watcher) takePending() (model.Changes, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending.empty() {
		return model.Changes{}, false
	}
	return w.pending.takeAll(), true
}

// Status returns the current status. It never blocks.
func (w *Watcher) Status() Status { return w.status.Load().Status }

// Known returns the state that is in force, in no order: what the store held last, and of what
// cannot be used the value before. It does not ask the store.
func (w *Watcher) Known() []model.Entry {
	w.state.Lock()
	defer w.state.Unlock()
	out := make([]model.Entry, 0, len(w.decoder.known))
	for key, value := range w.decoder.known {
		out = append(out, model.Entry{Key: key, Value: value})
	}
	return out
}

// Await waits until the store was read up to a revision. It returns the revision that the consumer
// reaches by handling all changes up to then: the consumer does not see revisions that changed
// nothing. An idle watch reaches those only when progress is requested from the store.
func (w *Watcher) Await(ctx context.Context, revision int64) (int64, error) {
	for {
		now := w.status.Load()
		if now.Following && now.Revision >= revision {
			return now.Handed, nil
		}
		select {
		case <-now.next:
		case <-w.done:
			return 0, ErrStopped
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for revision %d, the store was read up to %d: %w", revision, now.Revision, ctx.Err())
		}
	}
}

// published is a status and a channel that announces the next one.
type published struct {
	Status
	next chan struct{} // closed when there is a newer one
}

// publish publishes the draft, with the state of the decoder and the proof.
func (w *Watcher) publish() {
	s := w.draft
	s.Values = w.decoder.values()
	s.Marker, s.Newest, s.Incomplete = w.proof.last, w.proof.newest, w.proof.refused
	if old := w.status.Swap(&published{s, make(chan struct{})}); old != nil {
		close(old.next)
	}
}

// problem reports the problem of a key.
func (w *Watcher) problem(p api.Problem) {
	w.cfg.Log.Warn("value in the store cannot be used", "key", p.Source, "object", p.Object, "reason", p.Reason)
	if w.cfg.OnProblem != nil {
		w.cfg.OnProblem(p)
	}
}

// signal wakes Next.
func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake
	}
}

// hand changes what is pending, and wakes the consumer if there is something.
func (w *Watcher) hand(change func(*pending)) {
	w.mu.Lock()
	change(&w.pending)
	empty := w.pending.empty()
	w.mu.Unlock()
	if !empty {
		w.signal()
	}
}
