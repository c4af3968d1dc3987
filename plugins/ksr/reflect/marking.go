package reflect

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// markerEvery is the interval at which the counts of the marker are updated. Deletions lower them
// at once, because they promise a minimum.
const markerEvery = 10 * time.Second

// slackPart is the fraction of a count by which a deletion lowers the count of the marker in
// addition, so that not every deletion in a large cluster writes the marker.
const slackPart = 32

// ErrOtherCluster is the error of a Mirror whose store holds the state of another cluster.
var ErrOtherCluster = errors.New("the store holds the state of another cluster")

// Identity is what a Mirror writes about itself into the completeness marker.
type Identity struct {
	Cluster string // identifies the cluster, see model.Marker
	Writer  string // program and version
	Level   int    // that readers need, see model.Level
	// Accept makes the first marker accept the state of the source, whatever the store held before:
	// another cluster, or more objects.
	Accept bool
}

// marking decides when the marker is written, and with which content. It takes no lock.
type marking struct {
	Identity
	stored *model.Marker // in the store; nil if there is none
	// While due is not zero, a comparison with the store is not marked yet. It ended at due, and
	// read the store at revision.
	due      time.Time
	revision int64
	wrote    time.Time // when the marker was last written
	// deleted reports whether objects were deleted since, or with it. A deletion leaves nothing in
	// the store that is newer than what it deleted; the next marker does.
	deleted bool
}

// identify sets the identity. A request to accept stays pending until it was written.
func (k *marking) identify(id Identity) {
	id.Accept = id.Accept || k.Accept
	k.Identity = id
}

// read takes over the marker in the store. It returns an error for the marker of another cluster:
// two clusters would undo each other's writes.
func (k *marking) read(stored *model.Marker) error {
	if stored != nil && stored.Cluster != k.Cluster && !k.Accept {
		return fmt.Errorf("reflect: %w: it is of %s, this is %s; see --etcd-prefix, or run sluice-ksr once with --accept-cluster",
			ErrOtherCluster, model.Quoted(stored.Cluster), model.Quoted(k.Cluster))
	}
	k.stored = stored
	return nil
}

// isForeign reports whether the store holds the marker of another cluster, which was accepted.
func (k *marking) isForeign() bool { return k.stored != nil && k.stored.Cluster != k.Cluster }

// compared records that the store was compared with the complete state at a revision, and that this
// must be marked.
func (k *marking) compared(revision int64, now time.Time) { k.due, k.revision = now, revision }

// mark is why the marker is written.
type mark int

const (
	markNothing  mark = iota
	markCounts        // the batch makes them wrong, or they are old
	markLevel         // readers need a higher level for what is written next
	markCompared      // the batch completes what a comparison found
)

// raises reports whether the store has a marker of a lower level. A marker of the higher level is
// written on its own, before the objects that need it: a batch may be several transactions.
func (k *marking) raises() bool { return k.stored != nil && k.stored.Level < k.Level }

// wants returns whether the marker must be written with a batch, after its puts and before its
// deletions. left is how much is still pending; after is what the store holds after the batch.
func (k *marking) wants(b writes, left int, after model.Counts, now time.Time) mark {
	switch {
	case !k.due.IsZero() && len(b.deletes) == 0 && len(b.puts) == left:
		return markCompared
	case k.stored == nil:
		return markNothing
	case after.Lacks(k.stored.Counts) != "", now.Sub(k.wrote) >= markerEvery && (k.deleted || !after.Equal(k.stored.Counts)):
		return markCounts
	}
	return markNothing
}

// next returns the marker for a batch.
func (k *marking) next(b writes, after model.Counts, why mark, now time.Time) *model.Marker {
	next := model.Marker{Cluster: k.Cluster, Counts: after, Revision: k.revision, Writer: k.Writer, Level: k.Level}
	if k.stored != nil {
		next.Level = max(k.Level, k.stored.Level)
		next.Generation, next.Revision, next.Accepted = k.stored.Generation, k.stored.Revision, k.stored.Accepted
	}
	if why == markCompared {
		next.Generation, next.Revision = model.NextGeneration(next.Generation, now.UnixMilli()), k.revision
		next.Level = k.Level // nothing is left of a writer of another one
		if k.Accept {
			next.Accepted = next.Generation
		}
	}
	if len(b.deletes) > 0 {
		for kind, n := range next.Counts {
			next.Counts[kind] = n - n/slackPart
		}
	}
	return &next
}

// written records that the store holds what was written; marker is nil if it was not among that.
func (k *marking) written(b writes, marker *model.Marker, why mark, now time.Time) {
	if marker != nil {
		k.stored, k.wrote, k.deleted = marker, now, false
	}
	k.deleted = k.deleted || len(b.deletes) > 0
	if marker != nil && why == markCompared {
		k.due, k.Accept = time.Time{}, false
	}
}
