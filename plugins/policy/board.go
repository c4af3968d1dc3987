package policy

import "sync/atomic"

// published is a status and a channel that announces the next one.
type published struct {
	number  uint64 // number of the state
	status  Status
	refused error         // error of the failed renderers, if retries are of no use
	next    chan struct{} // closed when there is a newer one
}

// board publishes the status and the snapshot to other goroutines. Reads never block.
type board struct {
	status   atomic.Pointer[published]
	snapshot atomic.Pointer[Snapshot]
}

// publish stores a status and wakes the waiters.
func (b *board) publish(now *published) {
	now.next = make(chan struct{})
	if old := b.status.Swap(now); old != nil {
		close(old.next)
	}
}

// Status returns the current status. It never blocks.
func (b *board) Status() Status {
	s, _ := b.Watch()
	return s
}

// Watch returns the current status, and a channel that is closed when the status has changed.
func (b *board) Watch() (Status, <-chan struct{}) {
	if s := b.status.Load(); s != nil {
		return s.status, s.next
	}
	return Status{}, nil
}
