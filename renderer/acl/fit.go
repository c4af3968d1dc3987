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
	"github.com/sluice-net/sluice/renderer/cache"
)

// candidate is a local table, or a slot's part of the global one, that may have to
// be refused because the memory of the vswitch does not suffice.
type candidate struct {
	name    string
	adds    uint64 // bytes at the worst moment, roughly
	entries int
	refuse  func(error)
}

// fit decides on a plan that the memory of the vswitch suffices for at every moment. First no room
// is made that nobody needs now, and nothing is changed in two steps on many interfaces. Then it
// refuses what adds the most, until the rest fits. It depends on what is wanted, on what there is,
// and on the memory alone. Of the global table some parts have changed.
func (w *wanted) fit(ctx context.Context, changed []layout.Part) error {
	live := maps.Clone(w.live)
	for first := true; ; first = false {
		undo := w.r.checkpoint()
		w.live, w.early, w.late, w.slow = maps.Clone(live), nil, nil, nil
		w.decide(changed)
		f := w.forecast(w.r.heap.most)
		if err := w.r.askHeap(ctx, f.held, f.applied); err != nil {
			return err
		}
		lacks := w.r.heap.lacks(f)
		if first {
			w.needed = w.r.heap.needs(f)
		}
		list := w.candidates(f)
		if lacks == 0 || w.frugal && len(list) == 0 { // what is left are a few entries, for which there is the reserve
			w.r.heap.needed = max(w.r.heap.needed, w.r.heap.needs(f))
			w.r.heap.plan(f)
			return nil
		}
		undo()
		if !w.frugal {
			w.frugal, w.how = true, layout.Usual
			continue
		}
		w.refuseLargest(list, lacks)
		changed = slices.DeleteFunc(changed, func(p layout.Part) bool { return w.r.slot(partOf(p.Number)).table == (renderer.Digest{}) })
	}
}

// lacks returns how many bytes more a plan needs than there are. One that never takes more than
// there is now lacks none, whatever is known of the heap.
func (h *heap) lacks(f *forecast) uint64 {
	needs := h.needs(f)
	if h.budget == 0 || needs <= h.bytes(f.held, f.applied) {
		return 0
	}
	return needs - min(needs, h.budget)
}

// refuseLargest refuses what adds the most, until so many bytes less are needed.
func (w *wanted) refuseLargest(list []candidate, lacks uint64) {
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.adds, a.adds), strings.Compare(a.name, b.name))
	})
	for _, c := range list {
		c.refuse(fmt.Errorf("%s: about %d entries take about %d MB, more than the vswitch has left: %w (%w)", c.name, about(c.entries), about(int(c.adds>>20)), ErrTooLarge, entries.ErrMayPass))
		w.lacking++
		if lacks -= min(lacks, c.adds); lacks == 0 {
			break
		}
	}
}

// about rounds to one digit, so that what is refused again beside a pod more is no news.
func about(n int) int {
	unit := 1
	for n/unit >= 10 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}

// checkpoint returns what takes a plan back that was decided on and not begun.
func (r *Renderer) checkpoint() (undo func()) {
	local, slots, content := r.local, maps.Clone(r.slots), make(map[*slot]slot, len(r.slots))
	for _, s := range r.slots {
		content[s] = *s
	}
	return func() {
		r.local, r.slots = local, slots
		for s, c := range content {
			*s = c
		}
	}
}

// candidates returns all that may be refused and adds something.
func (w *wanted) candidates(f *forecast) []candidate {
	var out []candidate
	at := make(map[*cache.Table]int)
	for _, t := range w.local {
		s := w.r.local[t.Digest]
		if s == nil || w.tooBig[t.Digest] || f.blame[s] == 0 {
			continue
		}
		whole := cmp.Or(w.whole[t.Digest], t)
		n, known := at[whole]
		if !known {
			n, at[whole] = len(out), len(out)
			out = append(out, candidate{
				name: "table " + whole.Name(), entries: countOf(s.want),
				refuse: func(err error) { w.refuse(err, reasonMemory, whole.Origins, len(whole.Pods)) },
			})
		}
		c := &out[n]
		refuse := c.refuse
		c.adds += f.blame[s]
		c.refuse = func(err error) {
			refuse(err)
			w.tooBig[t.Digest] = true
		}
	}
	if w.layout.Global == nil {
		return out
	}
	for i := range layout.Parts {
		s := w.r.slot(partOf(i))
		if f.blame[s] == 0 || s.table == (renderer.Digest{}) {
			continue
		}
		out = append(out, candidate{
			name: "part " + s.name + " of table global", entries: countOf(s.want), adds: f.blame[s],
			refuse: func(err error) {
				w.refuse(err, reasonMemory, originsIn(w.layout.Global, i), 0)
				w.keepPart(s)
			},
		})
	}
	return out
}

// originsIn returns the origins of the lists that one part of the global table has.
func originsIn(g *cache.Table, part int) (out [][]api.Origin) {
	for i, first := range g.Parts[:len(g.Parts)-1] {
		if partFor(g, i) == part {
			out = append(out, g.Origins[first:g.Parts[i+1]]...)
		}
	}
	return out
}

func countOf(pieces []entries.Piece) int {
	n := 0
	for _, p := range pieces {
		n += p.Count
	}
	return n
}
