package follow

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// repeatAfter is the minimum time between two logged failures.
const repeatAfter = time.Minute

// journal logs the events of a follower.
type journal struct {
	log    *slog.Logger
	cause  error     // ended the last watch; nil before the first, and once logged
	quiet  bool      // the store has logged the failure of the last attempt to read it
	warned time.Time // when a failure was last logged
}

// unreadable logs that the store cannot be read. If the store does not answer, the store itself
// logs it once for all followers.
func (j *journal) unreadable(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	j.quiet = j.quiet || logged(err)
	j.log.Log(ctx, j.level(slog.LevelWarn), "store cannot be read, what is known stays in force", "error", err)
}

// incomplete logs that the store does not hold a complete state.
func (j *journal) incomplete(ctx context.Context, err error) {
	j.log.Log(ctx, j.level(slog.LevelWarn), "store is not whole, what is known stays in force", "error", err)
}

// lost records why the watch ended, until it is known whether the store answers.
func (j *journal) lost(err error) { j.cause = err }

// wasRead logs that the store was read.
func (j *journal) wasRead(ctx context.Context, reason string, attrs ...any) {
	attrs = append(attrs, "reason", reason)
	if j.cause == nil {
		j.log.Info("store was read", attrs...)
	} else {
		j.quiet = j.quiet || logged(j.cause)
		j.log.Log(ctx, j.level(slog.LevelWarn), "watch lost, resynced", append(attrs, "error", j.cause)...)
	}
	j.cause, j.quiet = nil, false
}

// level returns the level for a failure: the given one, or debug if the store has logged it, or a
// failure was logged recently.
func (j *journal) level(level slog.Level) slog.Level {
	now := time.Now()
	if j.quiet || !j.warned.IsZero() && now.Sub(j.warned) < repeatAfter {
		return slog.LevelDebug
	}
	j.warned = now
	return level
}

// logged reports whether the store itself has logged an error.
func logged(err error) bool {
	var by interface{ Logged() bool }
	return errors.As(err, &by) && by.Logged()
}
