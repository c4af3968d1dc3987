package configurator

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

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
		c.interner.derived.forgetPublished()
	}
	return t
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

// sortedAddrs returns the addresses in order and once each; the argument if it is so.
func sortedAddrs(ips []netip.Addr) []netip.Addr {
	for i := 1; i < len(ips); i++ {
		if !ips[i-1].Less(ips[i]) {
			return slices.Compact(slices.SortedFunc(slices.Values(ips), netip.Addr.Compare))
		}
	}
	return ips
}

// CommitAll makes Commit include renderers to which nothing is told: something may
// have changed in their stacks.
func (t *Txn) CommitAll() { t.told = true }

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

func sameConfig(a, b renderer.PodConfig) bool {
	return a.Ingress == b.Ingress && a.Egress == b.Egress && slices.Equal(a.IPs, b.IPs)
}
