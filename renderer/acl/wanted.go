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
	r      *Renderer
	slots  *slots
	m      *mirror.Mirror
	layout cache.Layout

	tables    *contents
	ownership *ownership // of interfaces
	bindings  *bindings
	refusals  *refusals
	plan      *plan
	// inputDiffers says that inputs make sessions for other packets than before.
	inputDiffers bool

	frugal bool // no interface is to have the old and the new content of its ACLs, all at the same time
}

// want collects what a plan leads to.
func (r *Renderer) want(p cache.Plan) *wanted {
	w := &wanted{
		r: r, slots: r.slots, m: r.mirror, layout: r.cache.Desired(),
		refusals: &refusals{tooBig: make(map[renderer.Digest]bool)}, plan: &plan{live: make(map[*slot]bool)},
	}
	w.ownership = ownershipOf(&r.options, r.mirror, w.layout, r.interfaces.owned, &r.interfaces.ending)
	w.bindings = &bindings{ownership: w.ownership, slots: r.slots, refusals: w.refusals}
	w.tables = &contents{
		layout: w.layout, ownership: w.ownership, slots: r.slots, refusals: w.refusals, bounds: &r.bounds, threads: int(r.memory.Sessions.Threads),
		expand: expand.New(r.cache.Members), changed: make(map[api.SetID]bool),
		content: make(map[renderer.Digest]layout.Table), whole: make(map[renderer.Digest]*cache.Table),
	}
	if r.pace.compacting {
		w.tables.how = layout.Compacting
	}
	w.tables.expand.Coarse = r.unenforced.Matters()
	for _, id := range p.Sets {
		w.tables.changed[id] = true
	}
	return w
}

// prepare decides which slots hold what, and refuses what the memory of the vswitch does not
// suffice for. Nothing is called that changes anything.
func (w *wanted) prepare(ctx context.Context) error {
	for _, t := range w.layout.Tables {
		if !w.tables.isCurrent(t) {
			w.tables.expandTable(t)
		}
	}
	w.tables.share()
	return w.fit(ctx, w.expandGlobal())
}

// decide says which slots hold what, and what changes when. Of the global table some parts have
// changed.
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
	w.plan.lineUp()
	for _, name := range []string{openSlot, closedSlot} {
		if s := w.slots.byName[name]; s != nil && w.plan.live[s] {
			w.plan.early = append(w.plan.early, change{place: place{s, 0}, piece: s.want[0]})
		}
	}
}

// prepareConstants decides what the ACLs hold that do not depend on policy, as far as an interface
// is to have them.
func (w *wanted) prepareConstants() {
	// A state without rules is known, too; see holdsRules.
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

// fill says what the slot of a table must hold.
func (w *wanted) fill(t *cache.Table) {
	s := w.slots.local[t.Digest]
	if x, changed := w.tables.content[t.Digest]; changed {
		c, fits := layout.Content{}, len(s.indexes) > 0
		if fits {
			c, fits = w.r.bounds.Refit(s.content(w.m), x, w.tables.how)
		}
		if !fits {
			c = w.r.bounds.New(x)
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
	w.plan.live[s] = true
}

// fixed prepares a slot whose content does not depend on policy.
func (w *wanted) fixed(name string, all []entries.Entry) {
	s := w.slots.get(name)
	if s.want == nil {
		s.want = []entries.Piece{entries.NewPiece(all, nil)}
	}
	s.indexes = s.indexes[:min(len(s.indexes), len(s.want))] // of whoever held it in more
	w.plan.live[s] = true
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
		w.plan.late = append(w.plan.late, w.plan.inTurn(changes)...)
	case joiners: // they must find what is theirs
		w.pace(s, changes)
		w.plan.early = append(w.plan.early, changes...)
	default:
		w.pace(s, changes)
		w.plan.early = append(w.plan.early, w.plan.inTurn(changes)...)
	}
}

// renew has a table held by a new slot. The ACLs of the one that it had are removed
// at the end, after the interfaces have been switched over.
func (w *wanted) renew(t *cache.Table) {
	old, s := w.slots.local[t.Digest], w.slots.newLocal()
	c := w.r.bounds.New(w.tables.content[t.Digest])
	s.want, s.roles, s.table = c.Pieces, c.Roles, t.Digest
	w.slots.local[t.Digest] = s
	delete(w.plan.live, old)
	w.plan.live[s] = true
}

// install changes the vswitch so that every packet meets, at every moment, either
// the old or the new rules: new ACLs come first, then what can be changed in place
// without an interface seeing rules that are not its own, then interfaces are
// switched over, then the rest is changed in place, and what is unused is removed. What takes long
// comes last. Interfaces that were made down go up when they have what they must have.
//
// It stops at the first error. Every step that was acknowledged is in the mirror.
func (w *wanted) install(ctx context.Context) error {
	if err := w.prepare(ctx); err != nil {
		return err
	}
	x := w.execution()
	for _, phase := range []func(context.Context) error{x.create, x.changeInputs, x.changeEarly, x.bind, x.changeLate, x.cleanUp, x.takeTurns, x.raise} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *wanted) execution() *execution {
	return &execution{r: w.r, m: w.m, slots: w.slots, ownership: w.ownership, bindings: w.bindings, plan: w.plan}
}

// pace has interfaces switch to a new ACL, one after the other, where a change in place would pause
// the vswitch for too long: VPP takes what stands behind the changed ACL off all of them at once.
// A switch takes all off one interface, twice.
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
