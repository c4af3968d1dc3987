// Package events keeps what clients of the binary API are to be told.
package events

import "sync"

// Max is how many events of a client wait for it before new ones are dropped: more
// than a node has interfaces, because they come all at once when its pods do.
const Max = 1 << 16

// Queue holds the events of a client until its door sends them. Its methods may be called by any
// number of goroutines.
type Queue struct {
	Ready chan struct{} // holds a token while events wait

	mu      sync.Mutex
	waiting [][]byte
	lost    bool // an event, since the queue was taken last
}

// NewQueue returns an empty queue.
func NewQueue() *Queue { return &Queue{Ready: make(chan struct{}, 1)} }

// Put queues an event, and reports whether it is the first one that is lost because the
// client does not read.
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

// Take returns the events that wait, in their order.
func (q *Queue) Take() [][]byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.waiting
	q.waiting, q.lost = nil, false
	return all
}
