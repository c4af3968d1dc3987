package acl

import (
	"sync"
	"time"
)

// timer waits for an idle period. Any goroutine may use it.
type timer struct {
	mu     sync.Mutex
	timer  *time.Timer // nil before first use
	came   bool        // the period has passed, and no Apply has used it yet
	closed bool
}

// Wait calls prompt when neither Wait nor Cancel is called for d.
func (q *timer) Wait(d time.Duration, prompt func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.came = false; q.closed {
		return
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	q.timer = time.AfterFunc(d, func() {
		if q.come() {
			prompt()
		}
	})
}

func (q *timer) come() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.came = !q.closed
	return q.came
}

// Cancel stops waiting.
func (q *timer) Cancel() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.came = false; q.timer != nil {
		q.timer.Stop()
	}
}

// Take reports, once, whether the period has passed.
func (q *timer) Take() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	came := q.came
	q.came = false
	return came
}

// Stop cancels for good.
func (q *timer) Stop() {
	q.Cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}
