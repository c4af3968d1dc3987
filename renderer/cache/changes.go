package cache

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// BeginResync starts a resync. Until EndResync, added lists all members of a set.
func (c *Cache) BeginResync() {
	c.resync = &resync{pods: make(map[api.PodID]struct{}), sets: make(map[api.SetID]*wanted)}
}

// EndResync stages the removal of all pods, sets and members that have not been named since
// BeginResync.
func (c *Cache) EndResync() {
	r := c.resync
	c.resync = nil
	if r == nil {
		return
	}
	for id := range c.pods {
		if _, ok := r.pods[id]; !ok {
			c.RemovePod(id)
		}
	}
	for id, s := range c.sets.all {
		if !s.derived {
			c.keepOnly(id, s, r.sets[id])
		}
	}
}

// keepOnly removes all members except the wanted ones. A nil w removes all.
func (c *Cache) keepOnly(id api.SetID, s *set, w *wanted) {
	keep := make(map[netip.Prefix]struct{})
	if w != nil {
		if w.wasNew {
			return
		}
		for _, added := range w.added {
			for _, p := range added {
				keep[renderer.Unmapped(p)] = struct{}{}
			}
		}
	}
	var gone []netip.Prefix
	for _, p := range s.members() {
		if _, ok := keep[p]; !ok {
			gone = append(gone, p)
		}
	}
	c.UpdateSet(id, nil, gone)
}

// Staged accepts staged changes. Cache and Pair implement it.
type Staged interface {
	UpdateSet(id api.SetID, added, removed []netip.Prefix)
	SetPod(id api.PodID, cfg renderer.PodConfig)
	RemovePod(id api.PodID)
	BeginResync()
	EndResync()
}

// Stage stages changes.
func Stage(to Staged, c renderer.Changes) {
	if c.Resync {
		to.BeginResync()
		defer to.EndResync()
	}
	for id, s := range c.AllSets() {
		to.UpdateSet(id, s.Added, s.Removed)
	}
	for pod, cfg := range c.AllPods() {
		if cfg == nil {
			to.RemovePod(pod)
		} else {
			to.SetPod(pod, *cfg)
		}
	}
}
