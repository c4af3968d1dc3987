package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/sluice-net/sluice/internal/view"
)

const (
	// publishLife is for how many intervals a published status lasts without its agent.
	publishLife = 6
	// announceBurst is how many changes are published at once after a quiet time: a change
	// and how it went. Further ones wait, so that there is one per interval on average.
	announceBurst = 3
	// announceSpread bounds the time from a change to its publication. It is random, so that
	// nodes which see the same change do not write in the same instant.
	announceSpread = 150 * time.Millisecond
)

// publisher publishes the status of this node for the others, when it changes.
type publisher struct {
	interval time.Duration
	log      *slog.Logger
	status   func(ctx context.Context) (view.NodeStatus, error)
	// watch returns what is closed at the next change, and whether there is a first state to
	// report on: before that a node would report that it enforces nothing.
	watch   func() (changed <-chan struct{}, begun bool)
	publish func(ctx context.Context, value []byte) error

	started time.Time
	rested  time.Time // when a whole burst is allowed again
	last    view.NodeStatus
	lastAt  time.Time
	failed  bool
}

// run publishes until ctx ends. A store that refuses is asked again later; nothing depends
// on it.
func (a *publisher) run(ctx context.Context) error {
	a.started = time.Now()
	for {
		changed, begun := a.watch()
		if begun || time.Since(a.started) >= a.interval {
			a.update(ctx)
		}
		select {
		case <-changed:
		case <-time.After(a.interval):
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-time.After(a.delay()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// delay returns how long to wait after a change: a moment, in which other changes come and
// other nodes write, or until the next write is allowed.
func (a *publisher) delay() time.Duration {
	spread := min(announceSpread, a.interval)
	allowed := time.Until(a.rested.Add(-(announceBurst - 1) * a.interval))
	return max(allowed, 0) + spread/3 + rand.N(spread*2/3+1)
}

// update publishes the status when it has changed. The time alone is no news, unless the
// lease might have been lost unnoticed.
func (a *publisher) update(ctx context.Context) {
	now, err := a.status(ctx)
	if err == nil && (!same(now, a.last) || time.Since(a.lastAt) > publishLife/2*a.interval) {
		err = a.write(ctx, now)
	}
	if err != nil && ctx.Err() == nil && !a.failed && !logged(err) {
		a.log.Warn("status of this node cannot be published", "error", err)
	}
	a.failed = err != nil
}

// logged reports whether the store has logged what an error is about.
func logged(err error) bool {
	var by interface{ Logged() bool }
	return errors.As(err, &by) && by.Logged()
}

func (a *publisher) write(ctx context.Context, s view.NodeStatus) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the status of the node: %w", err)
	}
	if err := a.publish(ctx, text); err != nil {
		return err
	}
	a.last, a.lastAt = s, time.Now()
	if a.rested.Before(a.lastAt) {
		a.rested = a.lastAt
	}
	a.rested = a.rested.Add(a.interval)
	return nil
}

// same compares two statuses without their times, and without what was only received: that
// is enforced in a moment, or the renderers say why not.
func same(a, b view.NodeStatus) bool {
	a.Time, b.Time = time.Time{}, time.Time{}
	a.Seen, b.Seen = 0, 0
	return reflect.DeepEqual(a, b)
}
