package acl

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// VPP carries out the change of an ACL on all interfaces that have it, in one call, and holds its
// workers meanwhile. So a few interfaces only share the ACLs of a large table, and the others have
// ACLs of their own with the same content. A change takes more calls then, and packets pass between
// any two of them.

// share gives the large tables ACLs for each group of interfaces.
func (w *wanted) share() {
	var large []*cache.Table
	for _, t := range w.layout.Tables {
		if w.tooBig[t.Digest] || !w.isLarge(t) {
			w.local = append(w.local, t)
		} else {
			large = append(large, t)
		}
	}
	groups, sharers := make(map[renderer.Digest]map[uint32]int), w.sharers(large)
	for _, t := range large {
		of := w.groups(t, sharers)
		if !w.hasContent(t, of) {
			if w.expandTable(t); w.tooBig[t.Digest] {
				w.local = append(w.local, t)
				continue
			}
		}
		groups[t.Digest] = of
		w.local = append(w.local, w.divide(t, of)...)
	}
	w.slots.shares = groups
}

// hasContent reports whether it is known what all groups must hold.
func (w *wanted) hasContent(t *cache.Table, groups map[uint32]int) bool {
	if _, changed := w.content[t.Digest]; changed {
		return true
	}
	for _, group := range groups {
		if !w.isExpanded(digestOfGroup(t.Digest, group)) {
			return false
		}
	}
	return true
}

// counterBytes is what an entry takes of VPP's statistics segment for each thread: VPP counts what
// it decides, in a vector that may have grown by half more than it needs.
const counterBytes = 16 + 16/2

// sharers returns how many interfaces are to share the ACLs of a large table: all, where the copies
// would take more than half of the statistics segment of VPP, which aborts when that is used up.
// Where there are copies already, they may take three quarters.
func (w *wanted) sharers(large []*cache.Table) int {
	entries, few := 0, w.r.bounds.sharers
	for _, t := range large {
		users := 0
		for _, n := range w.m.Interfaces {
			if w.who.isToHave(n, t) {
				users++
			}
		}
		entries += w.entriesOf(t) * layout.Ceil(users, few)
	}
	most := w.r.bounds.statistics / 2
	if len(w.slots.shares) > 0 {
		most = w.r.bounds.statistics / 4 * 3
	}
	if entries*counterBytes*int(w.r.memory.Sessions.Threads) > most {
		return len(w.m.Interfaces)
	}
	return few
}

// entriesOf returns how many entries a large table has.
func (w *wanted) entriesOf(t *cache.Table) (n int) {
	if x, changed := w.content[t.Digest]; changed {
		return len(x.Entries)
	}
	for _, s := range w.slots.ofLocal(t) {
		n = max(n, countOf(s.want))
	}
	return n
}

// isLarge reports whether few interfaces are to share the ACLs of a table. One that was large stays
// so until it has become much smaller.
func (w *wanted) isLarge(t *cache.Table) bool {
	x, changed := w.content[t.Digest]
	_, was := w.slots.shares[t.Digest]
	switch {
	case !changed:
		return was
	case was:
		return len(x.Entries) > w.r.bounds.Whole/2
	}
	return !w.r.bounds.IsWhole(x)
}

// groups returns the number of the group of each interface that is to have a large table. Interfaces
// stay where they are, as far as that is known or the ACLs that they have tell, unless all are to
// share.
func (w *wanted) groups(t *cache.Table, sharers int) map[uint32]int {
	before, known := w.slots.shares[t.Digest]
	switch {
	case sharers >= len(w.m.Interfaces):
		before = nil
	case !known:
		before = w.groupsNow(t)
	}
	out, sizes := make(map[uint32]int), make(map[int]int)
	place := func(n *mirror.Interface, group int) {
		out[n.Index] = group
		sizes[group]++
	}
	var others []*mirror.Interface
	for _, n := range w.m.Interfaces {
		if !w.who.isToHave(n, t) {
			continue
		}
		if group, ok := before[n.Index]; ok && sizes[group] < sharers {
			place(n, group)
		} else {
			others = append(others, n)
		}
	}
	for _, n := range others {
		place(n, groupToJoin(sizes, sharers))
	}
	return out
}

// groupsNow numbers the groups that have the ACLs of a slot each.
func (w *wanted) groupsNow(t *cache.Table) map[uint32]int {
	of, numbers, out := w.slots.byACL(), make(map[*slot]int), make(map[uint32]int)
	for _, n := range w.m.Interfaces {
		for _, x := range w.who.seats(n) {
			if x.table != t {
				continue
			}
			for _, index := range x.acls {
				if s := of[index]; s != nil {
					if _, ok := numbers[s]; !ok {
						numbers[s] = len(numbers)
					}
					out[n.Index] = numbers[s]
				}
			}
		}
	}
	return out
}

// byACL returns the slots of local tables.
func (a *slots) byACL() map[uint32]*slot {
	out := make(map[uint32]*slot)
	for _, s := range a.byName {
		if s.isLocal() {
			for _, index := range s.indexes {
				out[index] = s
			}
		}
	}
	return out
}

// groupToJoin returns the group for one more interface: the fullest with room, so that small
// ones end with their interfaces, or a new one.
func groupToJoin(sizes map[int]int, most int) int {
	best, free := -1, 0
	for group, n := range sizes {
		if n > 0 && n < most && (best < 0 || n > sizes[best] || n == sizes[best] && group < best) {
			best = group
		}
	}
	if best >= 0 {
		return best
	}
	for sizes[free] > 0 {
		free++
	}
	return free
}

// isToHave reports whether an interface is to have a table, in either direction.
func (o *ownership) isToHave(n *mirror.Interface, t *cache.Table) bool {
	return o.tables[n.Index] == t || o.senders[n.Index] == t
}

// divide returns a table for each group, and has the interfaces have these.
func (w *wanted) divide(t *cache.Table, groups map[uint32]int) (out []*cache.Table) {
	of := make(map[int]*cache.Table)
	for _, n := range w.m.Interfaces {
		group, ok := groups[n.Index]
		if !ok {
			continue
		}
		part := of[group]
		if part == nil {
			copied := *t
			part = &copied
			part.Digest, part.Pods = digestOfGroup(t.Digest, group), nil
			of[group], w.whole[part.Digest] = part, t
			out = append(out, part)
			if x, changed := w.content[t.Digest]; changed {
				w.content[part.Digest] = x
			}
		}
		part.Pods = append(part.Pods, w.who.pods[n.Index])
		if w.who.tables[n.Index] == t {
			w.who.tables[n.Index] = part
		}
		if w.who.senders[n.Index] == t {
			w.who.senders[n.Index] = part
		}
	}
	return out
}

// digestOfGroup returns the digest of a large table as one group of interfaces has it.
func digestOfGroup(d renderer.Digest, group int) renderer.Digest {
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(slices.Clone(d[:]), uint32(group)))
	return renderer.Digest(sum[:len(d)])
}

// ofLocal returns the slots that hold a local table, by the number of the group.
func (a *slots) ofLocal(t *cache.Table) (out []*slot) {
	of, shared := a.shares[t.Digest]
	if !shared {
		return present(a.local[t.Digest])
	}
	var groups []int
	for _, group := range of {
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	for _, group := range groups {
		out = append(out, present(a.local[digestOfGroup(t.Digest, group)])...)
	}
	return out
}

// pace has interfaces switch to a new ACL, one after the other, where a change in place would pause
// the vswitch for too long: VPP takes what stands behind the changed ACL off all of them at once.
// A switch takes all off one interface, twice.
func (w *wanted) pace(s *slot, changes []change) {
	for i := range changes {
		c := &changes[i]
		users, able := w.users(c.index())
		behind := c.piece.Count
		for n := c.n; n < len(s.indexes); n++ {
			behind += w.m.ACLs[s.indexes[n]].Piece.Count
		}
		c.paced = able && users > 1 && behind*users > w.r.bounds.pause
	}
}

// users returns how many interfaces have an ACL, and whether all of them can be switched to another
// one in its place by adding that and taking this away.
func (w *wanted) users(index uint32) (count int, able bool) {
	able = true
	for _, n := range w.m.Interfaces {
		switch {
		case slices.Contains(n.Bound.In, index):
			count, able = count+1, false
		case slices.Contains(n.Bound.Out, index):
			count++
			_, _, ok := n.Bound.Exchange(n.Bound.With(index, mirror.None))
			able = able && ok
		}
	}
	return count, able
}

// switchOver makes a new ACL and switches interfaces to it. Each of them has the old or the new one
// at any time.
func (w *wanted) switchOver(ctx context.Context, c change) error {
	old := c.index()
	index, err := w.m.Put(ctx, mirror.None, c.slot.tag(c.n, c.piece), c.piece)
	if err != nil {
		return err
	}
	c.slot.indexes = slices.Clone(c.slot.indexes)
	c.slot.indexes[c.n] = index
	for _, n := range w.m.Interfaces {
		if !slices.Contains(n.Bound.Out, old) {
			continue
		}
		if err := w.r.memory.Room(); err != nil {
			return err
		}
		if err := w.m.Bind(ctx, n, n.Bound.With(old, index)); err != nil {
			return err
		}
	}
	return w.m.Remove(ctx, old)
}
