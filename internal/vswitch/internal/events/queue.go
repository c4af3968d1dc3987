// Package events queues interface events for clients of VPP's binary API.
package events

import "sync"

// Max is how many events of a client are queued before new ones are dropped: more than a node has
// interfaces, because pods may come all at once.
const Max = 1 << 16

// Queue holds the events of a client until they are sent. It is safe for concurrent use.
type Queue struct {
	Ready chan struct{} // holds a token while events are queued

	mu      sync.Mutex
	waiting [][]byte
	lost    bool // an event was dropped since the last Take
}

// NewQueue returns an empty queue.
func NewQueue() *Queue { return &Queue{Ready: make(chan struct{}, 1)} }

// Put queues an event, and reports whether it is the first one dropped because the client does not
// read.
func (q *Queue) Put(payload []byte) (firstLost bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= Max {
		firstLost, q.lost = !q.lost, true
		return firstLost
	}
	q.waiting = append(q.waiting, payload)
	select {
	case q.Ready <- struct{}{}:
	default: // there is a token
	}
	return false
}

// Take returns the queued events, in order.
func (q *Queue) Take() [][]byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.waiting
	q.waiting, q.lost = nil, false
	return all
}
