package reflect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

const (
	minMirrorWait = 50 * time.Millisecond
	maxMirrorWait = 5 * time.Second

	// DefaultSweep is the interval at which the store is compared with the complete state even if
	// nothing failed.
	DefaultSweep = 5 * time.Minute
)

// errNoCluster is the error of a Mirror that runs without Identify.
var errNoCluster = errors.New("reflect: the cluster is unknown")

// errUnmarked stops writing until the store was compared again.
var errUnmarked = errors.New("reflect: another process deleted the completeness marker")

// Run brings the store to the desired state, and keeps it there until the context ends. It returns
// the context's error, or ErrOtherCluster. It begins by reading the store, and reads it again after
// every failure, when the store may have lost data, and after each period; zero means DefaultSweep.
// Only one Run may be active.
func (m *Mirror) Run(ctx context.Context, store Target, period time.Duration) error {
	if m.marking.Cluster == "" {
		return errNoCluster
	}
	if err := m.awaitComplete(ctx); err != nil {
		return err
	}
	w := writer{m, store, cmp.Or(period, DefaultSweep)}
	defer m.markUnknown()
	wait := minMirrorWait
	for reason := sweepStart; ; {
		began := time.Now()
		err := w.follow(ctx, reason)
		m.markUnknown()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrOtherCluster) {
			return err
		}
		if time.Since(began) > maxMirrorWait {
			wait = minMirrorWait // it worked for a while
		}
		reason = reasonOf(err)
		m.mu.Lock()
		m.counts.Errors++
		m.mu.Unlock()
		m.log.Warn("watch lost, resyncing", "reason", reason, "error", err, "wait", wait)
		select {
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait = min(2*wait, maxMirrorWait)
	}
}

// reasonOf returns the short name of an error.
func reasonOf(err error) string {
	var named interface{ Reason() string }
	if errors.As(err, &named) {
		return named.Reason()
	}
	return sweepFailed
}

// writer writes the differences of a Mirror to the store.
type writer struct {
	mirror *Mirror
	store  Target
	period time.Duration // between sweeps
}

// follow sweeps and writes until an operation fails.
func (w writer) follow(ctx context.Context, reason string) error {
	guarded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	guard := make(chan struct{})
	go func() {
		defer close(guard)
		cancel(w.store.Guard(guarded))
	}()
	defer func() { cancel(nil); <-guard }()
	w.mirror.beginSweep()
	if err := w.sweep(guarded, reason); err != nil {
		return because(guarded, err)
	}
	return because(guarded, w.writeOn(guarded))
}

// because prefers the cause of a context's end to its consequence.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// writeOn writes pending objects until an operation fails. After each period it compares the store
// with the complete state, and continues writing meanwhile.
func (w writer) writeOn(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	timer, marks := time.NewTimer(w.period), time.NewTicker(markerEvery)
	var swept chan error // of the current sweep
	defer func() {
		timer.Stop()
		marks.Stop()
		if cancel(); swept != nil {
			err = cmp.Or(err, <-swept)
		}
	}()
	for {
		if err := w.writeBatch(ctx); err != nil {
			return err
		}
		select {
		case <-w.mirror.wake:
		case <-marks.C:
		case <-timer.C:
			swept = make(chan error, 1)
			w.mirror.beginSweep()
			go func() { swept <- w.sweep(ctx, sweepTimer) }()
		case err := <-swept:
			if swept = nil; err != nil {
				return err
			}
			timer.Reset(w.period)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writeBatch writes the next batch, if there is any.
func (w writer) writeBatch(ctx context.Context) (err error) {
	b, why := w.mirror.batch()
	if b.empty() && why == markNothing {
		return nil
	}
	with, marker := b, (*model.Marker)(nil)
	if why != markNothing {
		if with, marker, err = w.withMarker(ctx, b, why); err != nil {
			return err
		}
	}
	if err := w.store.Write(ctx, with.puts, with.deletes); err != nil {
		return fmt.Errorf("reflect: write %d and delete %d objects: %w", len(b.puts), len(b.deletes), err)
	}
	w.mirror.written(b, marker, why)
	w.mirror.signal() // there may be more
	return nil
}

// withMarker adds the marker to a batch. It reads it first: an operator may have accepted a state.
func (w writer) withMarker(ctx context.Context, b writes, why mark) (writes, *model.Marker, error) {
	prefix := w.mirror.objects.prefix
	key := model.MarkerKey(prefix)
	entries, _, err := w.store.List(ctx, key)
	if err != nil {
		return b, nil, fmt.Errorf("reflect: list %s: %w", key, err)
	}
	value := model.FindMarker(prefix, entries)
	if err := w.mirror.readMarker(value); err != nil {
		return b, nil, err
	}
	if value == nil && why != markCompared {
		return b, nil, errUnmarked
	}
	next := w.mirror.nextMarker(b, why)
	if value, err = model.EncodeMarker(next); err != nil {
		return b, nil, fmt.Errorf("reflect: %w", err)
	}
	b.puts = append(b.puts, model.Entry{Key: key, Value: value})
	return b, next, nil
}

// sweep reads the store and marks everything that differs for writing. It ignores objects that are
// written meanwhile; the next sweep examines them.
func (w writer) sweep(ctx context.Context, reason string) error {
	m, start := w.mirror, time.Now()
	defer m.endSweep()
	root := model.Root(m.objects.prefix)
	entries, revision, err := w.store.List(ctx, root)
	if err != nil {
		return fmt.Errorf("reflect: list %s: %w", root, err)
	}
	if err := m.readMarker(model.FindMarker(m.objects.prefix, entries)); err != nil {
		return err
	}
	if err := w.evict(ctx); err != nil {
		return err
	}
	drift := m.compare(entries)
	left := m.compared(reason, drift, revision, start)
	m.log.Info("store compared with the complete state", "reason", reason, "revision", revision, "keys", len(entries),
		"differ", left, "took", time.Since(start))
	return nil
}

// evict deletes the marker of another cluster that this one replaces, so that new objects are
// attributed to neither cluster.
func (w writer) evict(ctx context.Context) error {
	m := w.mirror
	m.mu.Lock()
	foreign := m.marking.isForeign()
	m.mu.Unlock()
	if !foreign {
		return nil
	}
	key := model.MarkerKey(m.objects.prefix)
	if err := w.store.Write(ctx, nil, []string{key}); err != nil {
		return fmt.Errorf("reflect: delete %s: %w", key, err)
	}
	return m.readMarker(nil)
}
