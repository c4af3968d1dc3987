package xdp

import "time"

// learning tracks the endpoints at which mid-stream TCP packets still create a tracked connection:
// for a period after the first attach.
type learning struct {
	period   time.Duration // zero: never
	until    map[uint32]time.Time
	onChange func() // called by another goroutine when a period ends; may be nil
	timer    *time.Timer
}

// learns reports whether an endpoint still learns. For a new endpoint it starts the period, and a
// timer that calls onChange at its end.
func (l *learning) learns(id uint32) bool {
	if l.period <= 0 {
		return false
	}
	until, known := l.until[id]
	if !known {
		until = time.Now().Add(l.period)
		l.until[id] = until
		l.stop()
		l.timer = time.AfterFunc(l.period, func() {
			if l.onChange != nil {
				l.onChange()
			}
		})
	}
	return time.Now().Before(until)
}

// forget makes an endpoint learn again when it is attached again.
func (l *learning) forget(id uint32) { delete(l.until, id) }

// stop stops the timer.
func (l *learning) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}
