package configurator

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// errCommitted is returned by a second Commit.
var errCommitted = errors.New("the transaction of the configurator was committed before")

// Txn takes the changes of one step. Every Txn must be committed, and before the
// next is begun. Slices that it is given are kept and must not be changed.
type Txn struct {
	c         *Configurator
	resync    bool
	prepared  bool
	committed bool
	told      bool // renderers were told something
	txns      []renderer.Txn
	pods      map[api.PodID]podChange // the last change of each pod
	reclaimed []api.SetID             // dropped sets that are back
}

// podChange is the new state of a pod; without addresses it is gone.
type podChange struct {
	ips      []netip.Addr
	policies []*api.ContivPolicy
	shared   []api.Sharing
}

// NewTxn begins a transaction. With resync, whatever the transaction does not name
// is forgotten, here and by the renderers.
func (c *Configurator) NewTxn(resync bool) *Txn {
	t := &Txn{c: c, resync: resync, told: resync, txns: make([]renderer.Txn, len(c.targets))}
	for i, target := range c.targets {
		t.txns[i] = target.renderer.NewTxn(resync)
	}
	if resync {
		clear(c.sizes)
		clear(c.refused)
		clear(c.retained) // renderers forget what they are not told again
		c.interner.forgetTold()
	}
	return t
}

// UpdateSet changes the members of an address set; see renderer.Txn.
func (t *Txn) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	if len(added)+len(removed) == 0 || !t.c.updateSize(id, len(added), len(removed)) {
		return
	}
	added, removed = t.again(id, added, removed)
	if len(added)+len(removed) == 0 {
		return
	}
	t.c.interner.moved(id, added)
	t.c.interner.moved(id, removed)
	t.updateSet(id, added, removed)
}

func (t *Txn) updateSet(id api.SetID, added, removed []netip.Prefix) {
	t.told = true
	for _, txn := range t.txns {
		txn.UpdateSet(id, added, removed)
	}
}

// Configure says which addresses a local pod has and which policies apply to it. A
// pod without policies is open, but for what others that have one of its addresses do
// not permit. A pod without addresses is removed: there is no traffic of it that could
// be told apart.
func (t *Txn) Configure(pod api.PodID, ips []netip.Addr, policies []*api.ContivPolicy, shared []api.Sharing) {
	if t.pods == nil {
		t.pods = map[api.PodID]podChange{}
	}
	t.pods[pod] = podChange{sortedAddrs(ips), policies, shared}
}

// Remove forgets a pod; an unknown one is no error.
func (t *Txn) Remove(pod api.PodID) { t.Configure(pod, nil, nil, nil) }

// CommitAll makes Commit include renderers to which nothing is told: something may
// have changed in their stacks.
func (t *Txn) CommitAll() { t.told = true }

// Prepare generates the rules of what changed, at most about BatchPairs of them, and tells
// them to the renderers, none of which does anything yet. Commit does it unless it was done, so only
// whoever wants to know how long it takes needs to call it. Nothing can be added
// to the transaction afterwards.
func (t *Txn) Prepare() {
	if t.prepared {
		return
	}
	t.prepared = true
	t.applyPods()
	t.release()
	t.c.interner.tell(t.c.members, t.updateSet)
}

// Commit tells renderers what changed and makes all of them, in parallel, commit.
// Renderers to which nothing is told and that did not fail before are left out.
//
// The error joins those of the renderers, each with its name. What a renderer
// failed to install it keeps: it is tried again by the next Commit, even of an
// empty transaction. Therefore renderers are told, and their Commit called, even
// if ctx is done already.
func (t *Txn) Commit(ctx context.Context) error {
	if t.committed {
		return errCommitted
	}
	t.committed = true
	t.Prepare()
	return t.c.fanOut(ctx, t.txns, t.told)
}

// applyPods tells what changed of pods, in the order of their names. Profiles are
// released after all were acquired, so that what moves from one pod to another
// stays the same object.
func (t *Txn) applyPods() {
	if t.resync {
		for pod := range t.c.pods {
			if _, named := t.pods[pod]; !named {
				t.Remove(pod)
			}
		}
	}
	var unused []*profile
	now := t.selectBatch()
	unused = append(unused, t.reclaim(now)...)
	for _, pod := range slices.SortedFunc(maps.Keys(now), api.PodID.Compare) {
		if p := t.applyPod(pod, now[pod]); p != nil {
			unused = append(unused, p)
		}
	}
	t.closeNew()
	t.applyShares()
	for _, p := range unused {
		t.c.interner.release(p)
	}
}

// applyPod returns the profile that the pod does not use any more.
func (t *Txn) applyPod(pod api.PodID, change podChange) *profile {
	old := t.c.pods[pod]
	if len(change.ips) == 0 {
		return t.removePod(pod, old)
	}
	if old != nil && !t.resync && old.profile != t.c.interner.closedProfile && idOfSlice(old.policies) == idOfSlice(change.policies) && slices.Equal(old.ips, change.ips) &&
		slices.EqualFunc(old.shared, change.shared, api.Sharing.Equal) {
		return nil
	}
	p := t.c.interner.acquire(change.policies, change.shared, t.c.taken, func() (int, string) {
		return t.c.shares.limit(pod.Namespace), tooLarge(pod.Namespace, t.c.shares.namespace)
	})
	t.apply(pod, &podState{change.ips, change.policies, change.shared, p, p.configFor(change.ips)})
	if old == nil {
		return nil
	}
	return old.profile
}

// apply tells renderers what a pod is now.
func (t *Txn) apply(pod api.PodID, state *podState) {
	old := t.c.pods[pod]
	t.c.setPod(pod, state)
	if old == nil || t.resync || !sameConfig(old.config, state.config) {
		t.told = true
		for _, txn := range t.txns {
			txn.Render(pod, state.config)
		}
	}
}

func (t *Txn) removePod(pod api.PodID, old *podState) *profile {
	if old == nil {
		return nil
	}
	t.c.setPod(pod, nil)
	if !t.resync { // which removes what it does not name
		t.told = true
		for _, txn := range t.txns {
			txn.Remove(pod)
		}
	}
	return old.profile
}
