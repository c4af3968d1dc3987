package configurator

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
)

// BatchPairs is about how many pairs of a peer and a port one transaction generates lists of. Pods
// beyond that wait for the next transactions, so that no tenant's lists delay others for long. A
// resync is not divided.
const BatchPairs = 1 << 14

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

// podChange is the new state of a pod; without addresses it is gone.
type podChange struct {
	ips      []netip.Addr
	policies []*api.ContivPolicy
	shared   []api.Sharing
}

// waiting is a pod that was told and was not applied yet.
type waiting struct {
	podChange
	since time.Time
}
