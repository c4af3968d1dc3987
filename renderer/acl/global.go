package acl

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/cache"
)

// expandGlobal divides the global table, if there is one, among its slots, and expands
// the parts that may have changed. A list always goes to the same slot, whatever other
// lists there are.
func (w *wanted) expandGlobal() (changed []layout.Part) {
	g := w.layout.Global
	if g == nil {
		return nil
	}
	last := len(g.Parts) - 1
	var lists [layout.Parts][]int // indexes in g.Parts
	for i := range last {
		n := partFor(g, i)
		lists[n] = append(lists[n], i)
	}
	for n := range layout.Parts {
		s := w.slots.get(partOf(n))
		w.plan.live[s] = true
		if s.want == nil || s.table != g.Digest || w.tables.names(setsIn(g, lists[n])) {
			if p, ok := w.expandPart(s, g, n, lists[n]); ok {
				changed = append(changed, p)
			}
		}
	}
	return changed
}

// prepareGlobal says what the slots of the global table must hold.
func (w *wanted) prepareGlobal(changed []layout.Part) {
	g := w.layout.Global
	last := len(g.Parts) - 1
	w.prepareYoung(changed)
	w.fixed(finalSlot, entries.Everything(entries.Reflect))
	// The table's last rule moves when lists come and go.
	w.slots.get(finalSlot).want[0].Rules = []int32{int32(g.Parts[last]), int32(g.Parts[last])}
	w.orderGlobal()
}

// prepareYoung says what the parts that may have changed must hold, and the young slot.
func (w *wanted) prepareYoung(changed []layout.Part) {
	s := w.slots.get(youngSlot)
	w.plan.live[s] = true
	if len(changed) == 0 && s.want != nil && w.tables.how != layout.Compacting {
		return
	}
	held := layout.Global{Young: s.content(w.m).Pieces, Owners: s.owners}
	for n := range layout.Parts {
		held.Parts[n] = w.slots.get(partOf(n)).content(w.m).Pieces
	}
	want := w.r.bounds.RefitGlobal(held, changed, w.tables.how)
	s.want, s.owners = want.Young, want.Owners
	for n, pieces := range want.Parts {
		if pieces != nil {
			w.slots.get(partOf(n)).want = pieces
		}
	}
}

// partFor returns which part of the global table a list belongs to.
func partFor(g *cache.Table, list int) int {
	return int(uint64(g.Rules[g.Parts[list]].Src.Set) % layout.Parts)
}

func setsIn(g *cache.Table, lists []int) []api.SetID {
	var out []api.SetID
	for _, i := range lists {
		for _, r := range g.Rules[g.Parts[i]:g.Parts[i+1]] {
			for _, n := range [2]api.Net{r.Src, r.Dst} {
				if n.Set != 0 {
					out = append(out, n.Set)
				}
			}
		}
	}
	return out
}

// expandPart expands the lists of one slot. It is false when they are too large; then
// the slot keeps what it has, or is closed when it has nothing.
func (w *wanted) expandPart(s *slot, g *cache.Table, n int, lists []int) (layout.Part, bool) {
	p := layout.Part{Number: n}
	for _, i := range lists {
		x, err := w.tables.expand.Expand(g, g.Parts[i], g.Parts[i+1])
		if err != nil {
			w.refusals.add(err, reasonTable, g.Origins[g.Parts[i]:g.Parts[i+1]], 0)
			w.keepPart(s)
			return layout.Part{}, false
		}
		p.Add(x)
	}
	s.table = g.Digest
	return p, true
}

// keepPart makes what a slot holds what is wanted of it.
func (w *wanted) keepPart(s *slot) {
	s.want, s.table = nil, renderer.Digest{}
	for _, index := range s.indexes {
		s.want = append(s.want, w.m.ACLs[index].Piece)
	}
	if s.want == nil {
		s.want = []entries.Piece{entries.NewPiece(entries.Everything(entries.Deny), nil)}
	}
}

// globalSlots returns the slots that hold the global table, as uplinks have them.
func (a *slots) globalSlots() []*slot {
	out := append(make([]*slot, 0, layout.Parts+2), a.get(youngSlot))
	for n := range layout.Parts {
		out = append(out, a.get(partOf(n)))
	}
	return append(out, a.get(finalSlot))
}

// orderGlobal decides how the ACLs of the global table change. A pod that goes from
// one list to another may change its part, so they are one sequence: the part that
// gets the pod changes before the other one lets go of it. When that is impossible,
// all that differ are created anew, and uplinks switched over at once.
func (w *wanted) orderGlobal() {
	slots := w.slots.globalSlots()
	var all []place
	possible := true
	for _, s := range slots {
		possible = possible && len(s.indexes) == len(s.want)
		all = append(all, s.places()...)
	}
	if possible {
		if changes, ok := changesOf(w.m, all); ok {
			w.plan.early = append(w.plan.early, changes...)
			return
		}
	}
	for _, s := range slots {
		if len(s.indexes) != len(s.want) || slices.ContainsFunc(s.places(), func(p place) bool { return p.differs(w.m) }) {
			s.indexes = nil
		}
	}
}
