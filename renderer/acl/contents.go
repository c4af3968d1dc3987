package acl

import (
	"bytes"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// contents are the entries of local tables, and the assignment of tables to slots.
type contents struct {
	layout    cache.Layout
	ownership *ownership
	slots     *slots
	refusals  *refusals
	bounds    *bounds
	threads   int // of VPP; each thread has counters of its own

	expand  *expand.Expander
	changed map[api.SetID]bool
	how     layout.How                       // how slots take over tables
	content map[renderer.Digest]expanded     // local tables that may have changed
	local   []*cache.Table                   // tables to be held by slots; a large table has one for each group of interfaces
	whole   map[renderer.Digest]*cache.Table // large tables, by the digests of their per-group copies
}

// expanded is an expanded table.
type expanded struct {
	layout.Table
	lines *expand.Lines
}

// share splits large tables into one copy for each group of interfaces. VPP changes an ACL on all
// interfaces that have it in one call, and stops its workers during the call. Therefore only a few
// interfaces share the ACLs of a large table; other groups have ACLs of their own with the same
// content. A change takes more calls, but packets pass between them.
func (c *contents) share() {
	var large []*cache.Table
	for _, t := range c.layout.Tables {
		if c.refusals.tooBig[t.Digest] || !c.isLarge(t) {
			c.local = append(c.local, t)
		} else {
			large = append(large, t)
		}
	}
	groups, sharers := make(map[renderer.Digest]map[uint32]int), c.sharers(large)
	for _, t := range large {
		of := c.groups(t, sharers)
		if !c.hasContent(t, of) {
			if c.expandTable(t); c.refusals.tooBig[t.Digest] {
				c.local = append(c.local, t)
				continue
			}
		}
		groups[t.Digest] = of
		c.local = append(c.local, c.divide(t, of)...)
	}
	c.slots.shares = groups
}

// hasContent reports whether the content is known for all groups.
func (c *contents) hasContent(t *cache.Table, groups map[uint32]int) bool {
	if _, changed := c.content[t.Digest]; changed {
		return true
	}
	for _, group := range groups {
		if !c.isExpanded(digestOfGroup(t.Digest, group)) {
			return false
		}
	}
	return true
}

// sharers returns how many interfaces share the ACLs of a large table. All interfaces share them
// where copies would use more than half of VPP's statistics segment: VPP aborts when the segment is
// full. Existing copies may use three quarters.
func (c *contents) sharers(large []*cache.Table) int {
	entries, few := 0, c.bounds.sharers
	for _, t := range large {
		users := 0
		for _, n := range c.ownership.m.Interfaces {
			if c.ownership.isToHave(n, t) {
				users++
			}
		}
		entries += c.entriesOf(t) * layout.Ceil(users, few)
	}
	most := c.bounds.statistics / 2
	if len(c.slots.shares) > 0 {
		most = c.bounds.statistics / 4 * 3
	}
	if entries*counterBytes*c.threads > most {
		return len(c.ownership.m.Interfaces)
	}
	return few
}

// entriesOf returns the number of entries of a large table.
func (c *contents) entriesOf(t *cache.Table) (n int) {
	if x, changed := c.content[t.Digest]; changed {
		return len(x.Entries)
	}
	for _, s := range c.slots.ofLocal(t) {
		n = max(n, entries.CountOf(s.want))
	}
	return n
}

// isLarge reports whether only a few interfaces may share the ACLs of a table. A large table stays
// large until it has become much smaller.
func (c *contents) isLarge(t *cache.Table) bool {
	x, changed := c.content[t.Digest]
	_, was := c.slots.shares[t.Digest]
	switch {
	case !changed:
		return was
	case was:
		return len(x.Entries) > c.bounds.Whole/2
	}
	return !c.bounds.IsWhole(x.Table)
}

// groups returns the group number of each interface that gets a large table. Interfaces keep their
// group, as known or as derived from their ACLs, unless all interfaces share the ACLs.
func (c *contents) groups(t *cache.Table, sharers int) map[uint32]int {
	before, known := c.slots.shares[t.Digest]
	switch {
	case sharers >= len(c.ownership.m.Interfaces):
		before = nil
	case !known:
		before = c.groupsNow(t)
	}
	out, sizes := make(map[uint32]int), make(map[int]int)
	place := func(n *mirror.Interface, group int) {
		out[n.Index] = group
		sizes[group]++
	}
	var others []*mirror.Interface
	for _, n := range c.ownership.m.Interfaces {
		if !c.ownership.isToHave(n, t) {
			continue
		}
		if group, ok := before[n.Index]; ok && sizes[group] < sharers {
			place(n, group)
		} else {
			others = append(others, n)
		}
	}
	for _, n := range others {
		place(n, layout.GroupToJoin(sizes, sharers))
	}
	return out
}

// groupsNow numbers the current groups: the interfaces with the ACLs of one slot form a group.
func (c *contents) groupsNow(t *cache.Table) map[uint32]int {
	of, numbers, out := c.slots.byACL(), make(map[*slot]int), make(map[uint32]int)
	for _, n := range c.ownership.m.Interfaces {
		for _, x := range c.ownership.listBindings(n) {
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

// divide returns one copy of the table for each group, and assigns the copies to the interfaces.
func (c *contents) divide(t *cache.Table, groups map[uint32]int) (out []*cache.Table) {
	of := make(map[int]*cache.Table)
	for _, n := range c.ownership.m.Interfaces {
		group, ok := groups[n.Index]
		if !ok {
			continue
		}
		part := of[group]
		if part == nil {
			copied := *t
			part = &copied
			part.Digest, part.Pods = digestOfGroup(t.Digest, group), nil
			of[group], c.whole[part.Digest] = part, t
			out = append(out, part)
			if x, changed := c.content[t.Digest]; changed {
				c.content[part.Digest] = x
			}
		}
		part.Pods = append(part.Pods, c.ownership.pods[n.Index])
		if c.ownership.tables[n.Index] == t {
			c.ownership.tables[n.Index] = part
		}
		if c.ownership.senders[n.Index] == t {
			c.ownership.senders[n.Index] = part
		}
	}
	return out
}

// votes returns the votes for each slot.
func (c *contents) votes(slots map[string]*slot) map[*slot]votes {
	of := make(map[uint32]*slot, len(slots))
	out := make(map[*slot]votes, len(slots))
	for _, s := range slots {
		of[s.indexes[0]], out[s] = s, votes{}
	}
	for _, n := range c.ownership.m.Interfaces {
		for _, x := range c.ownership.listBindings(n) {
			for _, index := range x.acls {
				if s := of[index]; s != nil && x.table != nil {
					out[s][x.table]++
				}
			}
		}
	}
	return out
}

// outvoted reports whether a table must leave its slot to another, changed table that more of the
// slot's interfaces get and that the slot can take over.
func (c *contents) outvoted(s *slot, t *cache.Table, v votes) bool {
	first := v.first()
	if first == nil || v[first] <= v[t] || c.refusals.tooBig[first.Digest] || c.slots.local[first.Digest] != nil {
		return false
	}
	x, changed := c.content[first.Digest]
	if !changed {
		return false
	}
	if _, ok := c.bounds.Refit(s.content(c.ownership.m), x.Table, c.how); !ok {
		return false
	}
	if _, known := c.content[t.Digest]; !known {
		c.expandTable(t)
	}
	return true
}

// assign gives every local table a slot: its current slot, unless most of the slot's interfaces
// move to another table; else a slot that already holds equal content; else the slot with the most
// interfaces that will have the table; else a new slot. Therefore, when a few interfaces leave a
// large group, the rest of the group does not change. No table gets a slot that an interface with a
// refused table keeps, unless it is the table that the slot holds.
func (c *contents) assign(tables []*cache.Table) {
	spare := make(map[string]*slot)
	for name, s := range c.slots.byName {
		if s.isLocal() && len(s.indexes) > 0 {
			spare[name] = s
		}
	}
	votes := c.votes(spare)
	local := make(map[renderer.Digest]*slot, len(tables))
	var unplaced []*cache.Table
	for _, t := range tables {
		if s := c.slots.local[t.Digest]; s != nil && spare[s.name] == s && !c.outvoted(s, t, votes[s]) {
			local[t.Digest] = s
			delete(spare, s.name)
		} else {
			unplaced = append(unplaced, t)
		}
	}
	for _, n := range c.ownership.m.Interfaces {
		for _, x := range c.ownership.listBindings(n) {
			maps.DeleteFunc(spare, func(_ string, s *slot) bool { return x.table != nil && c.refusals.tooBig[x.table.Digest] && x.has(s) })
		}
	}
	for _, fits := range []func(*slot, *cache.Table) bool{
		func(s *slot, t *cache.Table) bool {
			return c.exclusively(s, t) && c.bounds.Holds(s.content(c.ownership.m), c.content[t.Digest].Table)
		},
		func(s *slot, t *cache.Table) bool {
			return c.bounds.Holds(s.content(c.ownership.m), c.content[t.Digest].Table) && !c.outvoted(s, t, votes[s])
		},
		c.exclusively,
		func(s *slot, t *cache.Table) bool { return votes[s].first() == t },
	} {
		unplaced = slices.DeleteFunc(unplaced, func(t *cache.Table) bool {
			for _, name := range slices.Sorted(maps.Keys(spare)) {
				if s := spare[name]; fits(s, t) {
					local[t.Digest] = s
					delete(spare, name)
					return true
				}
			}
			return false
		})
	}
	for _, t := range unplaced {
		local[t.Digest] = c.slots.newLocal()
	}
	c.slots.local = local
}

// names reports whether one of the sets has changed.
func (c *contents) names(sets []api.SetID) bool {
	return slices.ContainsFunc(sets, func(id api.SetID) bool { return c.changed[id] })
}

// isCurrent reports whether the ACLs of a table are known to hold the right content.
func (c *contents) isCurrent(t *cache.Table) bool {
	if c.names(t.Sets) {
		return false
	}
	of, shared := c.slots.shares[t.Digest]
	if !shared {
		return c.isExpanded(t.Digest)
	}
	return !slices.ContainsFunc(c.ownership.m.Interfaces, func(n *mirror.Interface) bool {
		group, known := of[n.Index]
		return c.ownership.isToHave(n, t) && (!known || !c.isExpanded(digestOfGroup(t.Digest, group)))
	})
}

// isExpanded reports whether the content of a table's slot is known.
func (c *contents) isExpanded(d renderer.Digest) bool {
	s := c.slots.local[d]
	return s != nil && s.table == d && s.want != nil
}

// expandTable expands a local table that may have changed. It refuses a table that is too large.
func (c *contents) expandTable(t *cache.Table) {
	x, lines, err := c.expand.ExpandLocal(t)
	if err != nil {
		c.refusals.add(err, reasonTable, t.Origins, len(t.Pods))
		c.refusals.tooBig[t.Digest] = true
		return
	}
	c.content[t.Digest] = expanded{c.bounds.NewTable(x), lines}
}

// patch changes the desired content of a table in several ACLs by what its sets changed. It returns
// false when the table must be expanded.
func (c *contents) patch(t *cache.Table) bool {
	slots := c.slots.ofLocal(t)
	if len(slots) == 0 || c.how != layout.Usual || slices.ContainsFunc(slots, func(s *slot) bool {
		return s.lines == nil || s.lines != slots[0].lines || !s.isSettled(c.ownership.m)
	}) {
		return false
	}
	change, ok := c.expand.Change(slots[0].lines, t)
	patched := make([]layout.Content, len(slots))
	for n := 0; ok && n < len(slots); n++ {
		patched[n], ok = c.bounds.Patch(slots[n].content(c.ownership.m), change.Change)
	}
	if !ok {
		return false
	}
	for n, s := range slots {
		s.want, s.lines = patched[n].Pieces, change.Now
	}
	return true
}

// wants reports whether the list must have the slot.
func (c *contents) wants(x listBinding, s *slot) bool {
	return x.table != nil && c.slots.local[x.table.Digest] == s
}

// exclusively reports whether a slot has interfaces, and all of them that will have a table will
// have t.
func (c *contents) exclusively(s *slot, t *cache.Table) bool {
	stay := 0
	for _, n := range c.ownership.m.Interfaces {
		for _, x := range c.ownership.listBindings(n) {
			if !x.has(s) {
				continue
			}
			switch x.table {
			case t:
				stay++
			case nil:
			default:
				return false
			}
		}
	}
	return stay > 0
}

// votes counts, for each table, the lists that have a slot and will have the table.
type votes map[*cache.Table]int

// first returns the table with the most votes, or nil without votes.
func (v votes) first() (out *cache.Table) {
	for t, n := range v {
		if m := v[out]; n > m || n == m && bytes.Compare(t.Digest[:], out.Digest[:]) < 0 {
			out = t
		}
	}
	return out
}

// counterBytes is the use of VPP's statistics segment by one entry for each thread. VPP keeps
// counters in a vector whose capacity may exceed its length by half.
const counterBytes = 16 + 16/2
