package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// mailbox is where changes wait for one renderer, and the only place where they do. The engine
// posts and goes on. Whoever works for the renderer, a goroutine of its own or the loop of a host,
// takes all that waits as one value and applies it: while a dataplane is slow, values merge.
//
// The first value is the whole state. Before it there is nothing to enforce: a kick has the renderer
// block the interfaces of pods instead. Afterwards a mailbox is idle, applies, or has failed. What
// failed is retried: by the next value or kick, and, unless the renderer refused it, after a pause
// that doubles.
//
// All methods may be called by any goroutine, but only one at a time may call work.
type mailbox struct {
	renderer renderer.Renderer
	timeout  time.Duration // of one Apply
	min, max time.Duration // of the pause before a retry
	changed  func()        // called when work has ended

	mu      sync.Mutex
	wake    chan struct{} // holds a token if work may be due
	merger  renderer.Merger
	posted  bool          // a value was posted
	waits   bool          // a value waits
	kicked  bool          // Apply is due, even without a value
	since   time.Time     // when the oldest of what waits came
	began   time.Time     // of the running call; zero: none runs
	retryAt time.Time     // zero: no retry is due
	pause   time.Duration // before it

	// waiting has the pods whose newest rules the renderer does not enforce: true while they are in
	// the merger, false once the renderer was given them. held has the pods whose rules the renderer
	// was given: false once their end is in the merger. A pod that came and went is in neither.
	waiting, held map[api.PodID]bool

	synced       bool  // the renderer has enforced everything once
	newest       int64 // revision of the last value
	attempted    int64 // of the last value that the renderer was given
	acknowledged int64 // up to which it enforces everything

	outcome  outcome // of Apply
	blocked  error   // of the last Quarantine
	outcomes []ended // since the last collection
}

// outcome is what is known of a renderer since its last call.
type outcome struct {
	applied    bool // it has been called
	err        error
	applies    uint64
	failures   uint64
	unenforced []renderer.Unenforced
}

// ended is a call that has ended.
type ended struct {
	took        time.Duration
	quarantined bool  // it was Quarantine; else Apply
	unable      bool  // the renderer cannot block interfaces
	holdsRules  bool  // see renderer.Quarantiner
	err         error // of Quarantine
}

func newMailbox(r renderer.Renderer, d *Deps, changed func()) *mailbox {
	return &mailbox{renderer: r, timeout: d.ApplyTimeout, min: d.MinBackoff, max: d.MaxBackoff, changed: changed, wake: make(chan struct{}, 1), waiting: map[api.PodID]bool{}, held: map[api.PodID]bool{}}
}

// post puts changes into the mailbox that lead to a revision.
func (m *mailbox) post(now time.Time, c renderer.Changes, revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.newest = revision
	if c.Empty() {
		m.acknowledgeRest()
		return
	}
	m.posted, m.waits = true, true
	if m.since.IsZero() {
		m.since = now
	}
	m.merger.Add(c)
	for pod, cfg := range c.Pods {
		m.recordMerged(pod, cfg != nil)
	}
	m.signal()
}

// recordMerged records that rules of a pod, or its end, are in the merger.
func (m *mailbox) recordMerged(pod api.PodID, lives bool) {
	_, held := m.held[pod]
	if held {
		m.held[pod] = lives
	}
	if lives {
		m.waiting[pod] = true
		return
	}
	delete(m.waiting, pod)
	if !held {
		m.merger.Forget(pod)
	}
}

// handOver records that the renderer is given what is in the merger.
func (m *mailbox) handOver() {
	maps.DeleteFunc(m.held, func(_ api.PodID, lives bool) bool { return !lives })
	for pod := range m.waiting {
		m.waiting[pod], m.held[pod] = false, true
	}
}

// acknowledgeRest acknowledges the newest revision if the renderer enforces all that came: a value
// that changes nothing needs no call.
func (m *mailbox) acknowledgeRest() {
	if m.began.IsZero() && !m.waits && (m.outcome.err == nil || renderer.IsNoInterface(m.outcome.err)) {
		m.acknowledged = m.newest
	}
}

// forget begins to count revisions anew, for another store.
func (m *mailbox) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.newest, m.attempted, m.acknowledged = 0, 0, 0
}

// kick makes the renderer look at its dataplane, where something may have changed: the pauses before
// retries begin anew.
func (m *mailbox) kick(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pause, m.retryAt = 0, time.Time{}
	m.again(now)
}

// retry makes a renderer that failed try again, unless it refused the state.
func (m *mailbox) retry(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.retryAt.IsZero() {
		m.again(now)
	}
}

func (m *mailbox) again(now time.Time) {
	if m.kicked = true; m.since.IsZero() {
		m.since = now
	}
	m.signal()
}

func (m *mailbox) signal() {
	select {
	case m.wake <- struct{}{}:
	default: // there is a token
	}
}

// run works until ctx ends.
func (m *mailbox) run(ctx context.Context) {
	for {
		for m.work(ctx) {
		}
		var due <-chan time.Time
		if at := m.nextRetry(); !at.IsZero() {
			due = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-due:
			m.retry(time.Now())
		}
	}
}

// nextRetry returns when a retry is due; zero: never.
func (m *mailbox) nextRetry() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.retryAt
}

// work calls the renderer once, if that is due, and reports whether it was. It passes changes on
// with a context that has ended, too: from then on they are the renderer's.
func (m *mailbox) work(ctx context.Context) bool {
	m.mu.Lock()
	if !m.waits && !m.kicked {
		m.mu.Unlock()
		return false
	}
	began, quarantine := time.Now(), !m.posted
	m.waits, m.kicked, m.since, m.began = false, false, time.Time{}, began
	merger := m.merger
	m.merger = renderer.Merger{}
	m.attempted = m.newest
	m.handOver()
	if !m.retryAt.After(began) {
		m.retryAt = time.Time{}
	}
	m.mu.Unlock()

	// A panic of a renderer is not caught: a crash is better than a dataplane that is no longer
	// updated.
	limited, cancel := context.WithTimeout(ctx, m.timeout)
	var e ended
	var err error
	var unenforced []renderer.Unenforced
	if quarantine {
		e = m.quarantine(limited)
	} else {
		err = m.renderer.Apply(limited, merger.Take()) // it sorts, and readers do not wait for that
		if r, ok := renderer.As[renderer.Reporter](m.renderer); ok {
			unenforced = r.Unenforced()
		}
	}
	cancel()

	m.mu.Lock()
	now := time.Now()
	e.took, m.began = now.Sub(began), time.Time{}
	m.outcomes = append(m.outcomes, e)
	if quarantine {
		m.blocked = e.err
		m.schedule(now, e.err)
	} else {
		m.settle(now, err)
		m.outcome.unenforced = unenforced
	}
	m.mu.Unlock()
	m.changed()
	return true
}

func (m *mailbox) quarantine(ctx context.Context) ended {
	q, ok := renderer.As[renderer.Quarantiner](m.renderer)
	if !ok {
		return ended{quarantined: true, unable: true}
	}
	holdsRules, err := q.Quarantine(ctx)
	if err != nil {
		err = m.named(err)
	}
	return ended{quarantined: true, holdsRules: holdsRules, err: err}
}

func (m *mailbox) named(err error) error {
	return fmt.Errorf("renderer %s: %w", m.renderer.Name(), err)
}

// settle records how an Apply ended. A pod without an interface does not hold back the revision of
// the node: everything else is installed, and the renderer names the pod.
func (m *mailbox) settle(now time.Time, err error) {
	o := &m.outcome
	o.applied = true
	m.schedule(now, err)
	if err == nil {
		o.err = nil
		o.applies++
	} else {
		o.failures++
		o.err = m.named(err)
		if !renderer.IsNoInterface(err) {
			return
		}
	}
	maps.DeleteFunc(m.waiting, func(_ api.PodID, posted bool) bool { return !posted })
	m.acknowledged, m.synced = m.attempted, true
	m.acknowledgeRest()
}

// schedule schedules a retry after a failure. A further failure does not postpone one that is
// scheduled. A refusal is not retried: another try would fail equally.
func (m *mailbox) schedule(now time.Time, err error) {
	switch {
	case err == nil || renderer.IsRefused(err):
		m.retryAt, m.pause = time.Time{}, 0
	case m.retryAt.IsZero():
		m.pause = min(max(2*m.pause, m.min), m.max)
		m.retryAt = now.Add(m.pause)
	}
}

// mailboxStatus is the state of a mailbox for the status of the plugin.
type mailboxStatus struct {
	outcome
	busySince    time.Time // when what goes on began, or what waits came; zero: neither
	acknowledged int64
	synced       bool
	ended        []ended // since the last call
	waiting      int     // pods whose newest rules the renderer does not enforce yet
}

// collect returns the state, and what has ended since the last call.
func (m *mailbox) collect() mailboxStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := mailboxStatus{outcome: m.outcome, busySince: m.busy(), acknowledged: m.acknowledged, synced: m.synced, ended: m.outcomes, waiting: len(m.waiting)}
	m.outcomes = nil
	return s
}

func (m *mailbox) busy() time.Time {
	if !m.began.IsZero() {
		return m.began
	}
	return m.since
}

// busySince returns when the running call began, or when what waits came; zero: neither.
func (m *mailbox) busySince() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.busy()
}

// waitingPods returns the pods whose newest rules the renderer does not enforce yet, in no order.
func (m *mailbox) waitingPods() []api.PodID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.waiting))
}

// err returns the error of the last call, with the name of the renderer.
func (m *mailbox) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.posted {
		return m.blocked
	}
	return m.outcome.err
}
