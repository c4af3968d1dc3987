package ksr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// markerEvery is how often the counts of the marker are brought up to date. Deletions lower them
// at once, because they promise a minimum.
const markerEvery = 10 * time.Second

// slackPart is the part of a count by which a deletion lowers the count of the marker further, so
// that not every deletion in a large cluster writes it.
const slackPart = 32

// ErrOtherCluster says that the store holds the state of another cluster.
var ErrOtherCluster = errors.New("the store holds the state of another cluster")

// errNoCluster says that a Mirror runs without Identify.
var errNoCluster = errors.New("reflect: it is not known which cluster this is")

// errUnmarked ends the writing until the store was compared again.
var errUnmarked = errors.New("reflect: somebody deleted the completeness marker")

// Identity is what a Mirror says of itself in the completeness marker.
type Identity struct {
	Cluster string // which cluster it is, see model.Marker
	Writer  string // program and version
	// Accept has the first marker say that what the source has is meant, whatever the store held
	// before: another cluster, or more than there is now.
	Accept bool
}

// marking is what a Mirror knows of the marker.
type marking struct {
	Identity
	have   model.Counts  // objects of each kind that the store is known to hold
	stored *model.Marker // in the store; nil when there is none
	// Until due is zero again a comparison with the store is not marked yet. It ended at due,
	// and read the store at revision.
	due      time.Time
	revision int64
	wrote    time.Time // when the marker was written last
}

// Identify says which cluster is mirrored. It must be called before Run, and not while it runs.
func (m *Mirror) Identify(id Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id.Accept = id.Accept || m.marking.Accept // until it was written
	m.marking.Identity = id
}

// noteHave keeps the number of objects in the store right.
func (m *Mirror) noteHave(kind model.Kind, had, has bool) {
	switch {
	case kind == kindUnknown || had == has:
	case has:
		m.marking.have[kind]++
	default:
		m.marking.have[kind]--
	}
}

// readMarker takes over the marker that the store holds. That of another cluster is an error: two
// clusters would undo each other.
func (m *Mirror) readMarker(value []byte) error {
	stored, err := model.DecodeMarker(value)
	if err != nil && !errors.Is(err, model.ErrNoMarker) {
		m.log.Warn("completeness marker is written anew", "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := &m.marking
	if stored != nil && stored.Cluster != k.Cluster && !k.Accept {
		return fmt.Errorf("reflect: %w: it is of %s, this is %s; see --etcd-prefix, or run sluice-ksr once with --accept-cluster",
			ErrOtherCluster, model.Quoted(stored.Cluster), model.Quoted(k.Cluster))
	}
	k.stored = stored
	return nil
}

// compared notes that the store was compared with the whole state at a revision. It has to be
// marked when something differed, at the start, or when the marker is not there.
func (m *Mirror) compared(reason string, drift int, revision int64, now time.Time) {
	k := &m.marking
	if reason != sweepTimer || drift > 0 || k.stored == nil {
		k.due, k.revision = now, revision
	}
}

// mark is why the marker is written.
type mark int

const (
	markNothing  mark = iota
	markCounts        // they would not be true after the batch, or are old
	markCompared      // with the batch, all is written that a comparison found
)

// wantsMarker returns whether the marker is to be written with a batch, after what it puts and
// before what it deletes.
func (m *Mirror) wantsMarker(b writes, now time.Time) mark {
	k, after := &m.marking, m.countsAfter(b)
	switch {
	case !k.due.IsZero() && len(b.deletes) == 0 && len(b.puts) == m.left():
		return markCompared
	case k.stored == nil:
		return markNothing
	case after.Lacks(k.stored.Counts) != "", now.Sub(k.wrote) >= markerEvery && !after.Equal(k.stored.Counts):
		return markCounts
	}
	return markNothing
}

// countsAfter returns how many objects the store holds after a batch.
func (m *Mirror) countsAfter(b writes) model.Counts {
	after, root := m.marking.have.Clone(), model.Root(m.prefix)
	for _, e := range b.puts {
		if m.objects[e.Key].have == nil {
			after.Add(root, e.Key, 1)
		}
	}
	for _, key := range b.deletes {
		if m.objects[key].have != nil && m.kindOf(key) != kindUnknown {
			after.Add(root, key, -1)
		}
	}
	return after
}

// withMarker adds the marker to a batch. It reads it first: somebody may have accepted a state.
func (m *Mirror) withMarker(ctx context.Context, store Store, b writes, why mark) (writes, *model.Marker, error) {
	key := model.MarkerKey(m.prefix)
	entries, _, err := store.List(ctx, key)
	if err != nil {
		return b, nil, fmt.Errorf("reflect: list %s: %w", key, err)
	}
	value := model.FindMarker(m.prefix, entries)
	if err := m.readMarker(value); err != nil {
		return b, nil, err
	}
	if value == nil && why == markCounts {
		return b, nil, errUnmarked
	}
	next := m.nextMarker(b, why, time.Now())
	if value, err = model.EncodeMarker(next); err != nil {
		return b, nil, fmt.Errorf("reflect: %w", err)
	}
	b.puts = append(b.puts, model.Entry{Key: key, Value: value})
	return b, next, nil
}

// nextMarker returns the marker that fits a batch.
func (m *Mirror) nextMarker(b writes, why mark, now time.Time) *model.Marker {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := &m.marking
	next := model.Marker{Cluster: k.Cluster, Counts: m.countsAfter(b), Revision: k.revision, Writer: k.Writer}
	if k.stored != nil {
		next.Generation, next.Revision, next.Accepted = k.stored.Generation, k.stored.Revision, k.stored.Accepted
	}
	if why == markCompared {
		next.Generation, next.Revision = model.NextGeneration(next.Generation, now.UnixMilli()), k.revision
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

// marked takes over that the store holds a marker.
func (m *Mirror) marked(marker *model.Marker, why mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := &m.marking
	if k.stored, k.wrote = marker, time.Now(); why == markCompared {
		k.due, k.Accept = time.Time{}, false
	}
}

// evict deletes the marker of another cluster whose place this one takes, so that nobody takes what
// is written now for the state of either.
func (m *Mirror) evict(ctx context.Context, store Store) error {
	m.mu.Lock()
	foreign := m.marking.stored != nil && m.marking.stored.Cluster != m.marking.Cluster
	m.mu.Unlock()
	if !foreign {
		return nil
	}
	key := model.MarkerKey(m.prefix)
	if err := store.Write(ctx, nil, []string{key}); err != nil {
		return fmt.Errorf("reflect: delete %s: %w", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.marking.stored = nil
	return nil
}
