package policy

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/plugins/policy/internal/configurator"
	"github.com/sluice-net/sluice/renderer"
)

// retries schedules retries of failed renderers.
type retries struct {
	at       time.Time // zero: nothing to retry
	pause    time.Duration
	min, max time.Duration // of a delay
}

// schedule schedules a retry after a failure. A further failure does not postpone a scheduled
// retry. If all failed renderers refused the state, it schedules none: another try would fail
// equally, and any change is a retry.
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

// revisions records when which revision was committed, while renderers defer something.
type revisions struct {
	attempts []attempt
	failures uint64 // of all renderers, as seen last
}

// attempt is a revision whose changes were committed by a time.
type attempt struct {
	revision int64
	ended    time.Time
}

// advance returns the revision that is enforced after a commit: the seen one if no work is left,
// or, while renderers defer something, the one that all of them enforce. It returns false if there
// is no newer one.
func (r *revisions) advance(now time.Time, c *configurator.Configurator, seen int64) (revision int64, newer bool) {
	failures := r.failures
	r.failures = 0
	for _, x := range c.Renderers() {
		r.failures += x.Failures
	}
	if c.InSync() {
		r.attempts = nil
		return seen, true
	}
	until, known := c.EnforcedUntil()
	if !known || failures != r.failures { // also one that a later commit has followed
		r.attempts = nil // a failure may revert what was enforced
		return 0, false
	}
	n := 0
	for ; n < len(r.attempts) && r.attempts[n].ended.Before(until); n++ {
		revision = r.attempts[n].revision
	}
	r.attempts = append(slices.Delete(r.attempts, 0, n), attempt{seen, now})
	return revision, n > 0
}
