package configurator

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
)

// selectBatch takes the pods that this transaction applies: as many as fit, the cheapest first, and
// in addition the one that has waited longest. The others wait.
func (t *Txn) selectBatch() map[api.PodID]podChange {
	if t.resync || len(t.c.waiting) == 0 && t.fitsBatch() {
		t.endWaits(nil)
		clear(t.c.waiting)
		t.c.Abandon()
		return t.pods // the usual case
	}
	all := map[api.PodID]podChange{}
	for pod, w := range t.c.waiting {
		all[pod] = w.podChange
	}
	maps.Copy(all, t.pods)
	t.pods = all
	now := map[api.PodID]podChange{}
	var rest []api.PodID
	work := work{interner: t.c.interner}
	for pod, change := range t.pods {
		if !t.c.mayWait(pod, change) {
			now[pod] = change
			work.spend(change)
			continue
		}
		rest = append(rest, pod)
	}
	waiting := map[api.PodID]waiting{}
	for i, pod := range t.c.order(rest, t.pods, work) {
		change := t.pods[pod]
		w, waits := t.c.waiting[pod]
		switch pairs := work.of(change); {
		case i > 0 && work.pairs+pairs <= t.c.batch:
			now[pod] = change
			work.spend(change)
			continue
		case i == 0: // the budget for others stays whole
			first, ready := t.first(pod, change, pairs)
			if ready {
				now[pod] = first
			}
			if ready && first.same(change) {
				work.note(change)
				continue
			}
			if ready { // what came after the draft had begun still waits
				t.waited = earliest(t.waited, w.since)
				w.since, waits = t.c.draft.began, true
			}
		}
		if !waits {
			w.since = earliest(t.freed[pod], time.Now())
		}
		w.podChange = change
		waiting[pod] = w
	}
	t.endWaits(waiting)
	t.c.waiting = waiting
	return now
}

// endWaits records since when the changes had waited that this transaction applies: all but those
// that wait further.
func (t *Txn) endWaits(further map[api.PodID]waiting) {
	for pod, w := range t.c.waiting {
		if _, waits := further[pod]; !waits {
			t.waited = earliest(t.waited, w.since)
		}
	}
	for pod, since := range t.freed {
		if _, waits := further[pod]; !waits {
			t.waited = earliest(t.waited, since)
		}
	}
}

// first returns the change of the pod that has waited longest which is to be applied now, if any. A
// large list takes several transactions.
func (t *Txn) first(pod api.PodID, change podChange, pairs int) (podChange, bool) {
	if pairs <= t.c.batch {
		t.c.Abandon()
		return change, true
	}
	return t.c.drafted(pod, change)
}

// fitsBatch reports whether all pods of the transaction form one batch.
func (t *Txn) fitsBatch() bool {
	work := work{interner: t.c.interner}
	for _, change := range t.pods {
		if work.spend(change); work.pairs > t.c.batch {
			return false
		}
	}
	return true
}

// mayWait reports whether a pod may keep its state for some time. A pod whose addresses changed may
// not wait, because another pod may have the old ones; nor may one with sets that are built from
// others, which may change.
func (c *Configurator) mayWait(pod api.PodID, change podChange) bool {
	old := c.pods[pod]
	if old == nil {
		return len(change.ips) > 0
	}
	return slices.Equal(old.ips, change.ips) && !slices.ContainsFunc(old.profile.lists[:], c.interner.hasParts)
}

// Took adapts the size of batches to how long renderers needed for the last Commit.
func (c *Configurator) Took(d time.Duration) {
	switch {
	case len(c.waiting) == 0:
		c.batch = firstBatch
	case d > longCommit:
		c.batch = max(c.batch/2, minBatch)
	case d < longCommit/4:
		c.batch = min(2*c.batch, BatchPairs)
	}
}

// order puts the pod that has waited longest first, then the shortest lists.
func (c *Configurator) order(pods []api.PodID, changes map[api.PodID]podChange, w work) []api.PodID {
	pairs := make(map[api.PodID]int, len(pods))
	for _, pod := range pods {
		pairs[pod] = w.of(changes[pod])
	}
	slices.SortFunc(pods, func(a, b api.PodID) int {
		return cmp.Or(cmp.Compare(pairs[a], pairs[b]), a.Compare(b))
	})
	oldest := -1
	for i, pod := range pods {
		if w, waits := c.waiting[pod]; waits && (oldest < 0 || w.since.Before(c.waiting[pods[oldest]].since)) {
			oldest = i
		}
	}
	if oldest > 0 {
		first := pods[oldest]
		copy(pods[1:], pods[:oldest])
		pods[0] = first
	}
	return pods
}

// closeNew makes renderers block the new pods that wait.
func (t *Txn) closeNew() {
	if len(t.c.waiting) == 0 {
		return
	}
	for _, pod := range slices.SortedFunc(maps.Keys(t.c.waiting), api.PodID.Compare) {
		if t.c.pods[pod] == nil {
			t.closePod(pod, t.c.waiting[pod].ips)
		}
	}
}

// closeAwaited makes renderers block the awaited pods that have no rules, or have them for other
// addresses. It returns the profiles that are no longer used.
func (t *Txn) closeAwaited() (unused []*profile) {
	if len(t.awaited)+len(t.c.awaited) == 0 {
		return nil
	}
	for pod := range t.pods {
		if _, again := t.awaited[pod]; again {
			continue
		}
		if since, was := t.c.awaited[pod]; was {
			if t.freed == nil {
				t.freed = map[api.PodID]time.Time{}
			}
			t.freed[pod] = since
			delete(t.c.awaited, pod)
		}
	}
	for _, pod := range slices.SortedFunc(maps.Keys(t.awaited), api.PodID.Compare) {
		ips := t.awaited[pod]
		if t.c.awaited[pod].IsZero() {
			t.c.awaited[pod] = time.Now()
		}
		if change, configured := t.pods[pod]; configured && slices.Equal(change.ips, ips) {
			continue // with earlier policies
		}
		if w, waits := t.c.waiting[pod]; waits && !slices.Equal(w.ips, ips) {
			t.c.awaited[pod] = earliest(t.c.awaited[pod], w.since)
			delete(t.c.waiting, pod)
		}
		if state := t.c.pods[pod]; state != nil && slices.Equal(state.ips, ips) {
			continue
		}
		if old := t.closePod(pod, ips); old != nil {
			unused = append(unused, old)
		}
	}
	return unused
}

// closePod makes renderers block a waiting pod. It returns the previous profile of the pod.
func (t *Txn) closePod(pod api.PodID, ips []netip.Addr) (old *profile) {
	if state := t.c.pods[pod]; state != nil {
		old = state.profile
	}
	p := t.c.interner.closed()
	t.apply(pod, &podState{ips: ips, profile: p, config: p.configFor(ips)})
	return old
}

// reclaim empties the dropped sets to which newly applied policies refer again. It blocks waiting
// pods whose rules deny what was in such a set, because those rules would now permit it. It returns
// the profiles that are no longer used.
func (t *Txn) reclaim(now map[api.PodID]podChange) (unused []*profile) {
	for id := range t.c.retainedIn(now) {
		t.forget(id)
		t.reclaimed = append(t.reclaimed, id)
	}
	for _, id := range t.reclaimed {
		for pod := range t.c.waiting {
			if state := t.c.pods[pod]; state != nil && state.profile.denies(id) {
				unused = append(unused, t.closePod(pod, state.ips))
			}
		}
	}
	return unused
}

// drafted returns the change of a pod that can be applied now, if any: that which is wanted, or an
// earlier one whose lists were begun before. What was begun is finished, else the lists of a pod
// whose policies change all the time would never be applied.
func (c *Configurator) drafted(pod api.PodID, change podChange) (podChange, bool) {
	if c.draft == nil || c.draft.pod != pod || !slices.Equal(c.draft.change.ips, change.ips) {
		c.Abandon()
		p := &profile{policies: canonical(change.policies), shared: change.shared}
		p.measure()
		c.draft = newDraft(pod, change, c.shares.tooLarge(pod.Namespace, p), c.interner.allowNode)
	}
	ready := c.draft.work(c.steps)
	return c.draft.change, ready
}

// Abandon gives up a list that is generated in several transactions. The pod keeps waiting. It must
// be called when no transaction follows.
func (c *Configurator) Abandon() {
	if c.draft != nil {
		c.draft.stop()
		c.draft = nil
	}
}
