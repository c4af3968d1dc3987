package acl

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// wanted is what the vswitch is to have after an Apply, and the changes that lead there.
type wanted struct {
	r         *Renderer
	acls      *acls
	m         *mirror.Mirror
	layout    cache.Layout
	ownership *ownership
	bindings  *bindings
	refusals  *refusals

	expand  *expand.Expander
	changed map[api.SetID]bool // sets
	tables  map[renderer.Digest]*expanded
	fits    map[fitting]*fit
	guards  map[*cache.Table]entries.Piece

	shared  map[string]entries.Piece // ACLs that interfaces share
	changes []*change
	live    map[place]bool // stacks that are in use afterwards
	// inputDiffers is whether inputs create sessions for other packets than before.
	inputDiffers bool
}

// expanded is a table as entries.
type expanded struct {
	*layout.Table
	parts []entries.Piece // of the global table
	err   error           // it is too large
}

// change is what happens to one stack.
type change struct {
	n        *mirror.Interface
	place    place
	table    *cache.Table // nil for a guard
	shape    layout.Shape
	existing []entries.Piece // nil: it needs new ACLs
	want     []entries.Piece
	steps    []layout.Step // in place; empty with new ACLs
	more     bool          // it only permits more
	digest   renderer.Digest
	replaced []uint32 // the ACLs that it had before new ones
}

// fitting is a table, and what ACLs hold.
type fitting struct {
	table    renderer.Digest
	shape    layout.Shape
	existing string // digests
}

// fit is how these ACLs get to hold the table.
type fit struct {
	shape layout.Shape
	want  []entries.Piece
	steps []layout.Step
	ok    bool // without new ACLs
}

// want derives what interfaces are to have from a plan.
func (r *Renderer) want(p cache.Plan) *wanted {
	w := &wanted{
		r: r, acls: r.acls, m: r.mirror, layout: r.cache.Desired(), refusals: &refusals{refused: make(map[renderer.Digest]bool)},
		expand: expand.New(r.cache.Aggregated), changed: make(map[api.SetID]bool, len(p.Sets)),
		tables: make(map[renderer.Digest]*expanded), fits: make(map[fitting]*fit), guards: make(map[*cache.Table]entries.Piece),
		shared: make(map[string]entries.Piece), live: make(map[place]bool),
	}
	w.ownership = ownershipOf(&r.options, r.mirror, w.layout, r.interfaces.owned, &r.interfaces.ending)
	w.bindings = &bindings{ownership: w.ownership, acls: r.acls, refusals: w.refusals}
	w.expand.Coarse = r.unenforced.Matters()
	for _, id := range p.Sets {
		w.changed[id] = true
	}
	return w
}

// prepare decides what changes, and refuses tables that are too large to expand. It makes no calls.
func (w *wanted) prepare() {
	w.prepareShared()
	for _, n := range w.m.Interfaces {
		if _, ok := w.ownership.pods[n.Index]; ok && w.r.options.Orientation == Outputs && w.ownership.judgesInput(n) {
			w.prepareGuard(n)
		}
		if t := w.ownership.outputTable(n); t != nil {
			w.prepareTable(n, place{n.Index, output}, t)
		}
		if t := w.ownership.senders[n.Index]; t != nil {
			w.prepareTable(n, place{n.Index, input}, t)
		}
	}
}

// prepareShared sets the content of the ACLs that do not depend on policy, where an interface needs
// them.
func (w *wanted) prepareShared() {
	fixed := func(name string, all []entries.Entry) { w.shared[name] = entries.NewPiece(all, nil) }
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
		fixed(infraACL, entries.Infra(w.r.options.Infra))
	}
	if input {
		w.inputDiffers = w.r.flows.settle()
		fixed(reflectACL, w.r.flows.input())
	}
	if open {
		fixed(openACL, entries.Everything(entries.Reflect))
	}
	if len(w.ownership.blocked) > 0 {
		w.block()
	}
}

// block prepares the ACL that denies everything.
func (w *wanted) block() {
	w.shared[closedACL] = entries.NewPiece(entries.Everything(entries.Deny), nil)
}

// isCurrent reports whether a stack is known to hold a table.
func (w *wanted) isCurrent(s *stack, t *cache.Table) bool {
	return s != nil && s.current && !w.acls.unsettled && s.table == digestOfTable(t) &&
		(t == nil || !slices.ContainsFunc(t.Sets, func(id api.SetID) bool { return w.changed[id] }))
}

// refuse leaves the lists with a table as they are, or blocks them.
func (w *wanted) refuse(t *cache.Table, err error, reason string) {
	if !w.refusals.refused[t.Digest] {
		w.refusals.refused[t.Digest] = true
		w.refusals.add(err, reason, t.Origins, len(t.Pods))
	}
	w.block()
}

// prepareTable decides how the stack of a list gets to hold a table.
func (w *wanted) prepareTable(n *mirror.Interface, at place, t *cache.Table) {
	w.live[at] = true
	s := w.acls.stacks[at]
	if w.isCurrent(s, t) {
		return
	}
	x := w.expandTable(t)
	if x.err != nil {
		w.refuse(t, x.err, reasonTable)
		return
	}
	c := &change{n: n, place: at, table: t, digest: t.Digest}
	if held, ok := s.heldIn(w.m); ok {
		if f := w.fit(s.shape, held, t, x); f.ok {
			c.shape, c.existing, c.want, c.steps = s.shape, held, f.want, f.steps
			c.more = layout.PermitsMore(s.shape, held, f.want)
			w.changes = append(w.changes, c)
			return
		}
	}
	f := w.fit(layout.Shape{}, nil, t, x)
	c.shape, c.want = f.shape, f.want
	w.changes = append(w.changes, c)
}

func (s *stack) heldIn(m *mirror.Mirror) ([]entries.Piece, bool) {
	if s == nil {
		return nil, false
	}
	return s.contentIn(m)
}

// fit finds out how ACLs get to hold a table, or new ones if they hold nothing. Interfaces with the
// same table mostly have the same content.
func (w *wanted) fit(shape layout.Shape, held []entries.Piece, t *cache.Table, x *expanded) *fit {
	key := fitting{table: t.Digest, shape: shape}
	for _, p := range held {
		key.existing += string(p.Digest[:])
	}
	f := w.fits[key]
	if f != nil {
		return f
	}
	f = &fit{shape: shape}
	w.fits[key] = f
	switch {
	case x.parts != nil:
		f.shape, f.want = layout.Shape{Parts: len(x.parts) - 1}, x.parts
		f.ok = shape == f.shape && held != nil
	case held == nil:
		f.shape, f.want = w.r.bounds.New(x.Table)
	case shape.Parts == 0:
		f.want, f.ok = w.r.bounds.Fit(shape, held, x.Table)
	}
	if f.ok {
		f.steps, f.ok = layout.Changes(held, f.want)
	}
	return f
}

// expandTable returns a table as entries.
func (w *wanted) expandTable(t *cache.Table) *expanded {
	x := w.tables[t.Digest]
	if x != nil {
		return x
	}
	x = &expanded{}
	w.tables[t.Digest] = x
	if t.Parts != nil {
		x.parts, x.err = w.partsOf(t)
		return x
	}
	list, err := w.expand.Expand(t, 0, len(t.Rules))
	x.Table, x.err = w.r.bounds.NewTable(list), err
	return x
}

// globalParts is the number of ACLs, or groups of them, over which the lists of the global table are
// distributed. It is constant, so that uplinks keep their ACLs when lists come and go: VPP drops the
// established flows of an interface whose ACLs change. A list always goes to the same part. The lists
// are about different sources, so their order does not matter.
const globalParts = 16

// partsOf returns the content of the ACLs that hold the global table.
func (w *wanted) partsOf(g *cache.Table) (out []entries.Piece, err error) {
	last := len(g.Parts) - 1
	var parts [globalParts]entries.List
	for i := range last {
		x, err := w.expand.Expand(g, g.Parts[i], g.Parts[i+1])
		if err != nil {
			return nil, err
		}
		p := &parts[uint64(g.Rules[g.Parts[i]].Src.Set)%globalParts]
		p.Entries, p.Rules = append(p.Entries, x.Entries...), append(p.Rules, x.Rules...)
	}
	for _, p := range parts {
		out = append(out, entries.Cut(p, w.r.bounds.Most)...)
	}
	rest, rule := entries.Everything(entries.Reflect), int32(g.Parts[last])
	return append(out, entries.NewPiece(rest, []int32{rule, rule})), nil
}
