package policy

import "sync/atomic"

// published is a status and the way to hear of the next one.
type published struct {
	of      uint64 // the number of the state
	status  Status
	refused error         // of the renderers that failed, if no retry mends it
	next    chan struct{} // closed when there is a newer one
}

// board is where the status and the snapshot are for everybody. Reading never waits.
type board struct {
	status   atomic.Pointer[published]
	snapshot atomic.Pointer[Snapshot]
}

// publish puts up a status and wakes those who wait.
func (b *board) publish(now *published) {
	now.next = make(chan struct{})
	if old := b.status.Swap(now); old != nil {
		close(old.next)
	}
}

// Status returns how far the plugin is. It never blocks.
func (b *board) Status() Status {
	s, _ := b.Watch()
	return s
}

// Watch returns how far the plugin is, and what is closed when that has changed.
func (b *board) Watch() (Status, <-chan struct{}) {
	if s := b.status.Load(); s != nil {
		return s.status, s.next
	}
	return Status{}, nil
}
