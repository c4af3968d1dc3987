package kvstore

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// outageAfter is how long the store may be unreachable before that is logged.
	outageAfter = 500 * time.Millisecond
	// outageEvery is the interval at which a continuing outage is logged.
	outageEvery = time.Minute
)

// outage logs when the store becomes unreachable and when it answers again: one line for all calls
// and watches of a client.
type outage struct {
	log  *slog.Logger
	name string // the endpoints

	mu       sync.Mutex
	answered time.Time // when the last answered call ended
	since    time.Time // since when there is no answer; zero while the store answers
	logged   time.Time // when an outage was last logged
}

// begins records that a call which began at a time was not answered.
func (o *outage) begins(began time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.answered.Before(began) {
		return // others have been answered since
	}
	if o.since.IsZero() {
		o.since = began
	}
	now := time.Now()
	lasts, again := now.Sub(o.since), !o.logged.Before(o.since)
	if lasts >= outageAfter && (!again || now.Sub(o.logged) >= outageEvery) {
		o.logged = now
		o.log.Warn("etcd does not answer, trying again", "endpoints", o.name, "error", err, "for", lasts.Round(100*time.Millisecond))
	}
}

// ends records that the store has answered.
func (o *outage) ends() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if !o.since.IsZero() && !o.logged.Before(o.since) {
		o.log.Info("etcd answers again", "endpoints", o.name, "after", now.Sub(o.since).Round(time.Millisecond))
	}
	o.answered, o.since = now, time.Time{}
}

// covers reports whether the log has, or will have, a line about an outage at the time or later.
func (o *outage) covers(t time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero() || !o.logged.Before(t)
}

// away is the error that the store does not answer, or that the connection was lost.
type away struct {
	error
	outage *outage
	since  time.Time
}

// Unwrap returns the cause.
func (e *away) Unwrap() error { return e.error }

// Logged reports whether the client has already logged the outage, so that callers need not.
func (e *away) Logged() bool { return e.outage.covers(e.since) }
