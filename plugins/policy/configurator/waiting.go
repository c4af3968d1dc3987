package configurator

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// BatchPairs is about how many pairs of a peer and a port one transaction generates lists of. Pods beyond
// that wait for the next transactions, so that no tenant's lists delay others for long. A resync is
// not divided.
const BatchPairs = 1 << 14

// Waiting returns how many pods wait for their rules: another transaction, be it an empty one, goes
// on with them. A pod that waits keeps the rules that it had, and a new one is closed.
func (c *Configurator) Waiting() int { return len(c.waiting) }

// selectBatch takes the pods that this transaction is to apply and lets the others wait: as many as fit,
// the cheapest first, and beside them the one that has waited longest.
func (t *Txn) selectBatch() map[api.PodID]podChange {
	if t.resync || len(t.c.waiting) == 0 && t.fitsBatch() {
		clear(t.c.waiting)
		return t.pods // as nearly always
	}
	for pod, w := range t.c.waiting {
		if _, named := t.pods[pod]; !named {
			t.Configure(pod, w.ips, w.policies, w.shared)
		}
	}
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
		pairs := work.of(change)
		if i == 0 || work.pairs+pairs <= t.c.batch {
			now[pod] = change
			work.spend(change)
			if i == 0 {
				work.pairs -= pairs // others have room beside it
			}
			continue
		}
		w, waits := t.c.waiting[pod]
		if !waits {
			w.since = time.Now()
		}
		w.podChange = change
		waiting[pod] = w
	}
	t.c.waiting = waiting
	return now
}

// fitsBatch reports whether all pods of the transaction are one batch.
func (t *Txn) fitsBatch() bool {
	work := work{interner: t.c.interner}
	for _, change := range t.pods {
		if work.spend(change); work.pairs > t.c.batch {
			return false
		}
	}
	return true
}

// waiting is a pod that was told and was not applied yet.
type waiting struct {
	podChange
	since time.Time
}

// mayWait reports whether a pod may stay as it is for some time. One that has other addresses may not,
// since another pod may have the old ones; nor may one whose sets are made of others, which may
// change.
func (c *Configurator) mayWait(pod api.PodID, change podChange) bool {
	old := c.pods[pod]
	if old == nil {
		return len(change.ips) > 0
	}
	return slices.Equal(old.ips, change.ips) && !slices.ContainsFunc(old.profile.lists[:], c.interner.hasParts)
}

// hasParts reports whether a list names a set that is made of others.
func (in *interner) hasParts(l *list) bool {
	return l != nil && slices.ContainsFunc(l.sets, func(id api.SetID) bool { return len(in.derived[id].parts()) > 0 })
}

// order puts the shortest lists first, but before them those of the pod that has waited longest.
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

// work is what a transaction generates.
type work struct {
	interner *interner
	pairs    int
	done     map[sliceID]bool // lists of policies of which the pairs are counted
}

// of returns how many pairs the lists of a pod are generated of; none if there are such lists.
func (w *work) of(change podChange) (pairs int) {
	slice := idOfSlice(change.policies)
	if len(change.shared) == 0 && (w.done[slice] || w.interner.bySlice[slice] != nil) {
		return 0
	}
	p := profile{policies: change.policies, shared: change.shared}
	anybody := func(*api.ContivPolicy) bool { return true }
	return p.pairsOf(api.Ingress, anybody) + p.pairsOf(api.Egress, anybody)
}

func (w *work) spend(change podChange) {
	pairs := w.of(change)
	if w.pairs += pairs; pairs > 0 && len(change.shared) == 0 {
		if w.done == nil {
			w.done = map[sliceID]bool{}
		}
		w.done[idOfSlice(change.policies)] = true
	}
}

// pairsOf counts pairs of a peer and a port that rules of some policies name. The blocks of a rule are
// one peer, or a few, but it takes work to find out which.
func (p *profile) pairsOf(d api.Direction, whose func(*api.ContivPolicy) bool) (n int) {
	for policy := range p.all() {
		if !whose(policy) {
			continue
		}
		for _, r := range policy.Rules(d) {
			peers := len(r.Sets)
			if len(r.Blocks) > 0 {
				peers++
			}
			for _, b := range r.Blocks {
				n += 1 + len(b.Except)
			}
			n += max(peers, 1) * max(len(r.Ports), 1)
		}
	}
	return n
}

// closed denies everything. It stands for the rules that a new pod waits for.
var closed = renderer.NewRuleList([]api.ContivRule{{}}, nil)

// closeNew has renderers close the new pods that wait.
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

// closePod has renderers close a pod that waits. It returns the profile that the pod had.
func (t *Txn) closePod(pod api.PodID, ips []netip.Addr) (old *profile) {
	if state := t.c.pods[pod]; state != nil {
		old = state.profile
	}
	p := t.c.interner.closed()
	t.apply(pod, &podState{ips: ips, profile: p, config: p.configFor(ips)})
	return old
}

// reclaim empties the dropped sets that policies applied now name again. Pods that wait and whose
// rules deny what was in a set that is back are closed, because the rules would permit it. It returns
// the profiles that are not used any more.
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

// retainedIn returns the dropped sets that some policies name.
func (c *Configurator) retainedIn(changes map[api.PodID]podChange) map[api.SetID]bool {
	out := map[api.SetID]bool{}
	if len(c.retained) == 0 {
		return out
	}
	for _, change := range changes {
		p := profile{policies: change.policies, shared: change.shared}
		for policy := range p.all() {
			for _, r := range slices.Concat(policy.Ingress, policy.Egress) {
				for _, id := range r.Sets {
					if _, held := c.retained[id]; held {
						out[id] = true
					}
				}
			}
		}
	}
	return out
}

// denies reports whether a rule of the profile denies the members of a set.
func (p *profile) denies(id api.SetID) bool {
	return slices.ContainsFunc(p.lists[:], func(l *list) bool {
		return l != nil && slices.ContainsFunc(l.rules.Rules(), func(r api.ContivRule) bool {
			return r.Action == api.Deny && (r.Src.Set == id || r.Dst.Set == id)
		})
	})
}

// closed returns the profile of a pod that waits for its first rules.
func (in *interner) closed() *profile {
	if in.closedProfile == nil {
		l := &list{key: listKey{rules: closed.Digest()}, rules: closed, uses: 2}
		in.closedProfile = &profile{lists: [2]*list{l, l}, uses: 1} // it is never released
	}
	in.closedProfile.uses++
	return in.closedProfile
}

// DropSet says that no policy names a set any more, whose members are these. Renderers are told when
// no pod waits, whose rules may name it yet.
func (t *Txn) DropSet(id api.SetID, members []netip.Prefix) {
	if t.c.updateSize(id, 0, len(members)) {
		t.c.retained[id] = members
	}
}

// again returns what changes of a set that was dropped and is back before renderers were told.
func (t *Txn) again(id api.SetID, added, removed []netip.Prefix) (_, _ []netip.Prefix) {
	held, ok := t.c.retained[id]
	if !ok {
		return added, removed
	}
	delete(t.c.retained, id)
	t.reclaimed = append(t.reclaimed, id)
	return without(added, held), without(held, added)
}

// without returns the prefixes of a that are not in b; both are sorted.
func without(a, b []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(a), func(p netip.Prefix) bool {
		_, found := slices.BinarySearchFunc(b, p, netip.Prefix.Compare)
		return found
	})
}

// release tells renderers of the sets that no list names any more.
func (t *Txn) release() {
	if len(t.c.waiting) > 0 || len(t.c.retained) == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(t.c.retained)) {
		t.forget(id)
	}
}

// forget tells renderers that a dropped set has no members.
func (t *Txn) forget(id api.SetID) {
	t.c.interner.moved(id, t.c.retained[id])
	t.updateSet(id, nil, t.c.retained[id])
	delete(t.c.retained, id)
}
