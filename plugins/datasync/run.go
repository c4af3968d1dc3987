package datasync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// The reasons of resyncs that no error says of itself.
const (
	reasonStart       = "start"
	reasonGraceOver   = "grace_over"
	reasonWatchFailed = "watch_failed"
)

// errGraceOver ends a watch so that the store is read again, and believed.
var errGraceOver = errors.New("the time of grace is over")

// Run follows the store until the context ends, and returns the context's error.
// It can run once.
func (w *Watcher) Run(ctx context.Context) error {
	if !w.started.CompareAndSwap(false, true) {
		return errors.New("the watcher of the store runs already")
	}
	defer close(w.done)
	if w.cfg.File != "" {
		defer w.saving(ctx)()
	}
	wait := w.cfg.MinBackoff
	for reason := reasonStart; ; {
		why, err := w.follow(ctx, reason)
		if w.draft.Following && time.Since(w.draft.Since) > w.cfg.MaxBackoff {
			wait = w.cfg.MinBackoff // it went well for a while
		}
		w.broken(err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if reason = why; reason == reasonGraceOver {
			continue
		}
		if w.draft.LastResync.IsZero() && w.draft.Saved.IsZero() {
			w.recall()
		}
		w.cfg.Log.Warn("store has to be read again", "reason", reason, "error", err, "wait", wait)
		if !pause(ctx, wait/2+rand.N(wait/2+1)) {
			return ctx.Err()
		}
		wait = min(2*wait, w.cfg.MaxBackoff)
	}
}

// follow takes a snapshot and watches from there until something breaks. It
// returns what that was and the reason to take the next snapshot: the one given,
// when this one was not even read.
func (w *Watcher) follow(ctx context.Context, reason string) (string, error) {
	revision, err := w.resync(ctx, reason)
	if err != nil {
		return reason, err
	}
	if !w.grace.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, w.grace, errGraceOver)
		defer cancel()
	}
	err = w.cfg.Store.Watch(ctx, model.Root(w.cfg.Prefix), revision+1, w.deliver)
	switch {
	case errors.Is(context.Cause(ctx), errGraceOver):
		return reasonGraceOver, errGraceOver
	case err == nil:
		err = errors.New("the watch ended without an error")
	}
	return reasonOf(err, reasonWatchFailed), err
}

// resync reads the whole state, makes it pending and returns its revision.
func (w *Watcher) resync(ctx context.Context, reason string) (int64, error) {
	start := time.Now()
	entries, revision, err := w.cfg.Store.List(ctx, model.Root(w.cfg.Prefix))
	if err != nil {
		return 0, fmt.Errorf("read the store: %w", err)
	}
	retain := w.mistrust(len(entries), revision)
	w.highest = revision
	deltas := w.decode(func() []model.Delta { return w.decoder.snapshot(entries, retain) })
	w.hand(func(p *pending) { p.replace(deltas, revision) })

	resyncs := maps.Clone(w.draft.Resyncs)
	if resyncs == nil {
		resyncs = map[string]int{}
	}
	resyncs[reason]++
	now := time.Now()
	w.draft.Resyncs, w.draft.Reason, w.draft.LastResync = resyncs, reason, now
	w.draft.Following, w.draft.Since, w.draft.Revision = true, now, revision
	w.draft.Saved, w.draft.Heard = time.Time{}, now
	w.publish()
	w.cfg.Log.Info("store was read", "reason", reason, "revision", revision, "objects", len(w.decoder.known), "took", now.Sub(start))
	return revision, nil
}

// mistrust decides whether objects that a snapshot does not have may have been
// lost by the store, and so have to stay in force. That is until the end of the
// time of grace, in which ksr writes them again; a store with nothing in it was
// not written at all. It also begins and ends that time.
func (w *Watcher) mistrust(entries int, revision int64) bool {
	now := time.Now()
	switch {
	case len(w.decoder.known) == 0 || w.cfg.Grace < 0:
		w.grace = time.Time{}
	case entries == 0 || revision < w.highest:
		w.grace = now.Add(w.cfg.Grace)
		w.cfg.Log.Warn("store has lost data, what it does not hold stays in force",
			"revision", revision, "revision_before", w.highest, "entries", entries, "until", w.grace)
	case !now.Before(w.grace):
		w.grace = time.Time{}
	}
	return !w.grace.IsZero()
}

// deliver takes what a watch has seen. Nobody waits for it, so that it may decode.
func (w *Watcher) deliver(entries []model.Entry, revision int64) {
	var deltas []model.Delta
	if len(entries) > 0 {
		deltas = w.decode(func() []model.Delta { return w.decoder.deltas(entries) })
	}
	w.highest = max(w.highest, revision)
	w.hand(func(p *pending) {
		// Without anything to tell, a new revision alone is no reason to wake up.
		if len(deltas) > 0 || !p.empty() {
			p.merge(deltas, revision)
		}
	})
	w.draft.Revision, w.draft.Heard = revision, time.Now()
	if len(deltas) > 0 {
		w.draft.Changed = revision
	}
	w.publish()
}

// decode runs what changes the decoder by what the store said.
func (w *Watcher) decode(change func() []model.Delta) []model.Delta {
	w.state.Lock()
	defer w.state.Unlock()
	w.unsaved = true
	return change()
}

// hand changes what is pending and wakes the consumer if there is something.
func (w *Watcher) hand(change func(*pending)) {
	w.mu.Lock()
	change(&w.pending)
	empty := w.pending.empty()
	w.mu.Unlock()
	if !empty {
		w.signal()
	}
}

// broken notes that the store is not followed any more.
func (w *Watcher) broken(err error) {
	if w.draft.Following {
		w.draft.Following, w.draft.Since = false, time.Now()
	}
	if !errors.Is(err, errGraceOver) {
		w.draft.LastError = err.Error()
	}
	w.publish()
}

// reasonOf returns the short name that an error has for itself.
func reasonOf(err error, otherwise string) string {
	var named interface{ Reason() string }
	if errors.As(err, &named) {
		return named.Reason()
	}
	return otherwise
}

// pause waits and says whether the context is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
