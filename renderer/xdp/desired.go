package xdp

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// desired is the desired state of all pods and sets, and its digest.
type desired struct {
	pods     map[api.PodID]renderer.PodConfig
	digester digester
	digest   StateDigest // of the sets only; digestOf adds the endpoints

	mu     sync.RWMutex // held to change sets; the goroutine of an Apply reads them without it
	sets   map[api.SetID]map[netip.Prefix]struct{}
	before map[api.SetID]past // changed sets, as they were when an Apply last succeeded
}

func newDesired(secret uint64) desired {
	return desired{digester: newDigester(secret), pods: map[api.PodID]renderer.PodConfig{}, sets: map[api.SetID]map[netip.Prefix]struct{}{}, before: map[api.SetID]past{}}
}

// past is a set as it was when an Apply last succeeded: as a difference to now, or whole.
type past struct {
	changed map[netip.Prefix]bool // whether the prefix was a member
	all     map[netip.Prefix]struct{}
	whole   bool
}

func (p past) wasMember(x netip.Prefix, now map[netip.Prefix]struct{}) bool {
	if p.whole {
		_, was := p.all[x]
		return was
	}
	was, changed := p.changed[x]
	_, in := now[x]
	return was || in && !changed
}

// acknowledge forgets the past of all sets and calls f, while no reader can see the sets.
func (d *desired) acknowledge(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.before)
	f()
}

// wasIn reports whether an address was in a set when an Apply last succeeded. The caller holds mu.
func (d *desired) wasIn(id api.SetID, a netip.Addr) bool {
	set, before := d.sets[id], d.before[id]
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			return false
		}
		if before.wasMember(p, set) {
			return true
		}
	}
	return false
}

// apply takes changes over. It calls update for every set whose members changed.
func (d *desired) apply(c renderer.Changes, update func(id api.SetID, added, removed []netip.Prefix)) {
	sets := c.Sets
	if c.Resync {
		for pod := range d.pods {
			if c.Pods[pod] == nil {
				delete(d.pods, pod)
			}
		}
		sets = make(map[api.SetID]renderer.SetChange, len(d.sets))
		for id := range d.sets {
			sets[id] = renderer.SetChange{}
		}
		maps.Copy(sets, c.Sets)
	}
	for pod, cfg := range c.Pods {
		if cfg == nil {
			delete(d.pods, pod)
		} else {
			d.pods[pod] = *cfg
		}
	}
	for _, id := range slices.Sorted(maps.Keys(sets)) {
		if added, removed := d.change(id, sets[id], c.Resync); len(added)+len(removed) > 0 {
			update(id, added, removed)
		}
	}
}

// change changes a set and returns the difference. With whole, it removes all members that the
// change does not name.
func (d *desired) change(id api.SetID, want renderer.SetChange, whole bool) (added, removed []netip.Prefix) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set := d.sets[id]
	added, removed = difference(set, want, whole)
	digest := d.digester.members(id)
	for _, some := range [][]netip.Prefix{added, removed} {
		for _, p := range some {
			d.digest.toggle(digest(p))
		}
	}
	before, changed := d.before[id]
	switch {
	case !changed && len(set) == 0:
		d.before[id] = past{whole: true}
	case !changed && len(removed) == len(set):
		d.before[id], set = past{all: set, whole: true}, nil
	case !changed:
		before.changed = make(map[netip.Prefix]bool, len(added)+len(removed))
		d.before[id] = before
	}
	if set == nil {
		set = make(map[netip.Prefix]struct{}, len(added))
	}
	for _, p := range removed {
		before.recordMember(p, true)
		delete(set, p)
	}
	for _, p := range added {
		before.recordMember(p, false)
		set[p] = struct{}{}
	}
	if d.sets[id] = set; len(set) == 0 {
		delete(d.sets, id)
	}
	return added, removed
}

// recordMember records whether a changed prefix was a member when an Apply last succeeded.
func (p past) recordMember(x netip.Prefix, was bool) {
	if p.changed == nil {
		return
	}
	if _, known := p.changed[x]; !known {
		p.changed[x] = was
	}
}

// difference returns which members a change really adds and removes. With whole, it removes all
// members that the change does not add.
func difference(set map[netip.Prefix]struct{}, c renderer.SetChange, whole bool) (added, removed []netip.Prefix) {
	isNew := func(p netip.Prefix) bool { _, is := set[p]; return !is && p.IsValid() }
	if whole {
		named := make(map[netip.Prefix]bool, len(c.Added))
		for _, p := range c.Added {
			named[p] = true
		}
		for p := range set {
			if !named[p] {
				removed = append(removed, p)
			}
		}
		return distinct(c.Added, isNew), removed
	}
	return distinct(c.Added, isNew), distinct(c.Removed, func(p netip.Prefix) bool { _, is := set[p]; return is })
}

// distinct returns the prefixes for which keep is true, without duplicates. It returns the argument
// itself if that is sorted and has no others.
func distinct(all []netip.Prefix, keep func(netip.Prefix) bool) []netip.Prefix {
	out := all
	for i, p := range all {
		if !keep(p) || i > 0 && all[i-1].Compare(p) >= 0 {
			out = slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return !keep(p) })
			slices.SortFunc(out, netip.Prefix.Compare)
			return slices.Compact(out)
		}
	}
	return out
}
