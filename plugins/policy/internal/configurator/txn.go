package configurator

import (
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Txn collects the changes of one step. Every Txn must be committed before the next one begins. It
// keeps slices that are passed to it; they must not be modified.
type Txn struct {
	c          *Configurator
	resync     bool
	prepared   bool
	committed  bool
	hasChanges bool // renderers have changes
	began      time.Time
	changes    renderer.Changes        // for every renderer
	pods       map[api.PodID]podChange // the last change of each pod
}

// podChange is the new state of a pod; a pod without addresses is removed.
type podChange struct {
	ips      []netip.Addr
	policies []*api.ContivPolicy
	shared   []api.Sharing
}

// NewTxn begins a transaction. With resync, whatever the transaction does not name is removed, here
// and in the renderers.
func (c *Configurator) NewTxn(resync bool) *Txn {
	t := &Txn{c: c, resync: resync, hasChanges: resync, began: time.Now(), changes: renderer.Changes{Resync: resync}}
	for _, target := range c.targets {
		target.fresh = target.poll()
	}
	if resync {
		clear(c.sizes)
		clear(c.refused)
		c.interner.derived.forgetPublished()
	}
	return t
}

// Began returns when the transaction began, and with it the Commits of renderers that it starts.
func (t *Txn) Began() time.Time { return t.began }

// UpdateSet changes the members of an address set; see renderer.SetChange. A set that no policy names any
// more loses all of them in the transaction of the new lists.
func (t *Txn) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	if len(added)+len(removed) == 0 || !t.c.updateSize(id, len(added), len(removed)) {
		return
	}
	t.c.interner.derived.moved(id, added)
	t.c.interner.derived.moved(id, removed)
	t.updateSet(id, added, removed)
}

func (t *Txn) updateSet(id api.SetID, added, removed []netip.Prefix) {
	t.hasChanges = true
	t.changes.UpdateSet(id, added, removed)
}

// Configure sets the addresses of a local pod and the policies that apply to it. A pod without
// policies is unrestricted, except by the policies of pods that share one of its addresses. A pod
// without addresses is removed: it has no traffic that could be identified.
func (t *Txn) Configure(pod api.PodID, ips []netip.Addr, policies []*api.ContivPolicy, shared []api.Sharing) {
	if t.pods == nil {
		t.pods = map[api.PodID]podChange{}
	}
	t.pods[pod] = podChange{sortedAddrs(ips), policies, shared}
}

// Remove removes a pod; it ignores an unknown one.
func (t *Txn) Remove(pod api.PodID) { t.Configure(pod, nil, nil, nil) }

// sortedAddrs returns the addresses sorted and without duplicates; it returns its argument if that
// is so already.
func sortedAddrs(ips []netip.Addr) []netip.Addr {
	for i := 1; i < len(ips); i++ {
		if !ips[i-1].Less(ips[i]) {
			return slices.Compact(slices.SortedFunc(slices.Values(ips), netip.Addr.Compare))
		}
	}
	return ips
}

// CommitAll makes Commit include renderers without changes: something may have changed in their
// dataplanes.
func (t *Txn) CommitAll() { t.hasChanges = true }

// Idle reports whether Commit will neither start a renderer nor wait for one. It may be called
// after Prepare.
func (t *Txn) Idle() bool {
	return !slices.ContainsFunc(t.c.targets, func(x *target) bool { return x.isDue(t.hasChanges) })
}

// apply sends the state of a pod to renderers.
func (t *Txn) apply(pod api.PodID, state *podState) {
	old := t.c.pods[pod]
	t.c.setPod(pod, state)
	if old == nil || t.resync || !sameConfig(old.config, state.config) {
		t.hasChanges = true
		t.changes.Render(pod, state.config)
	}
}

func sameConfig(a, b renderer.PodConfig) bool {
	return a.Ingress == b.Ingress && a.Egress == b.Egress && slices.Equal(a.IPs, b.IPs)
}
