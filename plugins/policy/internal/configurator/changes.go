package configurator

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Changes generates the rules of what changed, and returns the changes for renderers: one consistent
// cut. Nothing can be added to the transaction afterwards.
func (t *Txn) Changes() renderer.Changes {
	if !t.done {
		t.done = true
		t.applyPods()
		t.c.interner.derived.publish(t.c.members, t.changes.UpdateSet)
	}
	return t.changes
}

// applyPods applies the changes of pods, in the order of their names. It releases profiles after it
// has acquired all, so that what moves from one pod to another stays the same object.
func (t *Txn) applyPods() {
	var unused []*profile
	for _, pod := range slices.SortedFunc(maps.Keys(t.pods), api.PodID.Compare) {
		if p := t.applyPod(pod, t.pods[pod]); p != nil {
			unused = append(unused, p)
		}
	}
	for _, p := range unused {
		t.c.interner.release(p)
	}
}

// applyPod returns the profile that the pod no longer uses.
func (t *Txn) applyPod(pod api.PodID, change podChange) *profile {
	old := t.c.pods[pod]
	if len(change.ips) == 0 {
		return t.removePod(pod, old)
	}
	if old != nil && slices.Equal(old.policies, change.policies) && slices.Equal(old.ips, change.ips) &&
		slices.EqualFunc(old.shared, change.shared, api.Sharing.Equal) {
		return nil
	}
	p := t.c.interner.acquire(change.policies, change.shared, t.c.taken)
	t.apply(pod, &podState{change.ips, change.policies, change.shared, p, p.configFor(change.ips)})
	if old == nil {
		return nil
	}
	return old.profile
}

func (t *Txn) removePod(pod api.PodID, old *podState) *profile {
	if old == nil {
		return nil
	}
	t.c.setPod(pod, nil)
	t.changes.Remove(pod)
	return old.profile
}
