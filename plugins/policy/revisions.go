package policy

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/plugins/policy/internal/configurator"
	"github.com/sluice-net/sluice/renderer"
)

// retries says when renderers that failed are tried again.
type retries struct {
	at       time.Time // zero: there is nothing to try again
	pause    time.Duration
	min, max time.Duration // of a pause
}

// schedule plans a retry of what failed. A failure while one is scheduled already does
// not put it off. Where all that failed was refused, another try would end alike:
// whatever changes is one, so none is scheduled.
func (r *retries) schedule(now time.Time, err error) {
	switch {
	case err == nil || renderer.IsRefused(err):
		r.at, r.pause = time.Time{}, 0
	case r.at.IsZero():
		r.pause = min(max(2*r.pause, r.min), r.max)
		r.at = now.Add(r.pause)
	}
}

// due reports whether it is time for a retry.
func (r *retries) due(now time.Time) bool { return !r.at.IsZero() && !now.Before(r.at) }

// revisions knows since when which revision was committed, while renderers defer
// something.
type revisions struct {
	attempts []attempt
}

// attempt is a revision whose changes were committed by a time.
type attempt struct {
	revision int64
	ended    time.Time
}

// advance returns the revision that is enforced after a commit: what was seen when nothing
// is left to do, and while renderers defer something, what all of them enforce. It is false
// when there is no newer one.
func (r *revisions) advance(now time.Time, c *configurator.Configurator, seen int64) (revision int64, newer bool) {
	if c.InSync() {
		r.attempts = nil
		return seen, true
	}
	until, known := c.EnforcedUntil()
	if !known {
		r.attempts = nil // what failed may take back what was enforced
		return 0, false
	}
	n := 0
	for ; n < len(r.attempts) && r.attempts[n].ended.Before(until); n++ {
		revision = r.attempts[n].revision
	}
	r.attempts = append(slices.Delete(r.attempts, 0, n), attempt{seen, now})
	return revision, n > 0
}
