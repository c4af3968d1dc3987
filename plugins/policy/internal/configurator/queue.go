package configurator

import (
	"maps"
	"net/netip"
	"slices"
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

// queue keeps changes for a renderer while its Commit goes on: of each pod the newest state, so
// that a policy that changes all the time is kept once.
type queue struct {
	since time.Time                         // of the oldest change
	due   bool                              // the next Commit is due, even without changes
	pods  map[api.PodID]*renderer.PodConfig // nil: removed
	sets  []setUpdate
	size  int // of sets: updates and members
}

// setUpdate are the arguments of UpdateSet.
type setUpdate struct {
	id             api.SetID
	added, removed []netip.Prefix
}

// maxQueued bounds the size of a queue. With more, a transaction waits for the renderer.
const maxQueued = 1 << 17

func (q *queue) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	q.sets = append(q.sets, setUpdate{id, added, removed})
	q.size += 1 + len(added) + len(removed)
}

func (q *queue) Render(pod api.PodID, cfg renderer.PodConfig) { q.set(pod, &cfg) }

func (q *queue) Remove(pod api.PodID) { q.set(pod, nil) }

func (q *queue) set(pod api.PodID, cfg *renderer.PodConfig) {
	if q.pods == nil {
		q.pods = map[api.PodID]*renderer.PodConfig{}
	}
	q.pods[pod] = cfg
}

func (q *queue) isDue() bool { return q != nil && q.due }

func (q *queue) isFull() bool { return q != nil && q.size >= maxQueued }

func (q *queue) passTo(to sink) {
	for _, u := range q.sets {
		to.UpdateSet(u.id, u.added, u.removed)
	}
	for _, pod := range slices.SortedFunc(maps.Keys(q.pods), api.PodID.Compare) {
		if cfg := q.pods[pod]; cfg != nil {
			to.Render(pod, *cfg)
		} else {
			to.Remove(pod)
		}
	}
}

// earliest returns the earlier one of two times; a zero time is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
