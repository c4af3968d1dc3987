package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// Store is the store that is followed.
type Store interface {
	// List returns every entry under the prefix, none with a nil Value, and the revision of the
	// store at which it read them.
	List(ctx context.Context, prefix string) ([]model.Entry, int64, error)
	// Watch delivers every change under the prefix from the revision on, in order, from one
	// goroutine at a time. A nil Value is a deletion. A call without entries only advances the
	// revision. deliver may keep the entries. Watch returns when the context ends, or with an error
	// when it cannot guarantee this any more.
	Watch(ctx context.Context, prefix string, from int64, deliver func(entries []model.Entry, revision int64)) error
}

// Snapshot is the complete content of a store below a prefix.
type Snapshot struct {
	Entries  []model.Entry
	Revision int64
	// Reason is why it was read: one of the constants below, or the result of a method Reason()
	// string of the watch's error.
	Reason string
	// Grace is the time until which entries that are missing from the snapshot stay in force,
	// because the store has lost data; zero if the snapshot is complete.
	Grace time.Time
}

// Retain reports whether missing entries stay in force.
func (s Snapshot) Retain() bool { return !s.Grace.IsZero() }

// The reasons of snapshots that do not come from an error.
const (
	ReasonStart       = "start"
	ReasonGraceOver   = "grace_over"
	ReasonWatchFailed = "watch_failed"
	ReasonIncomplete  = "incomplete" // the store did not prove that it is whole
)

// Proof decides whether a store holds a complete state. The goroutine of Run, or Watch on its
// behalf, calls its methods.
type Proof interface {
	// Key is a key that is written once the store may be complete again.
	Key() string
	// Snapshot returns nil if the content of a store can be believed, else why not. Rejected
	// content is not used.
	Snapshot(entries []model.Entry, revision int64) error
	// Changes returns nil if the store is still complete after changes of a watch, else why not.
	// Rejected changes are not used, and the store is read again.
	Changes(entries []model.Entry, revision int64) error
}

// Config configures what is followed and its receivers. Store, Log, Snapshot and Deliver are
// required. The goroutine of Run, or Watch on its behalf, calls all functions.
type Config struct {
	Store  Store
	Prefix string
	What   string // description of the entries, for the log
	Log    *slog.Logger
	// MinBackoff and MaxBackoff bound the delay between attempts to read the store after a failure;
	// zero means 50 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration
	// Proof decides whether the content of the store is complete. With nil everything is believed,
	// subject to Grace.
	Proof Proof
	// Grace is how long entries stay in force that are missing because the store lost its data.
	// Zero means 1 minute. There is no grace period if it is negative or with a Proof.
	Grace time.Duration

	// Snapshot receives complete states.
	Snapshot func(Snapshot)
	// Deliver receives changes, as from Store.Watch.
	Deliver func(entries []model.Entry, revision int64)
	// Known returns how many entries are in force. It is required if Grace applies.
	Known func() int
	// Failed is called for every failure to read or to watch the store. It may be nil.
	Failed func(error)
	// Recall puts a saved state in force, and returns its revision, and whether there is one. It is
	// called after failures before the first snapshot, until it succeeds. It may be nil.
	Recall func() (revision int64, ok bool)
	// Needed is closed if nothing is in force, so that a saved state is better than waiting for the
	// store. Recall is then called, but not before the store has not answered for half a second.
	// With nil Recall is called only after failures.
	Needed <-chan struct{}
}

const (
	defaultMinBackoff = 50 * time.Millisecond
	defaultMaxBackoff = 5 * time.Second
	defaultGrace      = time.Minute

	// storeWait is how long to wait for the first answer of the store before a saved state is used,
	// if nothing is in force: the store is more recent, but the wait must be short.
	storeWait = 500 * time.Millisecond

	// proofWait is the interval, half of it random, at which an incomplete store is read again if
	// the key of the proof is not written.
	proofWait = 2 * time.Minute
)

// incomplete reports that a store answers, but does not hold a complete state.
type incomplete struct{ error }

// Reason returns the reason for a snapshot.
func (incomplete) Reason() string { return ReasonIncomplete }

// Unwrap returns the error of the proof.
func (i incomplete) Unwrap() error { return i.error }

// errGraceOver ends a watch so that the store is read again, and believed.
var errGraceOver = errors.New("the grace period is over")

// follower is the state of one Run.
type follower struct {
	Config
	journal journal

	read     bool      // a snapshot was taken
	recalled bool      // a saved state is in force
	highest  int64     // highest seen revision of the store
	grace    time.Time // end of the grace period; zero if the store lost nothing
}

// Run follows the store until the context ends, and returns the context's error.
func Run(ctx context.Context, cfg Config) error {
	cfg.MinBackoff = cmp.Or(cfg.MinBackoff, defaultMinBackoff)
	cfg.MaxBackoff = max(cfg.MinBackoff, cmp.Or(cfg.MaxBackoff, defaultMaxBackoff))
	if cfg.Grace = cmp.Or(cfg.Grace, defaultGrace); cfg.Proof != nil {
		cfg.Grace = -1
	}
	f := &follower{Config: cfg, journal: journal{log: cfg.Log.With("of", cfg.What)}}
	wait := cfg.MinBackoff
	for reason := ReasonStart; ; {
		revision, err := f.list(ctx, reason)
		doubted := errors.As(err, new(incomplete))
		if err == nil {
			began := time.Now()
			err = f.watch(ctx, revision)
			if time.Since(began) > cfg.MaxBackoff {
				wait = cfg.MinBackoff // it worked for a while
			}
			reason = reasonOf(err)
		}
		switch {
		case ctx.Err() != nil:
			f.failed(ctx.Err())
			return ctx.Err()
		case errors.Is(err, errGraceOver):
			continue
		}
		f.failed(err)
		if f.Needed == nil {
			f.load()
		}
		if doubted {
			if f.awaitProof(ctx, revision); reason != ReasonStart {
				reason = ReasonIncomplete
			}
			wait = cfg.MinBackoff
		}
		if !f.pause(ctx, wait/2+rand.N(wait/2+1)) {
			return ctx.Err()
		}
		wait = min(2*wait, cfg.MaxBackoff)
	}
}

// prove returns nil if a snapshot can be believed, else why not.
func (f *follower) prove(entries []model.Entry, revision int64) error {
	if f.Proof == nil {
		return nil
	}
	if err := f.Proof.Snapshot(entries, revision); err != nil {
		return incomplete{err}
	}
	return nil
}

// awaitProof waits until the store may be complete again. If nothing is in force, it uses the saved
// state.
func (f *follower) awaitProof(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, proofWait/2+rand.N(proofWait/2))
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A broken watch is a reason to read the store, too.
		_ = f.Store.Watch(ctx, f.Proof.Key(), revision+1, func(entries []model.Entry, _ int64) {
			if len(entries) > 0 {
				cancel()
			}
		})
	}()
	for needed := f.Needed; ; needed = nil {
		select {
		case <-needed:
			f.load()
		case <-done:
			return
		}
	}
}

// list reads the complete state, passes it on and returns its revision.
func (f *follower) list(ctx context.Context, reason string) (int64, error) {
	start := time.Now()
	entries, revision, err := f.ask(ctx)
	if err != nil {
		err = fmt.Errorf("read the store: %w", err)
		f.journal.unreadable(ctx, err)
		return 0, err
	}
	if err := f.prove(entries, revision); err != nil {
		f.journal.incomplete(ctx, err)
		return revision, err
	}
	f.updateGrace(len(entries), revision)
	f.highest, f.read = revision, true
	f.Snapshot(Snapshot{entries, revision, reason, f.grace})
	f.journal.wasRead(ctx, reason, "revision", revision, "entries", len(entries), "took", time.Since(start))
	return revision, nil
}

// ask reads the store. If nothing is in force, it uses the saved state meanwhile.
func (f *follower) ask(ctx context.Context) (entries []model.Entry, revision int64, err error) {
	if f.Needed == nil || f.read || f.recalled {
		return f.Store.List(ctx, f.Prefix)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		entries, revision, err = f.Store.List(ctx, f.Prefix)
	}()
	patience := time.NewTimer(storeWait)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		select {
		case <-done:
		case <-f.Needed:
			f.load()
		}
	}
	<-done
	return entries, revision, err
}

// updateGrace decides whether entries that are missing from a snapshot may have been lost by the
// store, and so must stay in force. They do until the end of the grace period, in which writers
// fill the store again; an empty store has not been filled at all. It also begins and ends the
// grace period.
func (f *follower) updateGrace(entries int, revision int64) {
	now := time.Now()
	switch {
	case f.Grace < 0 || f.Known() == 0:
		f.grace = time.Time{}
	case entries == 0 || revision < f.highest:
		if f.grace.IsZero() {
			f.journal.log.Warn("store lost data; missing entries stay in force for the grace period",
				"revision", revision, "revision_before", f.highest, "entries", entries, "grace", f.Grace)
		}
		f.grace = now.Add(f.Grace)
	case !now.Before(f.grace):
		f.grace = time.Time{}
	}
}

// watch passes on changes until an error occurs, and returns the error.
func (f *follower) watch(ctx context.Context, revision int64) error {
	if !f.grace.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, f.grace, errGraceOver)
		defer cancel()
	}
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	refused := false
	err := f.Store.Watch(ctx, f.Prefix, revision+1, func(entries []model.Entry, revision int64) {
		if refused {
			return // the watch is about to end
		}
		if f.Proof != nil && len(entries) > 0 {
			if err := f.Proof.Changes(entries, revision); err != nil {
				refused = true
				refuse(incomplete{err})
				return
			}
		}
		f.highest = max(f.highest, revision)
		f.Deliver(entries, revision)
	})
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errGraceOver):
		return errGraceOver
	case refused:
		err = cause
	case err == nil:
		err = errors.New("the watch ended without an error")
	}
	f.journal.lost(err)
	return err
}

func (f *follower) failed(err error) {
	if f.Failed != nil {
		f.Failed(err)
	}
}

// load puts the saved state in force, because the store cannot be read.
func (f *follower) load() {
	if f.Recall != nil && !f.read && !f.recalled {
		f.highest, f.recalled = f.Recall()
	}
}

// reasonOf returns the short name of why a watch ended.
func reasonOf(err error) string {
	var named interface{ Reason() string }
	switch {
	case errors.Is(err, errGraceOver):
		return ReasonGraceOver
	case errors.As(err, &named):
		return named.Reason()
	}
	return ReasonWatchFailed
}

// pause waits and reports whether the context is still alive. The store has failed: if nothing is
// in force, pause uses the saved state.
func (f *follower) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for needed := f.Needed; ; needed = nil {
		select {
		case <-needed:
			f.load()
		case <-t.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}
