package xdp

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// changes are what a transaction says, in order.
type changes struct {
	resync bool
	pods   map[api.PodID]*renderer.PodConfig // nil: removed
	sets   map[api.SetID]setChange
}

// setChange is how the members of a set change. The slices are the caller's.
type setChange struct {
	added, removed []netip.Prefix
	last           map[netip.Prefix]bool // instead, of a set that was told of more than once
}

// UpdateSet records the change of a set; the last that is said of a member counts.
func (t *changes) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	c, again := t.sets[id]
	if !again && (len(added) == 0 || len(removed) == 0) {
		t.sets[id] = setChange{added: added, removed: removed}
		return
	}
	if c.last == nil {
		c.last = make(map[netip.Prefix]bool, len(added)+len(removed))
		c.note(c.added, c.removed)
		c.added, c.removed = nil, nil
	}
	c.note(added, removed)
	t.sets[id] = c
}

func (c setChange) note(added, removed []netip.Prefix) {
	for _, p := range removed {
		c.last[p] = false
	}
	for _, p := range added {
		c.last[p] = true
	}
}

// Render records the configuration of a pod.
func (t *changes) Render(pod api.PodID, cfg renderer.PodConfig) { t.pods[pod] = &cfg }

// Remove records the removal of a pod.
func (t *changes) Remove(pod api.PodID) { t.pods[pod] = nil }

// desired is everything that was told, and a sum that identifies it.
type desired struct {
	pods map[api.PodID]renderer.PodConfig
	mark StateDigest // of the sets; that of endpoints is added by the renderer

	mu     sync.RWMutex // held where sets change; whoever commits reads them without
	sets   map[api.SetID]map[netip.Prefix]struct{}
	before map[api.SetID]past // of sets that changed, when a Commit worked last
}

func newDesired() desired {
	return desired{pods: map[api.PodID]renderer.PodConfig{}, sets: map[api.SetID]map[netip.Prefix]struct{}{}, before: map[api.SetID]past{}}
}

// past is what a set was: what it is but for what changed, or a whole set.
type past struct {
	changed map[netip.Prefix]bool // whether it was a member
	all     map[netip.Prefix]struct{}
	whole   bool
}

func (p past) has(x netip.Prefix, now map[netip.Prefix]struct{}) bool {
	if p.whole {
		_, was := p.all[x]
		return was
	}
	was, changed := p.changed[x]
	_, in := now[x]
	return was || in && !changed
}

// acknowledge calls f when what is told is what is installed.
func (d *desired) acknowledge(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.before)
	f()
}

// wasIn reports whether an address was in a set when a Commit worked last. mu is held.
func (d *desired) wasIn(id api.SetID, a netip.Addr) bool {
	set, before := d.sets[id], d.before[id]
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			return false
		}
		if before.has(p, set) {
			return true
		}
	}
	return false
}

// apply takes over a transaction. update is called with every set that has other members.
func (d *desired) apply(x changes, update func(id api.SetID, added, removed []netip.Prefix)) {
	if x.resync {
		for pod := range d.pods {
			if _, ok := x.pods[pod]; !ok {
				delete(d.pods, pod)
			}
		}
		for id := range d.sets {
			if _, ok := x.sets[id]; !ok {
				x.sets[id] = setChange{}
			}
		}
	}
	for pod, cfg := range x.pods {
		if cfg == nil {
			delete(d.pods, pod)
		} else {
			d.pods[pod] = *cfg
		}
	}
	for _, id := range slices.Sorted(maps.Keys(x.sets)) {
		if added, removed := d.change(id, x.sets[id], x.resync); len(added)+len(removed) > 0 {
			update(id, added, removed)
		}
	}
}

// change changes a set and returns what really changed. With whole, members that are not
// named are removed.
func (d *desired) change(id api.SetID, want setChange, whole bool) (added, removed []netip.Prefix) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set := d.sets[id]
	added, removed = want.difference(set, whole)
	for _, some := range [][]netip.Prefix{added, removed} {
		for _, p := range some {
			d.mark.toggle(memberKey(id, p))
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
		before.note(p, true)
		delete(set, p)
	}
	for _, p := range added {
		before.note(p, false)
		set[p] = struct{}{}
	}
	if d.sets[id] = set; len(set) == 0 {
		delete(d.sets, id)
	}
	return added, removed
}

// note keeps whether what changes was a member when a Commit worked last.
func (p past) note(x netip.Prefix, was bool) {
	if p.changed == nil {
		return
	}
	if _, known := p.changed[x]; !known {
		p.changed[x] = was
	}
}

// difference returns what really changes of a set. With whole, members that are not named are
// removed.
func (c setChange) difference(set map[netip.Prefix]struct{}, whole bool) (added, removed []netip.Prefix) {
	if whole || c.last != nil {
		if c.last == nil {
			c.last = make(map[netip.Prefix]bool, len(c.added))
			c.note(c.added, c.removed)
		}
		for p := range set {
			if in, named := c.last[p]; named && !in || whole && !in {
				removed = append(removed, p)
			}
		}
		for p, in := range c.last {
			if _, is := set[p]; in && !is && p.IsValid() {
				added = append(added, p)
			}
		}
		return added, removed
	}
	return distinct(c.added, func(p netip.Prefix) bool { _, is := set[p]; return !is && p.IsValid() }),
		distinct(c.removed, func(p netip.Prefix) bool { _, is := set[p]; return is })
}

// distinct returns, once each, those for which keep is true: the argument if that is all of it, and
// it is in order.
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

// memberKey identifies that a prefix is in a set.
func memberKey(id api.SetID, p netip.Prefix) []byte {
	var buf [48]byte
	b := binary.LittleEndian.AppendUint64(append(buf[:0], 'm'), uint64(id))
	a := p.Addr().As16()
	return append(append(b, a[:]...), byte(p.Bits()), byte(p.Addr().BitLen()))
}

// toggle adds something to a sum, or takes it off: the order of what is added means nothing.
func (m *StateDigest) toggle(key []byte) {
	sum := sha256.Sum256(key)
	for i := range m {
		m[i] ^= sum[i]
	}
}
