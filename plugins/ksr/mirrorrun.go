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
// ends, whose error it returns. It begins by reading the store, and reads it again
// after every failure, when the store may have lost data, and after each period;
// DefaultSweep when zero. One Run runs at a time.
func (m *Mirror) Run(ctx context.Context, store Target, period time.Duration) error {
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
	for ; ; reason = sweepTimer {
		if err := m.sweep(guarded, store, reason); err != nil {
			return because(guarded, err)
		}
		if err := m.writeUntil(guarded, store, time.After(period)); err != nil {
			return because(guarded, err)
		}
	}
}

// because prefers the reason for which a context was ended to its consequence.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// sweep reads what the store holds: everything that differs is to be written.
func (m *Mirror) sweep(ctx context.Context, store Target, reason string) error {
	start := time.Now()
	entries, revision, err := store.List(ctx, model.Root(m.prefix))
	if err != nil {
		return fmt.Errorf("reflect: list %s: %w", model.Root(m.prefix), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	drift := m.mark(entries)
	if reason == sweepStart {
		m.begin(start)
	} else {
		m.counts.Drift += uint64(drift)
	}
	m.counts.Sweeps[reason]++
	m.swept = true
	m.log.Info("store compared with the whole state", "reason", reason, "revision", revision, "keys", len(entries),
		"differ", m.left(), "took", time.Since(start))
	return nil
}

// begin lets what waited for the first sweep count from there: nobody could write it
// before.
func (m *Mirror) begin(now time.Time) {
	for _, keys := range m.pending {
		for key := range keys {
			keys[key] = now
		}
	}
}

// mark takes over what the store holds, and counts the objects that are not as they
// were known to be.
func (m *Mirror) mark(entries []model.Entry) (drift int) {
	now := time.Now()
	seen := make(map[string]struct{}, len(entries))
	take := func(key string, value []byte) {
		o := m.objects[key]
		if old := (mirrored{want: value, have: o.have}); !old.same() {
			drift++
		}
		o.have = value
		m.settle(m.kindOf(key), key, o, now)
	}
	for _, e := range entries {
		seen[e.Key] = struct{}{}
		take(e.Key, e.Value)
	}
	for key, o := range m.objects {
		if _, ok := seen[key]; !ok && o.have != nil {
			take(key, nil)
		}
	}
	return drift
}

// writeUntil writes what is pending until the time has come, or a write fails.
func (m *Mirror) writeUntil(ctx context.Context, store Target, until <-chan time.Time) error {
	for {
		if b := m.batch(); !b.empty() {
			if err := store.Write(ctx, b.puts, b.deletes); err != nil {
				return fmt.Errorf("reflect: write %d and delete %d objects: %w", len(b.puts), len(b.deletes), err)
			}
			m.written(b)
			select {
			case <-until:
				return nil
			default:
				continue
			}
		}
		select {
		case <-m.wake:
		case <-until:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writes is what is handed to the store at once.
type writes struct {
	puts    []model.Entry
	deletes []string
}

func (w writes) empty() bool { return len(w.puts)+len(w.deletes) == 0 }

// batch returns what is to be written next: puts by the order of kinds, and
// deletions, in the reverse order, once there is nothing left to put.
func (m *Mirror) batch() (b writes) {
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
	return b
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
