package cache

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// resync records what a resync has named.
type resync struct {
	pods map[api.PodID]struct{}
	sets map[api.SetID]*wanted
}

// wanted is the membership of a set in a resync.
type wanted struct {
	added  [][]netip.Prefix
	wasNew bool // the set was empty before, so all its members are wanted
}

// sawPod and sawSet record what a resync names. They do nothing on a nil receiver, outside a
// resync.
func (r *resync) sawPod(id api.PodID) {
	if r != nil {
		r.pods[id] = struct{}{}
	}
}

func (r *resync) sawSet(id api.SetID, s *set, added []netip.Prefix) {
	if r == nil {
		return
	}
	w := r.sets[id]
	if w == nil {
		w = &wanted{wasNew: s.len() == 0}
		r.sets[id] = w
	}
	w.added = append(w.added, added)
}
