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

// Store is what is followed.
type Store interface {
	// List returns every entry under the prefix, none with a nil Value, and the
	// revision of the store at which all of them were read.
	List(ctx context.Context, prefix string) ([]model.Entry, int64, error)
	// Watch delivers every change under the prefix from the revision on, in order,
	// from one goroutine at a time; a nil Value is a deletion, no entries mean
	// that only the revision moved on. The entries are deliver's to keep. It
	// returns when the context ends, or with an error when it cannot promise that
	// any more.
	Watch(ctx context.Context, prefix string, from int64, deliver func(entries []model.Entry, revision int64)) error
}

// Snapshot is everything that a store has below a prefix.
type Snapshot struct {
	Entries  []model.Entry
	Revision int64
	// Reason says why it was read: one of the constants below, or what the error of the watch
	// says of itself by a method Reason() string.
	Reason string
	// Grace is until when what the entries lack stays in force, because the store has lost
	// data; zero when they are the whole truth.
	Grace time.Time
}

// Retain reports whether what the entries lack stays in force.
func (s Snapshot) Retain() bool { return !s.Grace.IsZero() }

// The reasons of snapshots that no error says of itself.
const (
	ReasonStart       = "start"
	ReasonGraceOver   = "grace_over"
	ReasonWatchFailed = "watch_failed"
	ReasonIncomplete  = "incomplete" // the store did not prove that it is whole
)

// Proof decides whether a store holds a whole state. Its methods are called by the goroutine of
// Run, or by Watch on its behalf.
type Proof interface {
	// Key is written once the store may be whole again.
	Key() string
	// Snapshot returns why what a store holds is not to be believed, nil when it is. Nothing of
	// what it refuses is taken.
	Snapshot(entries []model.Entry, revision int64) error
	// Changes returns why the store is not whole any more after changes of a watch, nil when it
	// is. Nothing of what it refuses is taken, and the store is read again.
	Changes(entries []model.Entry, revision int64) error
}

// Config says what is followed, and who takes it. Store, Log, Snapshot and Deliver are
// needed. All functions are called by the goroutine of Run, or by Watch on its behalf.
type Config struct {
	Store  Store
	Prefix string
	What   string // the entries are, for the log
	Log    *slog.Logger
	// MinBackoff and MaxBackoff bound the time between attempts to read the store
	// after a failure; 50 ms and 5 s when zero.
	MinBackoff, MaxBackoff time.Duration
	// Proof is what the store has to prove before it is believed. Nil asks for none, and
	// Grace holds instead.
	Proof Proof
	// Grace is for how long entries stay in force that a store does not have any more
	// because it lost its data; 1 minute when zero, none when negative, or with a Proof.
	Grace time.Duration

	// Snapshot takes a whole state.
	Snapshot func(Snapshot)
	// Deliver takes changes, as from Store.Watch.
	Deliver func(entries []model.Entry, revision int64)
	// Known returns how many entries are in force. It is needed where Grace holds.
	Known func() int
	// Failed hears of every failure to read or to watch the store. May be nil.
	Failed func(error)
	// Recall puts in force what was saved earlier, and returns the revision of that, and
	// whether there is anything. It is called after failures before the first snapshot,
	// until it has something. May be nil.
	Recall func() (revision int64, ok bool)
	// Needed is closed when nothing is in force, so that what was saved is better than to wait
	// for the store: Recall is then called once the store has not answered for half a second.
	// It is not called before. Nil calls it after failures only.
	Needed <-chan struct{}
}

const (
	defaultMinBackoff = 50 * time.Millisecond
	defaultMaxBackoff = 5 * time.Second
	defaultGrace      = time.Minute

	// storeWait is how long the store may take for its first answer before what was saved is
	// used where nothing is in force: the store knows better, and nobody should wait long.
	storeWait = 500 * time.Millisecond

	// proofWait is how often a store is read again that is not whole, half of it at random, where
	// nobody writes the key of the proof.
	proofWait = 2 * time.Minute
)

// incomplete says that a store answers, and does not hold a whole state.
type incomplete struct{ error }

// Reason implements the reason of a snapshot.
func (incomplete) Reason() string { return ReasonIncomplete }

// Unwrap returns what the proof said.
func (i incomplete) Unwrap() error { return i.error }

// errGraceOver ends a watch so that the store is read again, and believed.
var errGraceOver = errors.New("the grace period is over")

// follower is the state of one Run.
type follower struct {
	Config
	journal journal

	read     bool      // a snapshot was taken
	recalled bool      // what was saved is in force
	highest  int64     // revision that the store had reached
	grace    time.Time // its end; zero when the store did not lose anything
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
				wait = cfg.MinBackoff // it went well for a while
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

// prove reports why a snapshot is not to be believed.
func (f *follower) prove(entries []model.Entry, revision int64) error {
	if f.Proof == nil {
		return nil
	}
	if err := f.Proof.Snapshot(entries, revision); err != nil {
		return incomplete{err}
	}
	return nil
}

// awaitProof waits until the store may be whole again. What was saved is used where nothing is
// in force.
func (f *follower) awaitProof(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, proofWait/2+rand.N(proofWait/2))
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A watch that breaks is a reason to look at the store, too.
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

// list reads the whole state, hands it over and returns its revision.
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
	f.mistrust(len(entries), revision)
	f.highest, f.read = revision, true
	f.Snapshot(Snapshot{entries, revision, reason, f.grace})
	f.journal.wasRead(ctx, reason, "revision", revision, "entries", len(entries), "took", time.Since(start))
	return revision, nil
}

// ask reads the store. Where nothing is in force, what was saved is used meanwhile.
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

// mistrust decides whether entries that a snapshot does not have may have been lost by the
// store, and so have to stay in force. That is until the end of the grace period, in which
// those who write the store fill it again; a store with nothing in it was not filled at
// all. It also begins and ends that period.
func (f *follower) mistrust(entries int, revision int64) {
	now := time.Now()
	switch {
	case f.Grace < 0 || f.Known() == 0:
		f.grace = time.Time{}
	case entries == 0 || revision < f.highest:
		if f.grace.IsZero() {
			f.journal.log.Warn("store has lost data, what it lacks stays in force for the grace period",
				"revision", revision, "revision_before", f.highest, "entries", entries, "grace", f.Grace)
		}
		f.grace = now.Add(f.Grace)
	case !now.Before(f.grace):
		f.grace = time.Time{}
	}
}

// watch hands over changes until something breaks, and returns what that was.
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

// load puts in force what was saved, because the store cannot be read.
func (f *follower) load() {
	if f.Recall != nil && !f.read && !f.recalled {
		f.highest, f.recalled = f.Recall()
	}
}

// reasonOf returns the short name that the end of a watch has.
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

// pause waits and reports whether the context is still alive. The store has failed: where nothing
// is in force, what was saved is used.
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
