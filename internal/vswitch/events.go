package vswitch

import "sync"

// maxEvents is how many events of a client wait for it before new ones are dropped: more
// than a node has interfaces, because they come all at once when its pods do.
const maxEvents = 1 << 16

// eventQueue holds the events of a client until its door sends them.
type eventQueue struct {
	ready chan struct{} // holds a token while events wait

	mu      sync.Mutex
	waiting [][]byte
	lost    bool // an event, since the queue was taken last
}

func newEventQueue() *eventQueue { return &eventQueue{ready: make(chan struct{}, 1)} }

// put queues an event, and reports whether it is the first one that is lost because the
// client does not read.
func (q *eventQueue) put(payload []byte) (firstLost bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= maxEvents {
		firstLost, q.lost = !q.lost, true
		return firstLost
	}
	q.waiting = append(q.waiting, payload)
	select {
	case q.ready <- struct{}{}:
	default: // there is a token
	}
	return false
}

// take returns the events that wait, in their order.
func (q *eventQueue) take() [][]byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.waiting
	q.waiting, q.lost = nil, false
	return all
}
