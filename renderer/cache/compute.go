package cache

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache/internal/traffic"
)

// Compute updates the tables from the staged state and returns the difference to what the dataplane
// has acknowledged. Without new changes it returns the same plan again.
func (c *Cache) Compute() Plan { return c.build(c.look()) }

// look finds the pods whose tables are stale, and returns why lists must be closed.
func (c *Cache) look() map[listKey]string {
	if c.stale.global {
		c.combiner.refresh(c.lists.opposites, c.addrs.all)
	}
	c.applyMembershipChanges()
	c.markRestricted()
	c.admission.combine()
	return c.admission.decide()
}

// build makes stale tables. Lists in why are closed.
func (c *Cache) build(why map[listKey]string) Plan {
	c.admission.setClosed(why)
	shared := make(blocks)
	for _, id := range sortedPods(c.stale.pods) {
		p := c.stale.pods[id]
		old := p.built
		p.built = c.combiner.build(p, shared)
		// A table of which only the origins change is the same table.
		if e := c.entries.entryFor(p.built); e != p.entry {
			c.entries.bind(p, e)
		} else if e != nil && old != p.built {
			e.table = nil
		}
	}
	clear(c.stale.pods)
	if c.stale.global {
		c.global = c.combiner.global()
	}
	c.lists.purge()
	c.stale.global, c.stale.any = false, false
	return c.plan()
}

func sortedPods[V any](m map[api.PodID]V) []api.PodID {
	out := make([]api.PodID, 0, len(m))
	for id := range m {
		out = append(out, id)
	}
	slices.SortFunc(out, api.PodID.Compare)
	return out
}

// applyMembershipChanges marks the pods whose tables depend on a membership change of a local
// address.
func (c *Cache) applyMembershipChanges() {
	for t := range c.stale.touched {
		if a := c.addrs.all[t.addr]; a != nil {
			for l := range c.lists.naming[t.set] {
				c.rejudge(l, a)
			}
		}
	}
	for l := range c.stale.judged {
		for _, a := range c.addrs.all {
			c.rejudge(l, a)
		}
	}
	clear(c.stale.touched)
	clear(c.stale.judged)
}

// rejudge marks the pods whose tables depend on the verdict of a list about an address, if that has
// changed.
func (c *Cache) rejudge(l *list, a *address) {
	switch {
	case !l.rejudge(a, c.InSet):
	case l.isOpposite:
		c.markAll(a.owners)
	case slices.ContainsFunc(a.owners, func(p *pod) bool { return p.opp != nil }):
		for _, p := range l.pods {
			c.mark(p)
		}
	}
}

func (c *Cache) markAll(pods []*pod) {
	for _, p := range pods {
		c.mark(p)
	}
}

// markRestricted marks the pods that are restricted by an opposite list whose pods have changed.
func (c *Cache) markRestricted() {
	for l := range c.stale.lists {
		for _, a := range c.addrs.all {
			if l.verdict(a, c.InSet).allowed != traffic.Everything {
				c.markAll(a.owners)
			}
		}
	}
	clear(c.stale.lists)
}

// Plan is the difference between the acknowledged state and the staged state. To avoid a window
// with wrong rules, apply it in a fixed order. Begin with additions, then switches of pods that
// leave a replaced table or lose their table. Go on with replacements in place, all other switches,
// and removals.
type Plan struct {
	Added    []*Table      // tables without a predecessor
	Replaced []Replacement // tables that change in place: all their pods get the same new table
	Removed  []*Table      // tables without pods that are not replaced
	Bindings []Binding     // pods whose table changes, also by replacement
	Global   GlobalChange  // From and To are the same pointer when nothing changes
	Sets     []api.SetID   // sets with changed members that a staged table names
	Pods     []api.PodID   // pods that were added or removed, with or without a table
}

// Replacement is a table that is changed in place. Every pod that had Old gets New, unless the pod
// was removed.
type Replacement struct{ Old, New *Table }

// Binding is a pod that gets another table. From and To are nil for no table. To is also nil for a
// removed pod.
type Binding struct {
	Pod      api.PodID
	From, To *Table
}

// GlobalChange is the change of the global table. nil means no table.
type GlobalChange struct{ From, To *Table }

// Empty reports whether the plan changes nothing.
func (p Plan) Empty() bool {
	return len(p.Added)+len(p.Replaced)+len(p.Removed)+len(p.Bindings)+len(p.Sets)+len(p.Pods) == 0 && p.Global.From == p.Global.To
}

// plan compares the staged and the installed tables of the changed pods.
func (c *Cache) plan() Plan {
	var out Plan
	added, removed := make(map[renderer.Digest]*Table), make(map[renderer.Digest]*Table)
	for _, id := range sortedPods(c.changedPods) {
		b := Binding{Pod: id, From: c.installed.table(id)}
		p := c.pods[id]
		if p != nil {
			b.To = p.entry.snapshot()
		}
		if _, installed := c.installed.pods[id]; installed != (p != nil) {
			out.Pods = append(out.Pods, id)
		}
		if b.From == nil && b.To == nil || b.From != nil && b.To != nil && b.From.Digest == b.To.Digest {
			continue
		}
		out.Bindings = append(out.Bindings, b)
		if b.From != nil && c.entries[b.From.Digest] == nil {
			removed[b.From.Digest] = b.From
		}
		if b.To != nil && c.installed.tables[b.To.Digest] == nil {
			added[b.To.Digest] = b.To
		}
	}
	out.Replaced = pairUp(removed, added, out.Bindings)
	out.Added, out.Removed = sortedTables(added), sortedTables(removed)
	out.Global = GlobalChange{c.installed.global, c.global}
	if from, to := c.installed.global, c.global; from != nil && to != nil && from.Digest == to.Digest {
		out.Global.From = to
	}
	out.Sets = c.namedSets()
	return out
}

// pairUp finds the tables that can change in place: removed tables whose remaining pods all get the
// same added table. If several tables become one, the table with the most pods is replaced. It
// removes the pairs from both maps.
func pairUp(removed, added map[renderer.Digest]*Table, bindings []Binding) []Replacement {
	type fate struct {
		to    *Table
		pods  int
		split bool
	}
	fates := make(map[renderer.Digest]*fate)
	for _, b := range bindings {
		if b.From == nil || removed[b.From.Digest] == nil || b.To == nil {
			continue
		}
		f := fates[b.From.Digest]
		if f == nil {
			f = &fate{to: b.To}
			fates[b.From.Digest] = f
		}
		f.pods++
		f.split = f.split || f.to != b.To
	}
	best := make(map[renderer.Digest]*Table)
	for _, old := range sortedTables(removed) {
		f := fates[old.Digest]
		if f == nil || f.split || added[f.to.Digest] == nil {
			continue
		}
		if b := best[f.to.Digest]; b == nil || f.pods > fates[b.Digest].pods {
			best[f.to.Digest] = old
		}
	}
	var out []Replacement
	for _, t := range sortedTables(added) {
		if old := best[t.Digest]; old != nil {
			out = append(out, Replacement{old, t})
			delete(removed, old.Digest)
			delete(added, t.Digest)
		}
	}
	return out
}

// namedSets returns the sets that have changed since the last acknowledgement and that a staged table names.
func (c *Cache) namedSets() []api.SetID {
	var out []api.SetID
	for id := range c.sets.changed {
		if s := c.sets.all[id]; s != nil && s.hasChanged() && (len(c.lists.naming[id]) > 0 || s.derived) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// Naming returns the staged tables that name a set, sorted by digest, with the global table last.
func (c *Cache) Naming(id api.SetID) []*Table {
	found := make(map[renderer.Digest]*Table)
	for l := range c.lists.naming[id] {
		for _, p := range l.pods {
			if p.entry != nil && slices.Contains(p.entry.sets, id) {
				found[p.entry.digest] = p.entry.snapshot()
			}
		}
	}
	out := sortedTables(found)
	if c.global != nil && slices.Contains(c.global.Sets, id) {
		out = append(out, c.global)
	}
	return out
}

// Refused returns the policies whose lists are closed, without their rules.
func (c *Cache) Refused() (out []renderer.Unenforced) {
	for _, p := range c.pods {
		for _, l := range [2]*list{p.own, p.opp} {
			if l == nil || l.closed == "" {
				continue
			}
			asked := c.orientation.ownRules(p.cfg)
			if l.isOpposite {
				asked = c.orientation.oppRules(p.cfg)
			}
			for _, o := range l.policies(asked) {
				out = append(out, renderer.Unenforced{Origin: o, Class: api.ClassLimit, Reason: l.closed, Pods: 1})
			}
		}
	}
	return out
}
