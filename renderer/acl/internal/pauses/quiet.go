package pauses

import (
	"sync"
	"time"
)

// Timer waits for a moment in which nothing else is to be done. It may be used by any
// number of goroutines.
type Timer struct {
	mu     sync.Mutex
	timer  *time.Timer // nil before the first time
	came   bool        // and no Commit has used it yet
	closed bool
}

// Wait calls prompt when nobody has called wait or cancel for so long.
func (q *Timer) Wait(d time.Duration, prompt func()) {
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

func (q *Timer) come() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.came = !q.closed
	return q.came
}

// Cancel waits no longer.
func (q *Timer) Cancel() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.came = false; q.timer != nil {
		q.timer.Stop()
	}
}

// Take reports whether the moment has come, once.
func (q *Timer) Take() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	came := q.came
	q.came = false
	return came
}

// Stop cancels for good.
func (q *Timer) Stop() {
	q.Cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}
