package ksr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// Target is a Store for as long as one writer owns it.
type Target interface {
	Store
	// Guard blocks as long as the store is certain to be the one that was written to.
	// It always returns an error: afterwards what the store holds has to be read again.
	Guard(ctx context.Context) error
}

const (
	// maxBatch bounds what is handed to the store at once: what changes meanwhile is
	// merged with what still waits.
	maxBatch = 1000

	minMirrorWait = 50 * time.Millisecond
	maxMirrorWait = 5 * time.Second

	// DefaultSweep is how often the store is compared with the whole state although
	// nothing went wrong.
	DefaultSweep = 5 * time.Minute
)

// The reasons of sweeps that no error says of itself.
const (
	sweepStart  = "start"
	sweepTimer  = "timer"
	sweepFailed = "failed"
)

// Run makes the store hold what the source wants, and keeps it so until the context
// ends, whose error it returns, or ErrOtherCluster. It begins by reading the store, and reads it again
// after every failure, when the store may have lost data, and after each period;
// DefaultSweep when zero. One Run runs at a time.
func (m *Mirror) Run(ctx context.Context, store Target, period time.Duration) error {
	if m.marking.Cluster == "" {
		return errNoCluster
	}
	if err := m.awaitComplete(ctx); err != nil {
		return err
	}
	period = cmp.Or(period, DefaultSweep)
	defer m.doubt()
	wait := minMirrorWait
	for reason := sweepStart; ; {
		began := time.Now()
		err := m.follow(ctx, store, period, reason)
		m.doubt()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrOtherCluster) {
			return err
		}
		if time.Since(began) > maxMirrorWait {
			wait = minMirrorWait // it went well for a while
		}
		reason = reasonOf(err)
		m.failed()
		m.log.Warn("store has to be read again", "reason", reason, "error", err, "wait", wait)
		select {
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait = min(2*wait, maxMirrorWait)
	}
}

// follow sweeps and writes until something fails.
func (m *Mirror) follow(ctx context.Context, store Target, period time.Duration, reason string) error {
	guarded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	guard := make(chan struct{})
	go func() {
		defer close(guard)
		cancel(store.Guard(guarded))
	}()
	defer func() { cancel(nil); <-guard }()
	m.watchWrites()
	if err := m.sweep(guarded, store, reason); err != nil {
		return because(guarded, err)
	}
	return because(guarded, m.writeOn(guarded, store, period))
}

// because prefers the reason for which a context was ended to its consequence.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// writeOn writes what is pending, until something fails. After each period it compares
// the store with the whole state, and goes on writing meanwhile.
func (m *Mirror) writeOn(ctx context.Context, store Target, period time.Duration) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	timer, marks := time.NewTimer(period), time.NewTicker(markerEvery)
	var swept chan error // of the sweep that is under way
	defer func() {
		timer.Stop()
		marks.Stop()
		if cancel(); swept != nil {
			err = cmp.Or(err, <-swept)
		}
	}()
	for {
		if err := m.writeBatch(ctx, store); err != nil {
			return err
		}
		select {
		case <-m.wake:
		case <-marks.C:
		case <-timer.C:
			swept = make(chan error, 1)
			m.watchWrites()
			go func() { swept <- m.sweep(ctx, store, sweepTimer) }()
		case err := <-swept:
			if swept = nil; err != nil {
				return err
			}
			timer.Reset(period)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writeBatch writes what is to be written next, if anything is.
func (m *Mirror) writeBatch(ctx context.Context, store Target) (err error) {
	b, why := m.batch()
	if b.empty() && why == markNothing {
		return nil
	}
	with, marker := b, (*model.Marker)(nil)
	if why != markNothing {
		if with, marker, err = m.withMarker(ctx, store, b, why); err != nil {
			return err
		}
	}
	if err := store.Write(ctx, with.puts, with.deletes); err != nil {
		return fmt.Errorf("reflect: write %d and delete %d objects: %w", len(b.puts), len(b.deletes), err)
	}
	m.written(b)
	if marker != nil {
		m.marked(marker, why)
	}
	m.signal() // there may be more
	return nil
}

// writes is what is handed to the store at once.
type writes struct {
	puts    []model.Entry
	deletes []string
}

func (w writes) empty() bool { return len(w.puts)+len(w.deletes) == 0 }

// batch returns what is to be written next: puts by the order of kinds, and
// deletions, in the reverse order, once there is nothing left to put. It also returns whether
// the marker is to be written with it.
func (m *Mirror) batch() (b writes, why mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, kind := range mirrorOrder {
		for _, key := range m.pendingKeys(kind, maxBatch-len(b.puts), func(o mirrored) bool { return o.want != nil }) {
			b.puts = append(b.puts, model.Entry{Key: key, Value: m.objects[key].want})
		}
	}
	for _, kind := range slices.Backward(mirrorOrder) {
		b.deletes = append(b.deletes, m.pendingKeys(kind, maxBatch-len(b.puts)-len(b.deletes), func(o mirrored) bool { return o.want == nil })...)
	}
	m.touch(b)
	return b, m.wantsMarker(b, time.Now())
}

// touch notes, for a sweep that is under way, what is written beside it.
func (m *Mirror) touch(b writes) {
	if m.touched == nil {
		return
	}
	for _, e := range b.puts {
		m.touched[e.Key] = struct{}{}
	}
	for _, key := range b.deletes {
		m.touched[key] = struct{}{}
	}
}

// pendingKeys returns pending keys of a kind that are of one sort, at most n, in
// their order.
func (m *Mirror) pendingKeys(kind model.Kind, n int, of func(mirrored) bool) (keys []string) {
	for key := range m.pending[kind] {
		if len(keys) == n {
			break
		}
		if of(m.objects[key]) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// written takes over what the store has acknowledged. The source may want something
// else already.
func (m *Mirror) written(b writes) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range b.puts {
		m.acknowledge(e.Key, e.Value, now)
	}
	for _, key := range b.deletes {
		m.acknowledge(key, nil, now)
	}
	m.counts.Put += uint64(len(b.puts))
	m.counts.Deleted += uint64(len(b.deletes))
}

func (m *Mirror) acknowledge(key string, value []byte, now time.Time) {
	o, kind := m.objects[key], m.kindOf(key)
	if since, ok := m.pending[kind][key]; ok { // else the source has taken it back
		m.delays(now.Sub(since))
	}
	m.noteHave(kind, o.have != nil, value != nil)
	o.have = value
	m.settle(kind, key, o, now)
}

// doubt notes that what the store holds is not known any more.
func (m *Mirror) doubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.swept = false
}

func (m *Mirror) failed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.Errors++
}

// reasonOf returns the short name that an error has for itself.
func reasonOf(err error) string {
	var named interface{ Reason() string }
	if errors.As(err, &named) {
		return named.Reason()
	}
	return sweepFailed
}
