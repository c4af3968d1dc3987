package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// Store is the store that the state comes from. It is asked only how far it is.
type Store interface {
	Status(ctx context.Context) (kvstore.Status, error)
	// AskProgress asks for the revision that watches have got to.
	AskProgress(ctx context.Context)
}

// Reader reads the state of the cluster that the agent holds: what its watcher has read from the
// store, as the pipeline gets it. Any goroutine may use it.
//
// Each answer is as new as the store was at the call. Where the store does not answer soon, stale
// says why the state may lack changes.
type Reader struct {
	Store    Store
	Prefix   string
	Watcher  *datasync.Watcher
	Enforces func(ctx context.Context, revision int64) error // waits until a revision is enforced
}

// Whole returns the whole state.
func (r *Reader) Whole(ctx context.Context) (s State, stale error) {
	stale = r.catchUp(ctx)
	known := r.Watcher.Known()
	slices.SortFunc(known, func(a, b model.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return Decode(r.Prefix, known), stale
}

// AboutFlows returns the part of the state that decides about flows between two ends, as package
// expr reads them.
func (r *Reader) AboutFlows(ctx context.Context, src, dst string) (s State, stale error) {
	stale = r.catchUp(ctx)
	return newPart(r.Prefix, r.Watcher.Known()).aboutFlows(src, dst), stale
}

// AboutPod returns the part of the state that decides which policies select a pod, or name it as a
// peer.
func (r *Reader) AboutPod(ctx context.Context, id api.PodID) (s State, stale error) {
	stale = r.catchUp(ctx)
	return newPart(r.Prefix, r.Watcher.Known()).aboutPod(id), stale
}

// AboutPolicy returns a NetworkPolicy, or, with an empty namespace, all admin policies of the name.
func (r *Reader) AboutPolicy(ctx context.Context, namespace, name string) (s State, stale error) {
	stale = r.catchUp(ctx)
	return newPart(r.Prefix, r.Watcher.Known()).aboutPolicy(namespace, name), stale
}

// catchUp waits until the watcher has read what is in the store now.
func (r *Reader) catchUp(ctx context.Context) error {
	if s := r.Watcher.Status(); !s.Following && !s.Since.IsZero() && time.Since(s.Since) > soon {
		return fmt.Errorf("the agent does not follow the store: %s", cmp.Or(s.Incomplete, s.LastError, "it has not answered yet"))
	}
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	s, err := r.Store.Status(ctx)
	if err == nil {
		_, err = r.read(ctx, s.Revision)
	}
	return err
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
