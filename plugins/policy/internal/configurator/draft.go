package configurator

import (
	"iter"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
)

// draftSteps is how much of a large list one transaction generates, in spans and rules: a list of a
// million rules takes 64 transactions of some 8 ms.
const draftSteps = BatchPairs

// draft is the generation of the large lists of a pod in several transactions. The generator runs
// as a coroutine, and nothing else runs meanwhile.
type draft struct {
	pod    api.PodID
	change podChange
	began  time.Time
	steps  int // left in this transaction
	next   func() (struct{}, bool)
	stop   func()
	lists  [2]*finished // what is generated, by direction
	ended  bool         // everything is
}

// abandoned ends the coroutine of a draft.
type abandoned struct{}

// newDraft begins to generate the lists of a pod, but for those that are to be closed.
func newDraft(pod api.PodID, change podChange, closed reasons, allowNode bool) *draft {
	d := &draft{pod: pod, change: change, began: time.Now()}
	policies := canonical(change.policies)
	d.next, d.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil && r != (abandoned{}) {
				panic(r)
			}
		}()
		pause := func(n int) {
			if d.steps -= n; d.steps <= 0 && !yield(struct{}{}) {
				panic(abandoned{})
			}
		}
		for _, direction := range []api.Direction{api.Ingress, api.Egress} {
			if closed[direction] == "" {
				d.lists[direction] = finish(generateWith(pause, "", direction, policies, allowNode, change.shared...), pause)
			}
		}
	})
	return d
}

// work continues, and returns whether everything is generated and to be applied. If that took most
// of the steps, it is applied by another transaction: renderers have as much work with the lists.
func (d *draft) work(steps int) bool {
	d.steps = steps
	if !d.ended {
		_, more := d.next()
		d.ended = !more
	}
	return d.ended && d.steps > steps/2
}

// of returns the list of some policies in one direction, if it was generated.
func (d *draft) of(policies []*api.ContivPolicy, shared []api.Sharing, direction api.Direction) *finished {
	if d == nil || !slices.Equal(canonical(d.change.policies), policies) || !slices.EqualFunc(d.change.shared, shared, api.Sharing.Equal) {
		return nil
	}
	return d.lists[direction]
}

func (p podChange) same(o podChange) bool {
	return idOfSlice(p.policies) == idOfSlice(o.policies) && slices.Equal(p.ips, o.ips) && slices.EqualFunc(p.shared, o.shared, api.Sharing.Equal)
}
