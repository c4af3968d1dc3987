package ksr

import (
	"bytes"
	"context"
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

// mirrorOrder is the order in which a Mirror writes, and the reverse of that in which
// it deletes: a pod is never in the store without the policies that its source had
// for it. Keys of no known kind come last.
var mirrorOrder = []model.Kind{
	model.KindAdminNetworkPolicy, model.KindBaselineAdminNetworkPolicy, model.KindClusterNetworkPolicy,
	model.KindNetworkPolicy, model.KindNamespace, model.KindNode, model.KindPod,
	model.KindService, model.KindEndpointSlice, kindUnknown,
}

// kindUnknown stands for the kind of a key that is below the root and that nobody
// could have reflected.
const kindUnknown model.Kind = ""

// Mirror holds the state that a source wants to be in the store, beside what the
// store is known to hold, as encoded bytes. The difference is what Run writes.
//
// Put, Delete and Replace never wait for the store. What they want is kept once per
// object, its newest state only, so that memory is bounded by the size of the
// cluster however slow the store is. They may be called by any goroutine.
type Mirror struct {
	prefix string
	log    *slog.Logger
	wake   chan struct{} // holds a token when something changed

	mu      sync.Mutex
	missing map[model.Kind]bool // kinds that no Replace has named yet, and without which nothing is written
	late    map[model.Kind]bool // the same of those that policy does without: what the store has of them stays
	objects map[string]mirrored // by key
	pending map[model.Kind]map[string]time.Time
	swept   bool // have is what the store held, and nothing went wrong since
	counts  MirrorCounts
	kinds   map[model.Kind]int // objects that are wanted
	delays  func(time.Duration)
	touched map[string]struct{} // keys written since the sweep under way began; nil without one
	marking marking
}

// mirrored is one object. Either side is nil when the object does not exist there;
// both share their bytes when they are equal.
type mirrored struct{ want, have []byte }

func (o mirrored) same() bool {
	return (o.want == nil) == (o.have == nil) && bytes.Equal(o.want, o.have)
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
		prefix: prefix, log: log, wake: make(chan struct{}, 1),
		missing: map[model.Kind]bool{}, late: map[model.Kind]bool{}, objects: map[string]mirrored{}, kinds: map[model.Kind]int{},
		pending: map[model.Kind]map[string]time.Time{}, delays: func(time.Duration) {},
	}
	m.counts.Sweeps, m.marking.have = map[string]uint64{}, model.Counts{}
	for _, k := range kinds {
		if k.IsOfServices() {
			m.late[k] = true
		} else {
			m.missing[k] = true
		}
	}
	for _, k := range mirrorOrder {
		m.pending[k] = map[string]time.Time{}
	}
	return m
}

// OnWritten makes f hear, for every object that was written or deleted, how long
// that took since the source wanted it. It is to be called before Run.
func (m *Mirror) OnWritten(f func(time.Duration)) { m.delays = f }

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
	m.mu.Lock()
	defer m.mu.Unlock()
	m.want(id, b)
	return nil
}

// Delete makes the source want an object no more.
func (m *Mirror) Delete(id model.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.want(id, nil)
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
		if next[model.Key(m.prefix, id)], err = model.Encode(v); err != nil {
			return fmt.Errorf("mirror %s: %w", id, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range keep {
		key := model.Key(m.prefix, id)
		if old := m.objects[key].want; old != nil && next[key] == nil {
			next[key] = old
		}
	}
	for _, key := range m.keysOf(kind) {
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

// keysOf returns the keys of a kind that the source wants.
func (m *Mirror) keysOf(kind model.Kind) (keys []string) {
	root := model.Root(m.prefix) + string(kind) + "/"
	for key, o := range m.objects {
		if o.want != nil && strings.HasPrefix(key, root) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (m *Mirror) want(id model.ID, value []byte) {
	m.wantKey(id.Kind, model.Key(m.prefix, id), value)
}

// wantKey notes what the source wants of one object.
func (m *Mirror) wantKey(kind model.Kind, key string, value []byte) {
	o := m.objects[key]
	if (value == nil) == (o.want == nil) && bytes.Equal(value, o.want) {
		m.counts.Unchanged++
		return
	}
	switch {
	case o.want == nil:
		m.kinds[kind]++
	case value == nil:
		m.kinds[kind]--
	}
	o.want = value
	m.settle(kind, key, o, time.Now())
	m.signal()
}

// settle stores an object and notes whether it is to be written.
func (m *Mirror) settle(kind model.Kind, key string, o mirrored, now time.Time) {
	if !o.same() {
		m.objects[key] = o
		if _, ok := m.pending[kind][key]; !ok {
			m.pending[kind][key] = now
		}
		return
	}
	delete(m.pending[kind], key)
	if o.want == nil {
		delete(m.objects, key)
		return
	}
	o.have = o.want // one copy
	m.objects[key] = o
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
	s := MirrorStatus{MirrorCounts: m.counts, Objects: map[model.Kind]int{}, Synced: m.swept, Pending: m.left()}
	s.Sweeps = map[string]uint64{}
	maps.Copy(s.Sweeps, m.counts.Sweeps)
	for _, k := range mirrorOrder[:len(mirrorOrder)-1] {
		s.Objects[k] = m.kinds[k]
		if m.missing[k] {
			s.Missing = append(s.Missing, k)
		}
		if m.late[k] {
			s.Late = append(s.Late, k)
		}
	}
	return s
}

// left counts what is pending.
func (m *Mirror) left() (n int) {
	for _, keys := range m.pending {
		n += len(keys)
	}
	return n
}

// complete says whether every kind was named.
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

// kindOf returns the kind that a key of the store says, kindUnknown for what is no
// key of an object.
func (m *Mirror) kindOf(key string) model.Kind {
	id, err := model.ParseKey(m.prefix, key)
	if err != nil || !slices.Contains(mirrorOrder, id.Kind) {
		return kindUnknown
	}
	return id.Kind
}
