package acl

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/cache"
)

// expandGlobal distributes the lists of the global table over its slots, and expands the parts that
// may have changed. A list always goes to the same slot, regardless of other lists.
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

// prepareGlobal sets the content of the slots of the global table.
func (w *wanted) prepareGlobal(changed []layout.Part) {
	g := w.layout.Global
	last := len(g.Parts) - 1
	w.prepareYoung(changed)
	w.fixed(finalSlot, entries.Everything(entries.Reflect))
	// The index of the table's last rule changes when lists come and go.
	w.slots.get(finalSlot).want[0].Rules = []int32{int32(g.Parts[last]), int32(g.Parts[last])}
	w.orderGlobal()
}

// prepareYoung sets the content of the parts that may have changed and of the slot for recent
// permits.
func (w *wanted) prepareYoung(changed []layout.Part) {
	s := w.slots.get(youngSlot)
	w.plan.live[s] = true
	if len(changed) == 0 && s.want != nil {
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

// partFor returns the part of the global table to which a list belongs.
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

// expandPart expands the lists of one slot. It returns false when they are too large; the slot then
// keeps its content, or blocks when it has none.
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

// keepPart sets the desired content of a slot to its current content, or to a deny of everything
// without one.
func (w *wanted) keepPart(s *slot) {
	s.want, s.table = nil, renderer.Digest{}
	for _, index := range s.indexes {
		s.want = append(s.want, w.m.ACLs[index].Piece)
	}
	if s.want == nil {
		s.want = []entries.Piece{entries.NewPiece(entries.Everything(entries.Deny), nil)}
	}
}

// orderGlobal plans the changes of the ACLs of the global table. A pod that changes lists may
// change parts, so all parts form one sequence: the new part gets the pod before the old part drops
// it. When this is impossible, the changed ACLs are created anew and each uplink is switched in one
// message.
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
