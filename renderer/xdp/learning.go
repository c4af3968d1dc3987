package xdp

import "time"

// learning knows for which endpoints the middle of a TCP flow still makes a tracked connection: for
// a period since they were first seen.
type learning struct {
	period time.Duration // zero: never
	until  map[uint32]time.Time
	wake   func() // called when a period ends, by another goroutine; nil is none
	timer  *time.Timer
}

// learns reports whether an endpoint still learns, and sees to it that somebody looks when that
// ends.
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
			if l.wake != nil {
				l.wake()
			}
		})
	}
	return time.Now().Before(until)
}

// forget has an endpoint learn again when it comes back.
func (l *learning) forget(id uint32) { delete(l.until, id) }

// stop wakes nobody any more.
func (l *learning) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}
