package vpp

import (
	"context"
	"sync"
	"time"
)

// health is the state of the connection. The goroutine that watches the connection writes it; any
// goroutine may read it.
type health struct {
	mu    sync.Mutex
	up    chan struct{} // closed while connected
	isUp  bool
	epoch int                     // number of connections made so far
	stale bool                    // interfaces have changed since they were read
	asked *answers                // of the connection
	hang  context.CancelCauseFunc // cancels the current calls; nil before the first
}

// follow starts tracking a new connection that is not up yet.
func (h *health) follow(asked *answers) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = asked
}

// set records whether the connection is up. Each time it comes up begins a new epoch; when it is
// lost, calls are cancelled.
func (h *health) set(up bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case up && !h.isUp:
		h.epoch++
		close(h.up)
	case !up && h.isUp:
		h.up = make(chan struct{})
		if h.hang != nil {
			h.hang(errLost)
		}
	case up:
		h.epoch++
	}
	h.isUp = up
}

// endCalls registers the function that cancels calls when the connection is lost.
func (h *health) endCalls(hang context.CancelCauseFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hang = hang
}

// setStale records that interfaces have changed.
func (h *health) setStale() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stale = true
}

// takeEpoch returns the epoch of the connection, and whether interfaces have changed since the last
// call.
func (h *health) takeEpoch() (epoch int, stale bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stale, h.stale = h.stale, false
	return h.epoch, stale
}

// upcoming returns a channel that is closed while the connection is up.
func (h *health) upcoming() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.up
}

func (h *health) connected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isUp
}

func (h *health) unanswered() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isUp {
		return time.Time{}
	}
	return h.asked.unanswered()
}
