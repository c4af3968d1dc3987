package configurator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
)

// errCommitted is returned by a second Commit.
var errCommitted = errors.New("the transaction of the configurator was committed before")

// Prepare generates the rules of what changed. Commit calls it if needed; call it separately to
// measure its duration. Nothing can be added to the transaction afterwards.
func (t *Txn) Prepare() {
	if t.prepared {
		return
	}
	t.prepared = true
	t.applyPods()
	t.c.interner.derived.publish(t.c.members, t.updateSet)
}

// Commit sends the changes to the renderers and makes them all commit in parallel. It skips
// renderers that have no changes and did not fail before. With Pace.Turn it does not wait for
// renderers that need longer: their Commit goes on, and what comes meanwhile waits for it.
//
// The error joins those of the renderers that are not at work, each with its name. A renderer keeps
// what it failed to install: the next Commit, even of an empty transaction, tries again. Therefore
// Commit passes changes to renderers and calls them even if ctx is done already.
func (t *Txn) Commit(ctx context.Context) error {
	if t.committed {
		return errCommitted
	}
	t.committed = true
	t.Prepare()
	var started targets
	var work []func()
	turn := t.c.pace.Turn
	for _, x := range t.c.targets {
		switch {
		case x.isDue(t.hasChanges):
			work, started = append(work, x.start(ctx, t.changes, commit{began: t.began}, t.c.pace)), append(started, x)
		case x.running != nil && t.hasChanges:
			x.enqueue(t.changes, time.Now())
		}
	}
	for i, w := range work {
		if turn == 0 && i == len(work)-1 {
			w() // the others work in parallel
		} else {
			go w()
		}
	}
	started.wait(turn, t.began)
	return slices.DeleteFunc(slices.Clone(t.c.targets), func(x *target) bool { return x.running != nil }).err()
}

// applyPods applies the changes of pods, in the order of their names. It releases profiles after it
// has acquired all, so that what moves from one pod to another stays the same object.
func (t *Txn) applyPods() {
	if t.resync {
		for pod := range t.c.pods {
			if _, named := t.pods[pod]; !named {
				t.Remove(pod)
			}
		}
	}
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
	if old != nil && !t.resync && idOfSlice(old.policies) == idOfSlice(change.policies) && slices.Equal(old.ips, change.ips) &&
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
	if !t.resync { // a resync removes the pods that it does not name
		t.hasChanges = true
		t.changes.Remove(pod)
	}
	return old.profile
}
