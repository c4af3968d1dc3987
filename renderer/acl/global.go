package acl

import (
	"slices"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// prepareGlobal divides the global table among its slots. A list always goes to
// the same one, whatever other lists there are.
func (w *wanted) prepareGlobal() {
	g := w.layout.Global
	last := len(g.Parts) - 1
	var lists [parts][]int // indexes in g.Parts
	for i := range last {
		n := uint64(g.Rules[g.Parts[i]].Src.Set) % parts
		lists[n] = append(lists[n], i)
	}
	for n := range parts {
		s := w.r.slot(partOf(n))
		w.live[s] = true
		if s.want == nil || s.table != g.Digest || w.names(setsIn(g, lists[n])) {
			w.preparePart(s, g, lists[n])
		}
	}
	w.fixed(finalSlot, everything(reflect))
	// The table's last rule moves when lists come and go.
	w.r.slot(finalSlot).want[0].rules = []int32{int32(g.Parts[last]), int32(g.Parts[last])}
}

// everything decides all traffic.
func everything(v verdict) []entry {
	var out []entry
	for _, all := range families {
		out = append(out, entry{verdict: v, src: all, dst: all, sport: anyPorts, dport: anyPorts})
	}
	return out
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

// preparePart expands the lists of one slot. When they are too large, the slot
// keeps what it has, or is closed when it has nothing.
func (w *wanted) preparePart(s *slot, g *cache.Table, lists []int) {
	var all expansion
	for _, i := range lists {
		x, err := w.expand.expand(g, g.Parts[i], g.Parts[i+1])
		if err != nil {
			w.refuse(err, reasonTable, g.Origins[g.Parts[i]:g.Parts[i+1]], 0)
			w.keepPart(s)
			return
		}
		all.entries = append(all.entries, x.entries...)
		all.rules = append(all.rules, x.rules...)
	}
	s.want, s.table = cut(all), g.Digest
}

// keepPart makes what a slot holds what is wanted of it.
func (w *wanted) keepPart(s *slot) {
	s.want, s.table = nil, renderer.Digest{}
	for _, index := range s.indexes {
		s.want = append(s.want, w.m.acls[index].piece)
	}
	if s.want == nil {
		s.want = []piece{newPiece(everything(deny), nil)}
	}
}

// orderParts decides when the parts of the global table change. A pod that goes
// from one list to another may change its part. At every moment one part must be
// about it: the part that gets it changes first. Where pods are exchanged that is
// impossible; then a part holds its new rules and behind them its old ones until
// the others have changed.
func (w *wanted) orderParts() {
	var changed []*slot
	for n := range parts {
		s := w.r.slots[partOf(n)]
		if s == nil || !w.live[s] {
			continue
		}
		switch w.differing(s) {
		case 0:
		case 1:
			changed = append(changed, s)
		default:
			w.renew(s)
			changed = append(changed, s)
		}
	}
	if len(changed) < 2 || !w.podsMayMove() {
		return
	}
	var losers []*slot
	for _, s := range changed {
		if len(s.indexes) > 0 && w.losesToAnother(s, changed) {
			losers = append(losers, s)
		}
	}
	w.late = append(w.late, losers...)
	if len(losers) > 1 {
		for _, s := range losers {
			w.unions[s] = w.union(s)
		}
	}
}

// podsMayMove says whether a pod may have gone from one list to another since what
// is installed was installed.
func (w *wanted) podsMayMove() bool {
	if w.afterRead || w.globalChanged {
		return true
	}
	g := w.layout.Global
	for _, first := range g.Parts[:len(g.Parts)-1] {
		if w.changed[g.Rules[first].Src.Set] {
			return true
		}
	}
	return false
}

// losesToAnother says whether an address leaves a part for another one.
func (w *wanted) losesToAnother(s *slot, changed []*slot) bool {
	var b netipx.IPSetBuilder
	for _, index := range s.indexes {
		addSources(&b, w.m.acls[index].piece)
	}
	for _, p := range s.want {
		removeSources(&b, p)
	}
	lost, err := b.IPSet()
	if err != nil {
		return true // what cannot be computed is taken for the difficult case
	}
	for _, o := range changed {
		if o == s {
			continue
		}
		for _, p := range o.want {
			if slices.ContainsFunc(p.entries, func(e entry) bool { return lost.OverlapsPrefix(e.src) }) {
				return true
			}
		}
	}
	return false
}

func addSources(b *netipx.IPSetBuilder, p piece) {
	for _, e := range p.entries {
		b.AddPrefix(e.src)
	}
}

func removeSources(b *netipx.IPSetBuilder, p piece) {
	for _, e := range p.entries {
		b.RemovePrefix(e.src)
	}
}

// union returns the one ACL of a part that differs with its old entries behind
// the new ones.
func (w *wanted) union(s *slot) piece {
	i := w.firstDiffering(s)
	old := w.m.acls[s.indexes[i]].piece.entries
	return newPiece(slices.Concat(s.want[i].entries, old), nil)
}

// firstDiffering returns which ACL of a slot differs. There must be one.
func (w *wanted) firstDiffering(s *slot) int {
	for i, index := range s.indexes {
		if w.m.acls[index].piece.digest != s.want[i].digest {
			return i
		}
	}
	return 0
}
