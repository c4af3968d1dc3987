package acl

import (
	"sync"
	"time"
)

// defaultQuiet is short beside the time in which young segments fill up, and long
// beside the pauses in a burst of changes.
const defaultQuiet = 10 * time.Second

// quiet waits for a moment in which nothing else is to be done. It may be used by any
// number of goroutines.
type quiet struct {
	mu     sync.Mutex
	timer  *time.Timer // nil before the first time
	came   bool        // and no Commit has used it yet
	closed bool
}

// wait calls prompt when nobody has called wait or cancel for so long.
func (q *quiet) wait(d time.Duration, prompt func()) {
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

func (q *quiet) come() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.came = !q.closed
	return q.came
}

// cancel waits no longer.
func (q *quiet) cancel() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.came = false; q.timer != nil {
		q.timer.Stop()
	}
}

// take reports whether the moment has come, once.
func (q *quiet) take() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	came := q.came
	q.came = false
	return came
}

// stop cancels for good.
func (q *quiet) stop() {
	q.cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// rest waits for a quiet moment, if there is something to be done in one: a young
// segment that is more than half full. It is called after every commit; a commit that
// was such a moment did what could be done.
func (r *Renderer) rest() {
	if r.options.Quiet < 0 || r.calm || r.mirror == nil || !r.isDue() {
		r.quiet.cancel()
	} else {
		r.quiet.wait(r.options.Quiet, r.link.Prompt)
	}
	r.calm = false
}

// isDue says whether a quiet moment is to be used to make room.
func (r *Renderer) isDue() bool {
	for _, s := range r.slots {
		if r.bounds.isDueAt(s) {
			return true
		}
	}
	return false
}
