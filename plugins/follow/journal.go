package follow

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// repeatAfter is how long a follower stays silent after it has logged a failure.
const repeatAfter = time.Minute

// journal is what a follower logs.
type journal struct {
	log    *slog.Logger
	cause  error     // ended the last watch; nil before the first, and once it was logged
	quiet  bool      // the store has logged why it could not be read since then
	warned time.Time // when a failure was logged last
}

// unreadable logs that the store cannot be read. That a store does not answer is logged by
// the store: once for all who follow it.
func (j *journal) unreadable(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	j.quiet = j.quiet || logged(err)
	j.log.Log(ctx, j.level(slog.LevelWarn), "store cannot be read, what is known stays in force", "error", err)
}

// incomplete logs that the store does not hold a whole state.
func (j *journal) incomplete(ctx context.Context, err error) {
	j.log.Log(ctx, j.level(slog.LevelWarn), "store is not whole, what is known stays in force", "error", err)
}

// lost notes why the watch ended, until it is known whether the store answers.
func (j *journal) lost(err error) { j.cause = err }

// wasRead logs that the store was read.
func (j *journal) wasRead(ctx context.Context, reason string, attrs ...any) {
	attrs = append(attrs, "reason", reason)
	if j.cause == nil {
		j.log.Info("store was read", attrs...)
	} else {
		j.quiet = j.quiet || logged(j.cause)
		j.log.Log(ctx, j.level(slog.LevelWarn), "watch lost, store was read again", append(attrs, "error", j.cause)...)
	}
	j.cause, j.quiet = nil, false
}

// level returns the level for a failure: the one given, or debug when the store has logged
// it, or something like it was logged a moment ago.
func (j *journal) level(level slog.Level) slog.Level {
	now := time.Now()
	if j.quiet || !j.warned.IsZero() && now.Sub(j.warned) < repeatAfter {
		return slog.LevelDebug
	}
	j.warned = now
	return level
}

// logged reports whether the store itself has logged what an error is about.
func logged(err error) bool {
	var by interface{ Logged() bool }
	return errors.As(err, &by) && by.Logged()
}
