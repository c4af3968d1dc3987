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

// watchWrites has what is written from now on noted, until the end of the sweep that
// follows. No write is under way.
func (m *Mirror) watchWrites() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touched = map[string]struct{}{}
}

// sweep reads what the store holds: everything that differs is to be written. Of what is
// written meanwhile the writer knows better; the next sweep looks at it.
func (m *Mirror) sweep(ctx context.Context, store Target, reason string) error {
	start := time.Now()
	defer m.forgetWrites()
	entries, revision, err := store.List(ctx, model.Root(m.prefix))
	if err != nil {
		return fmt.Errorf("reflect: list %s: %w", model.Root(m.prefix), err)
	}
	drift := 0
	for part := range slices.Chunk(entries, maxBatch) {
		drift += m.mark(part)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	drift += m.markMissing(entries)
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

func (m *Mirror) forgetWrites() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touched = nil
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
// were known to be. It is told a part at a time, because the source waits for it.
func (m *Mirror) mark(part []model.Entry) (drift int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, e := range part {
		drift += m.take(e.Key, e.Value, now)
	}
	return drift
}

// markMissing takes over that the store holds nothing but the entries. Called with the
// lock held.
func (m *Mirror) markMissing(entries []model.Entry) (drift int) {
	seen := make(map[string]struct{}, len(entries))
	for _, e := range entries {
		seen[e.Key] = struct{}{}
	}
	now := time.Now()
	for key, o := range m.objects {
		if _, ok := seen[key]; !ok && o.have != nil {
			drift += m.take(key, nil, now)
		}
	}
	return drift
}

// take takes over what the store holds of one object, and returns 1 if that was not
// known, else 0.
func (m *Mirror) take(key string, value []byte, now time.Time) (drift int) {
	if _, later := m.touched[key]; later {
		return 0
	}
	o := m.objects[key]
	if old := (mirrored{want: value, have: o.have}); !old.same() {
		drift = 1
	}
	o.have = value
	m.settle(m.kindOf(key), key, o, now)
	return drift
}

// writeOn writes what is pending, until something fails. After each period it compares
// the store with the whole state, and goes on writing meanwhile.
func (m *Mirror) writeOn(ctx context.Context, store Target, period time.Duration) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.NewTimer(period)
	var swept chan error // of the sweep that is under way
	defer func() {
		timer.Stop()
		if cancel(); swept != nil {
			err = cmp.Or(err, <-swept)
		}
	}()
	for {
		if b := m.batch(); !b.empty() {
			if err := store.Write(ctx, b.puts, b.deletes); err != nil {
				return fmt.Errorf("reflect: write %d and delete %d objects: %w", len(b.puts), len(b.deletes), err)
			}
			m.written(b)
			m.signal() // there may be more
		}
		select {
		case <-m.wake:
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
	m.touch(b)
	return b
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
