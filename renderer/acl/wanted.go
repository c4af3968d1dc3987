package acl

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/cache"
)

// want derives the desired content from a plan.
func (r *Renderer) want(p cache.Plan) *wanted {
	w := &wanted{
		r: r, slots: r.slots, m: r.mirror, layout: r.cache.Desired(),
		refusals: &refusals{tooBig: make(map[renderer.Digest]bool)}, plan: &plan{live: make(map[*slot]bool)},
	}
	w.ownership = ownershipOf(&r.options, r.mirror, w.layout, r.interfaces.owned, &r.interfaces.ending)
	w.bindings = &bindings{ownership: w.ownership, slots: r.slots, refusals: w.refusals}
	w.tables = &contents{
		layout: w.layout, ownership: w.ownership, slots: r.slots, refusals: w.refusals, bounds: &r.bounds, threads: int(r.memory.Sessions.Threads),
		expand: expand.New(r.cache.Aggregated), changed: make(map[api.SetID]bool, len(p.Sets)+len(r.slots.unsettled)),
		content: make(map[renderer.Digest]expanded), whole: make(map[renderer.Digest]*cache.Table),
	}
	w.tables.expand.Coarse = r.unenforced.Matters()
	maps.Copy(w.tables.changed, r.slots.unsettled)
	for _, id := range p.Sets {
		w.tables.changed[id] = true
	}
	return w
}

// decide sets the content of slots and the order of changes. changed are the changed parts of the
// global table.
func (w *wanted) decide(changed []layout.Part) {
	tables := slices.DeleteFunc(slices.Clone(w.tables.local), func(t *cache.Table) bool { return w.refusals.tooBig[t.Digest] })
	w.tables.assign(tables)
	for _, t := range tables {
		w.fill(t)
	}
	w.prepareConstants()
	w.prepareGuards()
	if len(w.refusals.tooBig) > 0 || len(w.ownership.blocked) > 0 {
		w.fixed(closedSlot, entries.Everything(entries.Deny))
	}
	if w.layout.Global != nil {
		w.prepareGlobal(changed)
	}
	for _, t := range tables {
		w.order(t)
	}
	for _, name := range []string{openSlot, closedSlot} {
		if s := w.slots.byName[name]; s != nil && w.plan.live[s] {
			w.plan.early = append(w.plan.early, change{place: place{s, 0}, piece: s.want[0]})
		}
	}
}

// prepareConstants sets the content of the ACLs that do not depend on policy, where an interface
// needs them.
func (w *wanted) prepareConstants() {
	// A state without rules must be recognizable, too; see HoldsBeside.
	infra, input, open := len(w.layout.Tables) > 0 || w.r.options.Pods.BlockUnknown, false, false
	for _, n := range w.m.Interfaces {
		if w.r.options.Orientation == Split {
			input = input || w.ownership.tables[n.Index] != nil && w.ownership.senders[n.Index] == nil
			continue
		}
		input, open = input || w.ownership.judgesInput(n), open || w.ownership.isOpen(n)
	}
	if infra || open || input && w.r.options.Orientation == Outputs {
		w.fixed(infraSlot, entries.Infra(w.r.options.Infra))
	}
	if input {
		w.prepareInput()
	}
	if open {
		w.fixed(openSlot, entries.Everything(entries.Reflect))
	}
}

// fill sets the desired content of the slot of a table.
func (w *wanted) fill(t *cache.Table) {
	s := w.slots.local[t.Digest]
	if x, changed := w.tables.content[t.Digest]; changed {
		c, fits := layout.Content{}, len(s.indexes) > 0
		if fits {
			c, fits = w.r.bounds.Refit(s.content(w.m), x.Table, w.tables.how)
		}
		if !fits {
			c = w.r.bounds.New(x.Table)
			if len(s.indexes) > 0 {
				s = w.slots.newLocal()
				w.slots.local[t.Digest] = s
			}
		}
		s.hold(t, c, x.lines)
	}
	w.plan.live[s] = true
}

// order decides when the content of a local slot changes: at once, after interfaces have left it,
// or in a new slot. An interface that moves between two slots must see the new content of the new
// slot and the old content of the old slot.
func (w *wanted) order(t *cache.Table) {
	s := w.slots.local[t.Digest]
	if len(s.indexes) == 0 {
		return // it will be created
	}
	changes, ok := changesOf(w.m, s.places())
	if ok && len(changes) == 0 {
		return
	}
	var joiners, leavers bool
	for _, n := range w.m.Interfaces {
		for _, x := range w.ownership.listBindings(n) {
			bound, wants := x.has(s), w.tables.wants(x, s)
			joiners = joiners || wants && !bound
			leavers = leavers || bound && !wants
		}
	}
	switch {
	case !ok, joiners && leavers, w.frugal && isTwofold(changes):
		w.renew(t)
	case leavers:
		w.pace(s, changes)
		w.plan.late = append(w.plan.late, changes...)
	default:
		w.pace(s, changes)
		w.plan.early = append(w.plan.early, changes...)
	}
}

// renew moves a table to a new slot. The ACLs of its old slot are removed at the end, after
// interfaces have been switched.
func (w *wanted) renew(t *cache.Table) {
	old, s := w.slots.local[t.Digest], w.slots.newLocal()
	if _, known := w.tables.content[t.Digest]; !known {
		w.tables.expandTable(t) // it was patched, so it is not too large
	}
	x := w.tables.content[t.Digest]
	s.hold(t, w.r.bounds.New(x.Table), x.lines)
	w.slots.local[t.Digest] = s
	delete(w.plan.live, old)
	w.plan.live[s] = true
}

// pace switches interfaces to a new ACL one after the other, where a change in place would pause
// the vswitch for too long. A change in place makes VPP remove everything behind the changed ACL
// from all interfaces at once; a switch removes everything from one interface, twice.
func (w *wanted) pace(s *slot, changes []change) {
	for i := range changes {
		c := &changes[i]
		users, able := w.m.UsersOf(c.index())
		behind := c.piece.Count
		for n := c.n; n < len(s.indexes); n++ {
			behind += w.m.ACLs[s.indexes[n]].Piece.Count
		}
		c.paced = able && users > 1 && behind*users > w.r.bounds.pause
	}
}

// prepareInput sets the content of the input ACL.
func (w *wanted) prepareInput() {
	differs := w.r.flows.settle()
	w.inputDiffers = w.inputDiffers || differs
	w.slots.get(reflectSlot).want = nil // it may have been another one
	w.fixed(reflectSlot, w.r.flows.input())
}
