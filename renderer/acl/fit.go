package acl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// candidate is a local table, or a slot's part of the global one, that may have to
// be refused because the memory of the vswitch does not suffice.
type candidate struct {
	name    string
	needs   uint64 // bytes, on all interfaces that are to have it
	keeps   uint64 // bytes that are taken all the same when it is refused
	entries int
	refuse  func(error)
}

// fit refuses what the memory of the vswitch does not suffice for, before anything
// is called: the largest first, until the rest fits. It depends on what is wanted,
// on what there is, and on the memory alone. It returns the parts of the global table
// that changed and are not refused.
func (w *wanted) fit(ctx context.Context, changed []part) ([]part, error) {
	err := w.fitAll(ctx, append(w.candidates(), w.candidateParts(changed)...))
	return slices.DeleteFunc(changed, func(p part) bool { return p.slot.table == (renderer.Digest{}) }), err
}

func (w *wanted) fitAll(ctx context.Context, list []candidate) error {
	total := uint64(len(w.tables)+len(w.senders)+len(w.uplinks)) * appliedBytes * uint64(len(infraEntries(w.r.options.Infra))+len(reflectEntries()))
	for _, c := range list {
		total += c.needs
	}
	h := &w.r.heap
	h.needed = total
	if total <= h.trusted {
		return nil
	}
	held := w.m.bytes()
	if err := w.r.askHeap(ctx, held); err != nil {
		return err
	}
	if h.budget == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.needs, a.needs), strings.Compare(a.name, b.name))
	})
	for _, c := range list {
		if total <= h.budget {
			break
		}
		if c.keeps >= c.needs {
			continue // to refuse it would free nothing
		}
		total -= c.needs - c.keeps
		c.refuse(fmt.Errorf("%s: %d entries take %d MB, more than the vswitch has left: %w (%w)", c.name, c.entries, c.needs>>20, ErrTooLarge, errMayPass))
	}
	return nil
}

// bytes returns what our ACLs take now.
func (m *mirror) bytes() uint64 {
	var sum uint64
	for _, h := range m.acls {
		sum += uint64(h.piece.count) * heldBytes
	}
	for _, n := range m.ifs {
		sum += m.bytesOf(n.bound.in) + m.bytesOf(n.bound.out)
	}
	return sum
}

// bytesOf returns what our ACLs take because an interface has them.
func (m *mirror) bytesOf(list []uint32) uint64 {
	var sum uint64
	for _, i := range list {
		if h := m.acls[i]; h != nil {
			sum += uint64(h.piece.count) * appliedBytes
		}
	}
	return sum
}

// candidates returns all that may be refused.
func (w *wanted) candidates() []candidate {
	interfaces, kept := make(map[*cache.Table]int), make(map[*cache.Table]uint64)
	for _, n := range w.m.ifs {
		for _, x := range w.seats(n) {
			if x.table != nil {
				interfaces[x.table]++
				kept[x.table] += w.m.bytesOf(x.acls)
			}
		}
	}
	var out []candidate
	for _, t := range w.layout.Tables {
		entries := w.entriesOf(t)
		out = append(out, candidate{
			name: "table " + t.Name(), entries: entries, needs: bytesFor(entries, interfaces[t]), keeps: kept[t],
			refuse: func(err error) {
				w.refuse(err, reasonMemory, t.Origins, len(t.Pods))
				w.tooBig[t.Digest] = true
			},
		})
	}
	return out
}

// entriesOf returns how many entries a local table has; none when it is refused.
func (w *wanted) entriesOf(t *cache.Table) int {
	if x, ok := w.content[t.Digest]; ok {
		return len(x.entries)
	}
	if s := w.r.local[t.Digest]; s != nil && !w.tooBig[t.Digest] {
		return countOf(s.want)
	}
	return 0
}

// candidateParts returns the parts of the global table, if there is one.
func (w *wanted) candidateParts(changed []part) []candidate {
	if w.layout.Global == nil {
		return nil
	}
	counts := make(map[*slot]int)
	for _, p := range changed {
		counts[p.slot] = len(p.permits.entries) + len(p.rest.entries)
	}
	var out []candidate
	for i := range parts {
		s := w.r.slot(partOf(i))
		kept := 0
		for _, index := range s.indexes {
			kept += w.m.acls[index].piece.count
		}
		entries, ok := counts[s]
		if !ok {
			entries = countOf(s.want)
		}
		out = append(out, candidate{
			name: "part " + s.name + " of table global", entries: entries,
			needs: bytesFor(entries, len(w.uplinks)), keeps: bytesFor(kept, len(w.uplinks)),
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

func bytesFor(entries, interfaces int) uint64 {
	return uint64(entries) * (heldBytes + appliedBytes*uint64(interfaces))
}

func countOf(pieces []piece) int {
	n := 0
	for _, p := range pieces {
		n += p.count
	}
	return n
}
