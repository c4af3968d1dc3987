package reflect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
)

// Mirror holds the desired state of a source and the known state of the store, as encoded bytes.
// Run writes the difference.
//
// Put, Delete and Replace never wait for the store. Only the newest desired state of each object is
// kept, so memory is bounded by the size of the cluster however slow the store is. They may be
// called from any goroutine.
type Mirror struct {
	log    *slog.Logger
	wake   chan struct{} // holds a token after a change
	delays func(time.Duration)
	wrote  func(objects int, since time.Time)

	mu      sync.Mutex
	objects objects
	marking marking
	// kinds that no Replace has named yet, and without which nothing is written
	missing map[model.Kind]bool
	// kinds without which everything else is written, and of which those in the store stay: those
	// that policy does not need, and those of Leave
	late map[model.Kind]bool
	// keys of objects of which no version can be read: that of the store stays, if it has one
	kept   map[string]bool
	counts MirrorCounts
	swept  bool // the state of the store is known, and nothing failed since
}

// MirrorCounts counts what a Mirror has done since its creation.
type MirrorCounts struct {
	Put       uint64 // objects written
	Deleted   uint64 // objects deleted
	Unchanged uint64 // updates of the source that changed nothing relevant to policy
	// Drift counts objects that a sweep found different from what was written: another client
	// changed them, or the store lost them.
	Drift  uint64
	Errors uint64
	Sweeps map[string]uint64 // by reason: start, timer, or that of the preceding error
}

// The reasons of sweeps that do not come from an error.
const (
	sweepStart  = "start"
	sweepTimer  = "timer"
	sweepFailed = "failed"
)

// MirrorStatus is the progress of mirroring the source to the store.
type MirrorStatus struct {
	MirrorCounts
	// kinds whose first state is outstanding, without which nothing is written
	Missing []model.Kind
	Late    []model.Kind       // the same for kinds for which nothing waits
	Objects map[model.Kind]int // number of objects of the source
	Pending int                // number of objects to be written or deleted
	// Synced reports whether the store was compared with the complete state, and nothing failed
	// since. It is never true for a Mirror that does not run.
	Synced bool
}

// NewMirror returns an empty Mirror of the kinds. Run writes nothing before a Replace has named
// each of them: an incomplete state would open what policies isolate. It does not wait for kinds of
// services, because enforcement does not depend on them.
func NewMirror(prefix string, kinds []model.Kind, log *slog.Logger) *Mirror {
	m := &Mirror{
		log: log, wake: make(chan struct{}, 1), delays: func(time.Duration) {}, wrote: func(int, time.Time) {}, objects: newObjects(prefix),
		missing: map[model.Kind]bool{}, late: map[model.Kind]bool{}, kept: map[string]bool{}, counts: MirrorCounts{Sweeps: map[string]uint64{}},
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

// OnWritten sets a function that receives, for every written or deleted object, the delay since the
// source changed it. Call it before Run.
func (m *Mirror) OnWritten(f func(time.Duration)) { m.delays = f }

// OnBatch registers f, which is called for every batch of objects that was written or deleted. It
// gets their number, and the time since when the source wanted the first of them. It must be called
// before Run.
func (m *Mirror) OnBatch(f func(objects int, since time.Time)) { m.wrote = f }

// Identify sets the identity of the mirrored cluster. It must be called before Run, and not while
// it runs.
func (m *Mirror) Identify(id Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.marking.identify(id)
}

// Put sets the desired value of an object.
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

// Delete removes an object from the desired state.
func (m *Mirror) Delete(id model.ID) { m.want(id, nil) }

func (m *Mirror) want(id model.ID, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := model.Key(m.objects.prefix, id)
	delete(m.kept, key)
	m.wantKey(id.Kind, key, value)
}

// Keep has an object stay as it is, because its newest version cannot be read. Where no version of
// it is known that can, also not to the store, the value instead is wanted; nil for none.
func (m *Mirror) Keep(id model.ID, instead proto.Message) error {
	b, err := m.encodeInstead(id, instead)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keepKey(id.Kind, model.Key(m.objects.prefix, id), b)
	return nil
}

func (m *Mirror) encodeInstead(id model.ID, instead proto.Message) ([]byte, error) {
	if instead == nil {
		return nil, nil
	}
	b, err := model.Encode(instead)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: %w", id, err)
	}
	return b, nil
}

// keepKey is Keep of a key. mu is held.
func (m *Mirror) keepKey(kind model.Kind, key string, instead []byte) {
	if m.objects.byKey[key].want != nil && !m.kept[key] {
		return // a version that can be read
	}
	m.kept[key] = true
	m.wantKey(kind, key, instead)
}

// adopts reports whether the value of the store is wanted of an object: the source has not
// delivered its kind yet, or cannot read it, and the store can. mu is held.
func (m *Mirror) adopts(kind model.Kind, key string, o object, value []byte) bool {
	if m.late[kind] {
		return o.want == nil
	}
	if !m.kept[key] || o.have != nil {
		return false
	}
	id, err := model.ParseKey(m.objects.prefix, key)
	if err != nil {
		return false
	}
	if v, err := model.Decode(id, value); err != nil || model.Refused(v) != "" {
		return false
	}
	delete(m.kept, key)
	return true
}

// wantKey sets the desired value of one object. mu is held.
func (m *Mirror) wantKey(kind model.Kind, key string, value []byte) {
	if m.objects.want(kind, key, value) {
		m.signal()
	} else {
		m.counts.Unchanged++
	}
}

// Replace makes the values the complete desired state of a kind, except that the objects in keep
// stay as they are, as with Keep.
func (m *Mirror) Replace(kind model.Kind, values []proto.Message, keep map[model.ID]proto.Message) error {
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
	kept := make(map[string][]byte, len(keep))
	for id, instead := range keep {
		b, err := m.encodeInstead(id, instead)
		if err != nil {
			return err
		}
		kept[model.Key(m.objects.prefix, id)] = b
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replace(kind, next, kept)
	delete(m.missing, kind)
	delete(m.late, kind)
	m.signal()
	return nil
}

// replace makes the values of some keys the desired state of a kind, without those to keep. mu is
// held.
func (m *Mirror) replace(kind model.Kind, next, kept map[string][]byte) {
	for _, key := range m.objects.keysOf(kind) {
		_, there := next[key]
		if _, stays := kept[key]; !there && !stays {
			m.wantKey(kind, key, nil)
		}
	}
	root := model.KindRoot(m.objects.prefix, kind)
	maps.DeleteFunc(m.kept, func(key string, _ bool) bool {
		_, stays := kept[key]
		return !stays && strings.HasPrefix(key, root)
	})
	for key, value := range next {
		m.wantKey(kind, key, value)
	}
	for key, instead := range kept {
		m.keepKey(kind, key, instead)
	}
}

// Leave names a kind whose state the source does not know yet: what the store holds of it stays
// until Replace, and nothing waits for that. It changes nothing after Replace.
func (m *Mirror) Leave(kind model.Kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.missing[kind] {
		delete(m.missing, kind)
		m.late[kind] = true
		m.signal()
	}
}

// signal wakes Run.
func (m *Mirror) signal() {
	select {
	case m.wake <- struct{}{}:
	default: // it is awake
	}
}

// Status returns the current status.
func (m *Mirror) Status() MirrorStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := MirrorStatus{MirrorCounts: m.counts, Objects: map[model.Kind]int{}, Synced: m.swept, Pending: m.objects.countPending()}
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

// awaitComplete waits until the source has delivered the first state of every kind.
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

// batch returns what to write next, and whether to write the marker with it.
func (m *Mirror) batch() (writes, mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.marking.raises() {
		return writes{}, markLevel
	}
	b := m.objects.batch()
	return b, m.marking.wants(b, m.objects.countPending(), m.objects.countsAfter(b), time.Now())
}

// written records what the store has acknowledged; marker is nil if it was not written.
func (m *Mirror) written(b writes, marker *model.Marker, why mark) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	first, objects := now, 0
	acknowledge := func(key string, value []byte) {
		// else the source has reverted the change
		if since, waited := m.objects.acknowledge(key, value, now); waited {
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
	m.marking.written(b, marker, why, now)
}

// readMarker takes over the marker in the store; it returns ErrOtherCluster for one of another
// cluster.
func (m *Mirror) readMarker(value []byte) error {
	stored, err := model.DecodeMarker(value)
	if err != nil && !errors.Is(err, model.ErrNoMarker) {
		m.log.Warn("completeness marker is invalid, rewriting it", "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marking.read(stored)
}

// nextMarker returns the marker for a batch.
func (m *Mirror) nextMarker(b writes, why mark) *model.Marker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marking.next(b, m.objects.countsAfter(b), why, time.Now())
}

// beginSweep starts to record what is written, until endSweep. No write is in progress.
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

// compare takes over the state of the store, and returns how many objects differ from their known
// state. It works in parts, because the source and the writer wait for the lock.
func (m *Mirror) compare(entries []model.Entry) (drift int) {
	take := func(part []model.Entry) {
		m.mu.Lock()
		defer m.mu.Unlock()
		now := time.Now()
		for _, e := range part {
			drift += m.objects.adoptFound(e.Key, e.Value, m.adopts, now)
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

// missing returns, without values, the keys that are not among the entries.
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

// compared records the end of a sweep that began at start, and returns how much is pending.
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
	m.marking.compared(revision, time.Now())
	return m.objects.countPending()
}

// markUnknown records that the state of the store is no longer known.
func (m *Mirror) markUnknown() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.swept = false
}
