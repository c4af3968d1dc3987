package acl

import (
	"context"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// wanted is what the vswitch must hold after a commit, and the way there.
type wanted struct {
	r       *Renderer
	slots   *slots
	m       *mirror.Mirror
	layout  cache.Layout
	expand  *expand.Expander
	changed map[api.SetID]bool

	who    *ownership       // of interfaces
	guards map[uint32]*slot // by interface; not with Split
	// inputDiffers says that inputs make sessions for other packets than before.
	inputDiffers bool
	refused      []error
	// oversize says of which rules tables are refused.
	oversize []renderer.Unenforced
	tooBig   map[renderer.Digest]bool // tables that are refused

	local   []*cache.Table                   // that slots hold: of large ones, one for each group of interfaces
	whole   map[renderer.Digest]*cache.Table // large tables, by the digests of what groups have of them
	content map[renderer.Digest]layout.Table // of local tables that may have changed
	how     layout.How                       // slots take tables over
	live    map[*slot]bool                   // what is held afterwards
	early   []change                         // in place, before interfaces are switched
	late    []change                         // in place, after interfaces have left
	slow    []change                         // when it is the turn of their slots, by slot
	turns   []*mirror.Interface              // that are switched, in this order
	frugal  bool                             // no interface is to have the old and the new content of its ACLs, all at the same time
	lacking int                              // tables, and parts of one, that are refused for want of memory
	needed  uint64                           // bytes at the worst moment, if nothing is refused
}

// want collects what a plan leads to.
func (r *Renderer) want(plan cache.Plan) *wanted {
	w := &wanted{
		r: r, slots: r.slots, m: r.mirror, layout: r.cache.Desired(), expand: expand.New(r.cache.Members),
		changed: make(map[api.SetID]bool), tooBig: make(map[renderer.Digest]bool),
		content: make(map[renderer.Digest]layout.Table), whole: make(map[renderer.Digest]*cache.Table), live: make(map[*slot]bool),
	}
	if r.calm {
		w.how = layout.Quietly
	}
	w.expand.Coarse = r.shortfall.Matters()
	for _, id := range plan.Sets {
		w.changed[id] = true
	}
	w.who = ownershipOf(&r.options, r.mirror, w.layout, r.owned, &r.ending)
	return w
}

func (w *wanted) sizes() layout.Sizes { return w.r.bounds.Sizes }

// names says whether one of the sets has changed.
func (w *wanted) names(sets []api.SetID) bool {
	return slices.ContainsFunc(sets, func(id api.SetID) bool { return w.changed[id] })
}

// isCurrent says whether it is known what the ACLs of a table hold, and that this
// is what they must hold.
func (w *wanted) isCurrent(t *cache.Table) bool {
	if w.names(t.Sets) {
		return false
	}
	of, shared := w.slots.shares[t.Digest]
	if !shared {
		return w.isExpanded(t.Digest)
	}
	return !slices.ContainsFunc(w.m.Interfaces, func(n *mirror.Interface) bool {
		group, known := of[n.Index]
		return w.who.isToHave(n, t) && (!known || !w.isExpanded(digestOfGroup(t.Digest, group)))
	})
}

// isExpanded says whether it is known what the slot of a table holds, and it need not change by
// itself.
func (w *wanted) isExpanded(d renderer.Digest) bool {
	s := w.slots.local[d]
	return s != nil && s.table == d && s.want != nil && (w.how != layout.Quietly || !w.r.bounds.isDueAt(s))
}

// expandTable expands a local table that may have changed. One that is too large is
// refused.
func (w *wanted) expandTable(t *cache.Table) {
	x, err := w.expand.Expand(t, 0, len(t.Rules))
	if err != nil {
		w.refuse(err, reasonTable, t.Origins, len(t.Pods))
		w.tooBig[t.Digest] = true
		return
	}
	w.content[t.Digest] = w.sizes().NewTable(x)
}

// seat is one of the two lists of an interface, and the table that it is to have.
type seat struct {
	acls  []uint32 // bound now
	table *cache.Table
}

// seats returns the lists of an interface.
func (o *ownership) seats(n *mirror.Interface) [2]seat {
	return [2]seat{{n.Bound.In, o.senders[n.Index]}, {n.Bound.Out, o.tables[n.Index]}}
}

// has says whether the list has a slot.
func (x seat) has(s *slot) bool { return len(s.indexes) > 0 && slices.Contains(x.acls, s.indexes[0]) }

// wants says whether the list is to have a slot.
func (w *wanted) wants(x seat, s *slot) bool {
	return x.table != nil && w.slots.local[x.table.Digest] == s
}

// wholly says whether a slot has interfaces and all that stay bound to a table are
// to have this one.
func (w *wanted) wholly(s *slot, t *cache.Table) bool {
	stay := 0
	for _, n := range w.m.Interfaces {
		for _, x := range w.who.seats(n) {
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

// prepare decides which slots hold what, and refuses what the memory of the vswitch does not
// suffice for. Nothing is called that changes anything.
func (w *wanted) prepare(ctx context.Context) error {
	for _, t := range w.layout.Tables {
		if !w.isCurrent(t) {
			w.expandTable(t)
		}
	}
	w.share()
	return w.fit(ctx, w.expandGlobal())
}

// decide says which slots hold what, and what changes when. Of the global table some parts have
// changed.
func (w *wanted) decide(changed []layout.Part) {
	tables := slices.DeleteFunc(slices.Clone(w.local), func(t *cache.Table) bool { return w.tooBig[t.Digest] })
	w.assign(tables)
	for _, t := range tables {
		w.fill(t)
	}
	w.prepareConstants()
	w.prepareGuards()
	if len(w.tooBig) > 0 || len(w.who.held) > 0 {
		w.fixed(closedSlot, entries.Everything(entries.Deny))
	}
	if w.layout.Global != nil {
		w.prepareGlobal(changed)
	}
	for _, t := range tables {
		w.order(t)
	}
	w.lineUp()
	for _, name := range []string{openSlot, closedSlot} {
		if s := w.slots.byName[name]; s != nil && w.live[s] {
			w.early = append(w.early, change{place: place{s, 0}, piece: s.want[0]})
		}
	}
}

// prepareConstants decides what the ACLs hold that do not depend on policy, as far as an interface
// is to have them.
func (w *wanted) prepareConstants() {
	// A state without rules is known, too; see holdsRules.
	infra, input, open := len(w.layout.Tables) > 0 || w.r.options.HoldUnknown, false, false
	for _, n := range w.m.Interfaces {
		if w.r.options.Orientation == Split {
			input = input || w.who.tables[n.Index] != nil && w.who.senders[n.Index] == nil
			continue
		}
		input, open = input || w.who.judgesInput(n), open || w.who.isOpen(n)
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

// fill says what the slot of a table must hold.
func (w *wanted) fill(t *cache.Table) {
	s := w.slots.local[t.Digest]
	if x, changed := w.content[t.Digest]; changed {
		c, fits := layout.Content{}, len(s.indexes) > 0
		if fits {
			c, fits = w.sizes().Refit(s.content(w.m), x, w.how)
		}
		if !fits {
			c = w.sizes().New(x)
			if len(s.indexes) > 0 {
				s = w.slots.newLocal()
				w.slots.local[t.Digest] = s
			}
		}
		if s.table != (renderer.Digest{}) {
			s.turn.table = s.table
		}
		s.want, s.roles, s.table = c.Pieces, c.Roles, t.Digest
	}
	w.live[s] = true
}

// fixed prepares a slot whose content does not depend on policy.
func (w *wanted) fixed(name string, all []entries.Entry) {
	s := w.slots.get(name)
	if s.want == nil {
		s.want = []entries.Piece{entries.NewPiece(all, nil)}
	}
	s.indexes = s.indexes[:min(len(s.indexes), len(s.want))] // of whoever held it in more
	w.live[s] = true
}

// order decides when the content of a local slot changes: at once, after
// interfaces have left it, or in a new slot. An interface that moves from one slot
// to another must see the other one's new content and this one's old content.
func (w *wanted) order(t *cache.Table) {
	s := w.slots.local[t.Digest]
	if len(s.indexes) == 0 {
		return // it is created
	}
	changes, ok := changesOf(w.m, s.places())
	if ok && len(changes) == 0 {
		return
	}
	var joiners, leavers bool
	for _, n := range w.m.Interfaces {
		for _, x := range w.who.seats(n) {
			bound, wants := x.has(s), w.wants(x, s)
			joiners = joiners || wants && !bound
			leavers = leavers || bound && !wants
		}
	}
	switch {
	case !ok, joiners && leavers, w.frugal && isTwofold(changes):
		w.renew(t)
	case leavers:
		w.pace(s, changes)
		w.late = append(w.late, w.inTurn(changes)...)
	case joiners: // they must find what is theirs
		w.pace(s, changes)
		w.early = append(w.early, changes...)
	default:
		w.pace(s, changes)
		w.early = append(w.early, w.inTurn(changes)...)
	}
}

// renew has a table held by a new slot. The ACLs of the one that it had are removed
// at the end, after the interfaces have been switched over.
func (w *wanted) renew(t *cache.Table) {
	old, s := w.slots.local[t.Digest], w.slots.newLocal()
	c := w.sizes().New(w.content[t.Digest])
	s.want, s.roles, s.table = c.Pieces, c.Roles, t.Digest
	w.slots.local[t.Digest] = s
	delete(w.live, old)
	w.live[s] = true
}
