package reflect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
)

// Mirror holds the state that a source wants to be in the store, beside what the
// store is known to hold, as encoded bytes. The difference is what Run writes.
//
// Put, Delete and Replace never wait for the store. What they want is kept once per
// object, its newest state only, so that memory is bounded by the size of the
// cluster however slow the store is. They may be called by any goroutine.
type Mirror struct {
	log    *slog.Logger
	wake   chan struct{} // holds a token when something changed
	delays func(time.Duration)
	wrote  func(objects int, since time.Time)

	mu      sync.Mutex
	objects objects
	marking marking
	missing map[model.Kind]bool // kinds that no Replace has named yet, and without which nothing is written
	late    map[model.Kind]bool // the same of those that policy does without: what the store has of them stays
	counts  MirrorCounts
	swept   bool // what the store holds is known, and nothing went wrong since
}

// MirrorCounts counts what a Mirror did since it was made.
type MirrorCounts struct {
	Put       uint64 // objects written
	Deleted   uint64 // objects deleted
	Unchanged uint64 // updates of the source that changed nothing policy needs
	// Drift counts objects that a sweep found different from what was written before:
	// somebody else changed them, or the store lost them.
	Drift  uint64
	Errors uint64
	Sweeps map[string]uint64 // by reason: start, timer, or that of the error before
}

// The reasons of sweeps that no error says of itself.
const (
	sweepStart  = "start"
	sweepTimer  = "timer"
	sweepFailed = "failed"
)

// MirrorStatus says how far the store follows the source.
type MirrorStatus struct {
	MirrorCounts
	Missing []model.Kind       // kinds whose first state has not come yet, without which nothing is written
	Late    []model.Kind       // the same of those that policy does without
	Objects map[model.Kind]int // that the source has
	Pending int                // objects that are to be written or deleted
	// Synced says that the store was compared with the whole state, and that nothing
	// failed since. It is never true for a Mirror that does not run.
	Synced bool
}

// NewMirror returns an empty Mirror of the kinds. Run writes nothing before each of
// them was named by a Replace: half a state would open what policies isolate. Kinds of
// services are not waited for, because nothing that is enforced depends on them.
func NewMirror(prefix string, kinds []model.Kind, log *slog.Logger) *Mirror {
	m := &Mirror{
		log: log, wake: make(chan struct{}, 1), delays: func(time.Duration) {}, wrote: func(int, time.Time) {}, objects: newObjects(prefix),
		missing: map[model.Kind]bool{}, late: map[model.Kind]bool{}, counts: MirrorCounts{Sweeps: map[string]uint64{}},
	}
	for _, k := range kinds {
		if k.IsOfServices() {
			m.late[k] = true
		} else {
			m.missing[k] = true
		}
	}
	return m
}

// OnWritten makes f hear, for every object that was written or deleted, how long
// that took since the source wanted it. It is to be called before Run.
func (m *Mirror) OnWritten(f func(time.Duration)) { m.delays = f }

// OnBatch makes f hear, for every batch of objects that was written or deleted, how many there were
// and since when the source wanted the first of them. It is to be called before Run.
func (m *Mirror) OnBatch(f func(objects int, since time.Time)) { m.wrote = f }

// Identify says which cluster is mirrored. It must be called before Run, and not while it runs.
func (m *Mirror) Identify(id Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.marking.identify(id)
}

// Put makes the source want a value.
func (m *Mirror) Put(value proto.Message) error {
	id, err := model.IDOf(value)
	if err != nil {
		return fmt.Errorf("mirror: %w", err)
	}
	b, err := model.Encode(value)
	if err != nil {
		return fmt.Errorf("mirror %s: %w", id, err)
	}
	m.want(id, b)
	return nil
}

// Delete makes the source want an object no more.
func (m *Mirror) Delete(id model.ID) { m.want(id, nil) }

func (m *Mirror) want(id model.ID, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wantKey(id.Kind, model.Key(m.objects.prefix, id), value)
}

// wantKey notes what the source wants of one object. mu is held.
func (m *Mirror) wantKey(kind model.Kind, key string, value []byte) {
	if m.objects.want(kind, key, value) {
		m.signal()
	} else {
		m.counts.Unchanged++
	}
}

// Replace makes the values all that the source wants of a kind, beside those that
// keep names: they stay as they were. A keep that was never wanted changes nothing.
func (m *Mirror) Replace(kind model.Kind, values []proto.Message, keep []model.ID) error {
	next := make(map[string][]byte, len(values))
	for _, v := range values {
		id, err := model.IDOf(v)
		if err == nil && id.Kind != kind {
			err = fmt.Errorf("%s is no %s", id, kind)
		}
		if err != nil {
			return fmt.Errorf("mirror: %w", err)
		}
		if next[model.Key(m.objects.prefix, id)], err = model.Encode(v); err != nil {
			return fmt.Errorf("mirror %s: %w", id, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range keep {
		key := model.Key(m.objects.prefix, id)
		if old := m.objects.byKey[key].want; old != nil && next[key] == nil {
			next[key] = old
		}
	}
	for _, key := range m.objects.keysOf(kind) {
		if _, ok := next[key]; !ok {
			m.wantKey(kind, key, nil)
		}
	}
	for key, value := range next {
		m.wantKey(kind, key, value)
	}
	delete(m.missing, kind)
	delete(m.late, kind)
	m.signal()
	return nil
}

// signal wakes Run.
func (m *Mirror) signal() {
	select {
	case m.wake <- struct{}{}:
	default: // it is awake
	}
}

// Status returns how it goes.
func (m *Mirror) Status() MirrorStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := MirrorStatus{MirrorCounts: m.counts, Objects: map[model.Kind]int{}, Synced: m.swept, Pending: m.objects.left()}
	s.Sweeps = maps.Clone(m.counts.Sweeps)
	for _, k := range order[:len(order)-1] {
		s.Objects[k] = m.objects.wanted[k]
		if m.missing[k] {
			s.Missing = append(s.Missing, k)
		}
		if m.late[k] {
			s.Late = append(s.Late, k)
		}
	}
	return s
}

// complete reports whether every kind was named.
func (m *Mirror) complete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.missing) == 0
}

// awaitComplete waits until the source has given the first state of every kind.
func (m *Mirror) awaitComplete(ctx context.Context) error {
	for !m.complete() {
		select {
		case <-m.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.signal()
	return nil
}

// batch returns what is to be written next, and whether the marker is to be written with it.
func (m *Mirror) batch() (writes, mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.marking.raises() {
		return writes{}, markLevel
	}
	b := m.objects.batch()
	return b, m.marking.wants(b, m.objects.left(), m.objects.countsAfter(b), time.Now())
}

// written takes over what the store has acknowledged, with the marker unless that is nil.
func (m *Mirror) written(b writes, marker *model.Marker, why mark) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	first, objects := now, 0
	acknowledge := func(key string, value []byte) {
		if since, waited := m.objects.acknowledge(key, value, now); waited { // else the source has taken it back
			m.delays(now.Sub(since))
			if objects++; since.Before(first) {
				first = since
			}
		}
	}
	for _, e := range b.puts {
		acknowledge(e.Key, e.Value)
	}
	for _, key := range b.deletes {
		acknowledge(key, nil)
	}
	if objects > 0 {
		m.wrote(objects, first)
	}
	m.counts.Put += uint64(len(b.puts))
	m.counts.Deleted += uint64(len(b.deletes))
	if marker != nil {
		m.marking.written(marker, why, now)
	}
}

// readMarker takes over the marker that the store holds, and returns ErrOtherCluster for one of
// another cluster.
func (m *Mirror) readMarker(value []byte) error {
	stored, err := model.DecodeMarker(value)
	if err != nil && !errors.Is(err, model.ErrNoMarker) {
		m.log.Warn("completeness marker is written anew", "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marking.read(stored)
}

// nextMarker returns the marker that fits a batch.
func (m *Mirror) nextMarker(b writes, why mark) *model.Marker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marking.next(b, m.objects.countsAfter(b), why, time.Now())
}

// beginSweep has what is written from now on noted, until endSweep. No write is under way.
func (m *Mirror) beginSweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects.touched = map[string]struct{}{}
}

func (m *Mirror) endSweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects.touched = nil
}

// compare takes over what the store holds, and returns how many objects are not as they were
// known to be. It does so a part at a time, because the source and the writer wait for it.
func (m *Mirror) compare(entries []model.Entry) (drift int) {
	take := func(part []model.Entry) {
		m.mu.Lock()
		defer m.mu.Unlock()
		now, adopt := time.Now(), func(kind model.Kind) bool { return m.late[kind] }
		for _, e := range part {
			drift += m.objects.take(e.Key, e.Value, adopt, now)
		}
	}
	for part := range slices.Chunk(entries, maxBatch) {
		take(part)
	}
	m.mu.Lock()
	held := m.objects.heldKeys()
	m.mu.Unlock()
	for part := range slices.Chunk(missing(held, entries), maxBatch) {
		take(part)
	}
	return drift
}

// missing returns, without a value, the keys that are not among the entries.
func missing(keys []string, entries []model.Entry) (gone []model.Entry) {
	there := make(map[string]struct{}, len(entries))
	for _, e := range entries {
		there[e.Key] = struct{}{}
	}
	for _, key := range keys {
		if _, ok := there[key]; !ok {
			gone = append(gone, model.Entry{Key: key})
		}
	}
	return gone
}

// compared notes the end of a sweep that began at start, and returns what is pending.
func (m *Mirror) compared(reason string, drift int, revision int64, start time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if reason == sweepStart {
		m.objects.begin(start)
	} else {
		m.counts.Drift += uint64(drift)
	}
	m.counts.Sweeps[reason]++
	m.swept = true
	if reason != sweepTimer || drift > 0 || m.marking.stored == nil {
		m.marking.compared(revision, time.Now())
	}
	return m.objects.left()
}

// doubt notes that what the store holds is not known any more.
func (m *Mirror) doubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.swept = false
}
