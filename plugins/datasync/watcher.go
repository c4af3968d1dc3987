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

// Store is where the reflected state is read from.
type Store = follow.Store

// ErrStopped says that Run has returned and that nothing is pending any more.
var ErrStopped = errors.New("the watcher of the store has stopped")

// Config of a Watcher. Store and Log are needed.
type Config struct {
	Store  Store
	Prefix string // of the cluster in the store; model.DefaultPrefix when empty
	Log    *slog.Logger
	// OnProblem hears of every key whose value cannot be used, once per value,
	// from the goroutine of Run. It must not block. It may be nil.
	OnProblem func(api.Problem)
	// MinBackoff and MaxBackoff bound the time between attempts to read the store
	// after a failure; 50 ms and 5 s when zero.
	MinBackoff, MaxBackoff time.Duration
	// File keeps the last state over restarts; none when empty. It is read only when
	// the store cannot be, and what it holds is then in force until the store can. It
	// is written at most every SaveEvery, 30 s when zero, and when Run ends.
	File      string
	SaveEvery time.Duration
	// Needed is closed when the file is needed at once, see follow.Config. Nil reads it after the
	// store has failed.
	Needed <-chan struct{}
}

const defaultSaveEvery = 30 * time.Second

// Watcher follows the store. Run and Next each belong to one goroutine; Status is
// for everybody.
type Watcher struct {
	cfg     Config
	wake    chan struct{} // holds a token when something may be pending
	done    chan struct{} // closed when Run returns
	started atomic.Bool
	status  atomic.Pointer[published]

	mu      sync.Mutex
	pending pending

	// What follows belongs to the goroutine of Run, or of deliver on its behalf, which
	// hold state while they change the decoder.
	state   sync.Mutex // for the goroutine that saves
	unsaved bool       // the decoder knows what the store had and the file has not
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
		aside:  map[string]bool{},
	}
	w.proof = proof{prefix: cfg.Prefix, holds: w.decoder.holds}
	w.publish()
	return w
}

// Next waits until changes are pending and takes all of them. The first ones are
// a resync. The slice is the caller's, the values are shared and immutable. It
// returns the context's error, or ErrStopped after Run.
func (w *Watcher) Next(ctx context.Context) (model.Changes, error) {
	for {
		if changes, ok := w.take(); ok {
			return changes, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return model.Changes{}, ctx.Err()
		case <-w.done:
			if changes, ok := w.take(); ok {
				return changes, nil
			}
			return model.Changes{}, ErrStopped
		}
	}
}

func (w *Watcher) take() (model.Changes, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending.empty() {
		return model.Changes{}, false
	}
	return w.pending.take(), true
}

// Status returns how it goes. It never blocks.
func (w *Watcher) Status() Status { return w.status.Load().Status }

// InForce returns the value of a key that is in force instead of the one in the store, which cannot
// be used; false where there is none.
func (w *Watcher) InForce(key string) ([]byte, bool) {
	w.state.Lock()
	defer w.state.Unlock()
	if _, bad := w.decoder.bad[key]; !bad {
		return nil, false
	}
	value, ok := w.decoder.known[key]
	return value, ok
}

// Known returns the state that is in force, in no order: what the store held last, and of what
// cannot be used the value before. It does not ask the store.
func (w *Watcher) Known() (out []model.Entry) {
	w.state.Lock()
	defer w.state.Unlock()
	for key, value := range w.decoder.known {
		out = append(out, model.Entry{Key: key, Value: value})
	}
	return out
}

// Await waits until the store was read up to a revision, and returns the revision that the
// consumer is at once it has dealt with all of that: it does not hear of revisions that
// changed nothing. A watch that is idle comes to these when the store is asked for progress.
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

// published is a status and the way to hear of the next one.
type published struct {
	Status
	next chan struct{} // closed when there is a newer one
}

// publish makes the draft visible, with what the decoder and the proof know.
func (w *Watcher) publish() {
	s := w.draft
	s.Values = w.decoder.values()
	s.Marker, s.Incomplete = w.proof.last, w.proof.refused
	if old := w.status.Swap(&published{s, make(chan struct{})}); old != nil {
		close(old.next)
	}
}

// problem passes on what is wrong with a key.
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
