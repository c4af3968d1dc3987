package configurator

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// sink takes the changes of a transaction: a renderer.Txn or a queue.
type sink interface {
	UpdateSet(id api.SetID, added, removed []netip.Prefix)
	Render(pod api.PodID, cfg renderer.PodConfig)
	Remove(pod api.PodID)
}

// queue keeps changes for a renderer, in their order, while its Commit goes on.
type queue struct {
	since   time.Time // of the oldest change
	due     bool      // the next Commit is due, even without changes
	changes []func(sink)
}

// maxQueued bounds the changes of a queue. With more, the event loop waits for the renderer.
const maxQueued = 1 << 16

func (q *queue) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	q.changes = append(q.changes, func(to sink) { to.UpdateSet(id, added, removed) })
}

func (q *queue) Render(pod api.PodID, cfg renderer.PodConfig) {
	q.changes = append(q.changes, func(to sink) { to.Render(pod, cfg) })
}

func (q *queue) Remove(pod api.PodID) {
	q.changes = append(q.changes, func(to sink) { to.Remove(pod) })
}

func (q *queue) isDue() bool { return q != nil && q.due }

func (q *queue) isFull() bool { return q != nil && len(q.changes) >= maxQueued }

func (q *queue) passTo(to sink) {
	for _, change := range q.changes {
		change(to)
	}
}
