package configurator

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
)

// work is what a transaction generates.
type work struct {
	interner *interner
	pairs    int
	done     map[sliceID]bool // lists of policies whose pairs have been counted
}

// of returns for how many pairs the lists of a pod must be generated; zero if the lists exist.
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
	if w.pairs += pairs; pairs > 0 {
		w.note(change)
	}
}

// note records that the lists of a pod will exist.
func (w *work) note(change podChange) {
	if len(change.shared) > 0 {
		return
	}
	if w.done == nil {
		w.done = map[sliceID]bool{}
	}
	w.done[idOfSlice(change.policies)] = true
}

// podChange is the new state of a pod; a pod without addresses is removed.
type podChange struct {
	ips      []netip.Addr
	policies []*api.ContivPolicy
	shared   []api.Sharing
}

// waiting is a pod whose change has not been applied yet.
type waiting struct {
	podChange
	since time.Time // of the oldest change that has not been applied
}
