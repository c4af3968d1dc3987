package renderer

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Merge returns the changes that do what a and then b do: apply(apply(s, a), b) is apply(s, Merge(a,
// b)). Of a pod the last state counts; members that join and leave cancel out; a resync replaces what
// was before it, and later changes edit it. A merged cut is a cut.
func Merge(a, b Changes) Changes {
	var m Merger
	m.Add(a)
	m.Add(b)
	return m.Take()
}

// Merger merges changes one after the other, at a cost of the size of each; the members of a set that
// only one of them changes are not looked at. What it holds is bounded by the states between which the
// changes lead, however many there were, and by the pods that came and went between them: see Forget.
// The zero value is empty. It is used by one goroutine at a time.
type Merger struct {
	resync bool
	sets   map[api.SetID]mergedSet
	pods   map[api.PodID]*PodConfig
}

// mergedSet is a change of a set: as it came, or once it was merged with another one, a delta.
type mergedSet struct {
	change SetChange
	delta  delta // nil: the change
}

// Add merges later changes.
func (m *Merger) Add(c Changes) {
	if c.Resync || m.sets == nil {
		*m = Merger{sets: map[api.SetID]mergedSet{}, pods: map[api.PodID]*PodConfig{}, resync: c.Resync || m.resync}
	}
	for id, s := range c.Sets {
		before, ok := m.sets[id]
		if !ok {
			m.sets[id] = mergedSet{change: s}
			continue
		}
		d := before.delta
		if d == nil {
			d = newDelta(before.change, m.resync)
		}
		if d.then(s, m.resync); len(d) == 0 {
			delete(m.sets, id)
		} else {
			m.sets[id] = mergedSet{delta: d}
		}
	}
	for pod, cfg := range c.Pods {
		if m.pods[pod] = cfg; cfg == nil && m.resync {
			delete(m.pods, pod)
		}
	}
}

// Forget drops the change of a pod. It is for a pod that came and went in what was merged: nobody has
// to know that it ended.
func (m *Merger) Forget(pod api.PodID) { delete(m.pods, pod) }

// Take returns what was merged and leaves nothing.
func (m *Merger) Take() Changes {
	c := Changes{Resync: m.resync}
	if len(m.sets) > 0 {
		c.Sets = make(map[api.SetID]SetChange, len(m.sets))
	}
	for id, s := range m.sets {
		if c.Sets[id] = s.change; s.delta != nil {
			c.Sets[id] = s.delta.change()
		}
	}
	if len(m.pods) > 0 {
		c.Pods = m.pods
	}
	*m = Merger{}
	return c
}

// delta is a change of the members of one set: true for those that join, false for those that leave.
type delta map[netip.Prefix]bool

func newDelta(c SetChange, whole bool) delta {
	d := make(delta, len(c.Added)+len(c.Removed))
	d.then(c, whole)
	return d
}

// then adds a later change. With whole the delta has all members: what leaves is just not there.
func (d delta) then(c SetChange, whole bool) {
	for _, p := range c.Removed {
		if joins, ok := d[p]; ok && joins {
			delete(d, p)
		} else if !whole {
			d[p] = false
		}
	}
	for _, p := range c.Added {
		if joins, ok := d[p]; ok && !joins {
			delete(d, p)
		} else {
			d[p] = true
		}
	}
}

// change returns the delta with sorted members.
func (d delta) change() (c SetChange) {
	for _, p := range slices.SortedFunc(maps.Keys(d), netip.Prefix.Compare) {
		if d[p] {
			c.Added = append(c.Added, p)
		} else {
			c.Removed = append(c.Removed, p)
		}
	}
	return c
}
