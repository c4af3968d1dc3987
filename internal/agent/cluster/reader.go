package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// Store is the store that the state is in.
type Store interface {
	List(ctx context.Context, prefix string) ([]model.Entry, int64, error)
	Status(ctx context.Context) (kvstore.Status, error)
	// AskProgress asks for the revision that watches have got to.
	AskProgress(ctx context.Context)
}

// Reader reads the state of the cluster. Any goroutine may use it.
type Reader struct {
	Store    Store
	Prefix   string
	Watcher  *datasync.Watcher
	Enforces func(ctx context.Context, revision int64) error // waits until a revision is enforced
}

// State reads the whole state from the store.
func (r *Reader) State(ctx context.Context) (State, error) {
	entries, _, err := r.Store.List(ctx, model.Root(r.Prefix))
	if err != nil {
		return State{}, fmt.Errorf("read the state: %w", err)
	}
	return Decode(r.Prefix, entries, r.Watcher.InForce), nil
}

// Latest returns the whole state from the store, or, when it does not answer soon, the one that is
// in force, and why.
func (r *Reader) Latest(ctx context.Context) (s State, stale error) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	if s, stale = r.State(ctx); stale == nil {
		return s, nil
	}
	known := r.Watcher.Known()
	slices.SortFunc(known, func(a, b model.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return Decode(r.Prefix, known, NoneInForce), stale
}

// Enforced waits until what is in the store now is enforced.
func (r *Reader) Enforced(ctx context.Context) error {
	s, err := r.Store.Status(ctx)
	if err != nil {
		return err
	}
	revision, err := r.read(ctx, s.Revision)
	if err != nil {
		return err
	}
	return r.Enforces(ctx, revision)
}

// read waits until the watcher has read the store up to a revision, and returns the one that
// the pipeline gets to by that. The newest revisions of a store are most often none that
// changed policy, since the nodes report there: only an answer to a question for progress
// brings the watcher to them.
func (r *Reader) read(ctx context.Context, revision int64) (int64, error) {
	for r.Watcher.Status().Revision < revision {
		r.Store.AskProgress(ctx)
		moment, cancel := context.WithTimeout(ctx, askEvery)
		_, err := r.Watcher.Await(moment, revision)
		cancel()
		if ctx.Err() != nil || err != nil && moment.Err() == nil {
			return 0, err
		}
	}
	return r.Watcher.Await(ctx, revision)
}

const (
	// soon is how long a store may take that is asked although the node may have failed.
	soon = 3 * time.Second
	// askEvery is how often it asks for progress meanwhile: a store leaves a question
	// unanswered while a watch lags behind.
	askEvery = 100 * time.Millisecond
)
