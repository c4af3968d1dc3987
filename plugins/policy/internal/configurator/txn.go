package configurator

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Txn collects the changes of one step. Changes must be called before the next one begins. It keeps
// slices that are passed to it; they must not be modified.
type Txn struct {
	c       *Configurator
	changes renderer.Changes
	pods    map[api.PodID]podChange // the last change of each pod
	done    bool
}

// podChange is the new state of a pod; a pod without addresses is removed.
type podChange struct {
	ips      []netip.Addr
	policies []*api.ContivPolicy
	shared   []api.Sharing
}

// NewTxn begins a transaction.
func (c *Configurator) NewTxn() *Txn { return &Txn{c: c} }

// UpdateSet changes the members of an address set; see renderer.SetChange. A set that no policy names any
// more loses all of them in the transaction of the new lists.
func (t *Txn) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	if len(added)+len(removed) == 0 || !t.c.updateSize(id, len(added), len(removed)) {
		return
	}
	t.c.interner.derived.moved(id, added)
	t.c.interner.derived.moved(id, removed)
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

// apply sets the state of a pod.
func (t *Txn) apply(pod api.PodID, state *podState) {
	old := t.c.pods[pod]
	t.c.setPod(pod, state)
	if old == nil || !sameConfig(old.config, state.config) {
		t.changes.Render(pod, state.config)
	}
}

func sameConfig(a, b renderer.PodConfig) bool {
	return a.Ingress == b.Ingress && a.Egress == b.Egress && slices.Equal(a.IPs, b.IPs)
}
