package acl

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// wanted is what the vswitch must hold after a commit, and the way there.
type wanted struct {
	r       *Renderer
	m       *mirror
	layout  cache.Layout
	expand  *expander
	changed map[api.SetID]bool

	globalChanged bool // the global table is another one
	afterRead     bool // what is installed was read back: how it came about is unknown

	tables  map[uint32]*cache.Table // by interface
	uplinks map[uint32]bool
	held    map[uint32]bool // interfaces that are closed, because it is not known whose they are
	pending []string
	refused []error
	// oversize says of which rules tables are refused.
	oversize []renderer.Unenforced
	tooBig   map[renderer.Digest]bool // tables that are refused

	content map[renderer.Digest][]piece // of local tables, as far as it was needed
	live    map[*slot]bool              // what is held afterwards
	late    []*slot                     // changed in place only after interfaces have left
	unions  map[*slot]piece             // held for a moment, while pods change parts
}

// want collects what a plan leads to.
func (r *Renderer) want(plan cache.Plan) *wanted {
	w := &wanted{
		r: r, m: r.mirror, layout: r.cache.Desired(), expand: newExpander(r.cache.Members),
		changed: make(map[api.SetID]bool), tooBig: make(map[renderer.Digest]bool),
		globalChanged: plan.Global.From != plan.Global.To, afterRead: r.afterRead,
		content: make(map[renderer.Digest][]piece), live: make(map[*slot]bool), unions: make(map[*slot]piece),
	}
	for _, id := range plan.Sets {
		w.changed[id] = true
	}
	w.resolve()
	return w
}

// names says whether one of the sets has changed.
func (w *wanted) names(sets []api.SetID) bool {
	return slices.ContainsFunc(sets, func(id api.SetID) bool { return w.changed[id] })
}

// contentOf returns what the ACLs of a local table must hold. It is nil when the
// table is too large, which is reported once.
func (w *wanted) contentOf(t *cache.Table) []piece {
	if s := w.r.local[t.Digest]; s != nil && s.table == t.Digest && s.want != nil && !w.names(t.Sets) {
		return s.want
	}
	if c, ok := w.content[t.Digest]; ok {
		return c
	}
	x, err := w.expand.expand(t, 0, len(t.Rules))
	if err != nil {
		w.refuse(err, reasonTable, t.Origins, len(t.Pods))
		w.tooBig[t.Digest] = true
		w.content[t.Digest] = nil
		return nil
	}
	w.content[t.Digest] = cut(x)
	return w.content[t.Digest]
}

// slotOf returns the slot whose table an interface is to have, or nil.
func (w *wanted) slotOf(n *netif) *slot {
	t := w.tables[n.index]
	if t == nil {
		return nil
	}
	return w.r.local[t.Digest]
}

// has says whether an interface is bound to a slot.
func (n *netif) has(s *slot) bool {
	return len(s.indexes) > 0 && slices.Contains(n.bound.out, s.indexes[0])
}

// wholly says whether a slot has interfaces and all that stay bound to a table are
// to have this one.
func (w *wanted) wholly(s *slot, t *cache.Table) bool {
	stay := 0
	for _, n := range w.m.ifs {
		if !n.has(s) {
			continue
		}
		switch w.tables[n.index] {
		case t:
			stay++
		case nil:
		default:
			return false
		}
	}
	return stay > 0
}

// prepare decides which slots hold what. Nothing is called.
func (w *wanted) prepare() {
	r := w.r
	var tables []*cache.Table
	for _, t := range w.layout.Tables {
		if w.contentOf(t) != nil {
			tables = append(tables, t)
		}
	}
	contents := make(map[renderer.Digest][]piece, len(tables))
	for _, t := range tables {
		contents[t.Digest] = w.contentOf(t)
	}
	w.assign(tables, contents)
	for _, t := range tables {
		s := r.local[t.Digest]
		s.want, s.table = contents[t.Digest], t.Digest
		w.live[s] = true
	}
	if len(w.layout.Tables) > 0 || w.layout.Global != nil {
		w.fixed(infraSlot, infraEntries())
		w.fixed(reflectSlot, reflectEntries())
	}
	if len(w.tooBig) > 0 || len(w.held) > 0 {
		w.fixed(closedSlot, everything(deny))
	}
	if w.layout.Global != nil {
		w.prepareGlobal()
	}
	for _, t := range tables {
		w.order(r.local[t.Digest])
	}
	w.orderParts()
}

// fixed prepares a slot whose content does not depend on policy.
func (w *wanted) fixed(name string, entries []entry) {
	s := w.r.slot(name)
	if s.want == nil {
		s.want = []piece{newPiece(entries, nil)}
	}
	w.live[s] = true
}

// order decides when the content of a local slot changes: at once, after
// interfaces have left it, or in a new slot. An interface that moves from one slot
// to another must see the other one's new content and this one's old content.
func (w *wanted) order(s *slot) {
	switch w.differing(s) {
	case 0:
		return
	case 1:
	default:
		w.renew(s)
		return
	}
	var joiners, leavers bool
	for _, n := range w.m.ifs {
		bound, wants := n.has(s), w.slotOf(n) == s
		joiners = joiners || wants && !bound
		leavers = leavers || bound && !wants
	}
	switch {
	case joiners && leavers:
		w.renew(s)
	case leavers:
		w.late = append(w.late, s)
	}
}

// several stands for a change that no single message can make.
const several = 2

// differing returns how many of the ACLs of a slot differ: none, one or several. A
// slot that is still to be created does not differ.
func (w *wanted) differing(s *slot) int {
	if len(s.indexes) == 0 {
		return 0
	}
	if len(s.indexes) != len(s.want) {
		return several
	}
	count := 0
	for i, index := range s.indexes {
		if w.m.acls[index].piece.digest != s.want[i].digest {
			count++
		}
	}
	return min(count, several)
}

// renew has a slot created anew. The ACLs that it had are removed at the end,
// after the interfaces have been switched over.
func (w *wanted) renew(s *slot) {
	if s.isLocal() {
		n := w.r.newLocal()
		n.want, n.table = s.want, s.table
		w.r.local[s.table] = n
		delete(w.live, s)
		w.live[n] = true
		return
	}
	s.indexes = nil
}
