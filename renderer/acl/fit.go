package acl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/memory"
	"github.com/sluice-net/sluice/renderer/cache"
)

// candidate is a local table, or one slot's part of the global table, that may be refused because
// the vswitch lacks memory.
type candidate struct {
	name    string
	adds    uint64 // approximate bytes at the worst moment
	entries int
	refuse  func(error)
}

// fit makes a plan that fits into the memory of the vswitch at every moment. It first gives up
// compaction and two-step changes on many interfaces. Then it refuses the candidates that add the
// most, until the rest fits. The result depends only on the desired state, the current state and
// the memory. changed are the changed parts of the global table.
func (w *wanted) fit(ctx context.Context, changed []layout.Part) error {
	live := maps.Clone(w.plan.live)
	for first := true; ; first = false {
		undo := w.slots.checkpoint()
		w.plan.live, w.plan.early, w.plan.late = maps.Clone(live), nil, nil
		w.decide(changed)
		f := w.forecast(w.r.memory.Heap.Most)
		if err := w.r.memory.Ask(ctx, f.Held, f.Applied); err != nil {
			return err
		}
		lacks := w.r.memory.Heap.Lacks(f.Demand)
		if first {
			w.refusals.needed = w.r.memory.Heap.Needs(f.Demand)
		}
		list := w.candidates(f)
		if lacks == 0 || w.frugal && len(list) == 0 { // what is left are a few entries, covered by the reserve
			w.r.memory.Heap.Needed = max(w.r.memory.Heap.Needed, w.r.memory.Heap.Needs(f.Demand))
			w.r.memory.Heap.Plan(f.Demand)
			return nil
		}
		undo()
		if !w.frugal {
			w.frugal = true
			continue
		}
		w.refuseLargest(list, lacks)
		changed = slices.DeleteFunc(changed, func(p layout.Part) bool { return w.slots.get(partOf(p.Number)).table == (renderer.Digest{}) })
	}
}

// refuseLargest refuses the candidates that add the most, until at least lacks bytes are saved.
func (w *wanted) refuseLargest(list []candidate, lacks uint64) {
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.adds, a.adds), strings.Compare(a.name, b.name))
	})
	for _, c := range list {
		c.refuse(fmt.Errorf("%s: about %d entries take about %d MB, more than the vswitch has left: %w (%w)", c.name, memory.About(c.entries), memory.About(int(c.adds>>20)), ErrTooLarge, entries.ErrMayPass))
		w.refusals.lacking++
		if lacks -= min(lacks, c.adds); lacks == 0 {
			break
		}
	}
}

// checkpoint returns a function that reverts a plan that was made but not started.
func (a *slots) checkpoint() (undo func()) {
	local, slots, content := a.local, maps.Clone(a.byName), make(map[*slot]slot, len(a.byName))
	for _, s := range a.byName {
		content[s] = *s
	}
	return func() {
		a.local, a.byName = local, slots
		for s, c := range content {
			*s = c
		}
	}
}

// candidates returns everything that adds entries and may be refused.
func (w *wanted) candidates(f *forecast) []candidate {
	var out []candidate
	at := make(map[*cache.Table]int)
	for _, t := range w.tables.local {
		s := w.slots.local[t.Digest]
		if s == nil || w.refusals.tooBig[t.Digest] || f.blame[s] == 0 {
			continue
		}
		whole := cmp.Or(w.tables.whole[t.Digest], t)
		n, known := at[whole]
		if !known {
			n, at[whole] = len(out), len(out)
			out = append(out, candidate{
				name: "table " + whole.Name(), entries: entries.CountOf(s.want),
				refuse: func(err error) { w.refusals.add(err, reasonMemory, whole.Origins, len(whole.Pods)) },
			})
		}
		c := &out[n]
		refuse := c.refuse
		c.adds += f.blame[s]
		c.refuse = func(err error) {
			refuse(err)
			w.refusals.tooBig[t.Digest] = true
		}
	}
	if w.layout.Global == nil {
		return out
	}
	for i := range layout.Parts {
		s := w.slots.get(partOf(i))
		if f.blame[s] == 0 || s.table == (renderer.Digest{}) {
			continue
		}
		out = append(out, candidate{
			name: "part " + s.name + " of table global", entries: entries.CountOf(s.want), adds: f.blame[s],
			refuse: func(err error) {
				w.refusals.add(err, reasonMemory, originsIn(w.layout.Global, i), 0)
				w.keepPart(s)
			},
		})
	}
	return out
}

// originsIn returns the origins of the lists in one part of the global table.
func originsIn(g *cache.Table, part int) (out [][]api.Origin) {
	for i, first := range g.Parts[:len(g.Parts)-1] {
		if partFor(g, i) == part {
			out = append(out, g.Origins[first:g.Parts[i+1]]...)
		}
	}
	return out
}
