package acl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/memory"
	"github.com/sluice-net/sluice/renderer/cache"
)

// admit refuses tables that do not fit into the memory of the vswitch. What interfaces have counts as
// it is. Tables are admitted in the order of the entries that they add, those that add least first,
// until there is no more room; the result depends only on the state and the memory.
func (w *wanted) admit(ctx context.Context) error {
	total, counted := w.m.Entries(), w.m.Counted()
	if err := w.r.memory.Ask(ctx, total, counted); err != nil {
		return err
	}
	var candidates []*candidate
	of := make(map[*cache.Table]*candidate)
	for _, c := range w.changes {
		grows, counts := w.grows(c)
		if c.table == nil {
			total, counted = total+grows, counted+counts
			continue
		}
		x := of[c.table]
		if x == nil {
			x = &candidate{table: c.table}
			of[c.table], candidates = x, append(candidates, x)
		}
		x.grows, x.counts = x.grows+grows, x.counts+counts
		x.entries += entries.CountOf(c.want)
	}
	slices.SortFunc(candidates, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.grows, b.grows), strings.Compare(a.table.Name(), b.table.Name()))
	})
	wanted := total
	for _, x := range candidates {
		wanted += x.grows
		if lack := w.r.memory.Lack(total+x.grows, counted+x.counts); x.grows > 0 && lack != "" {
			w.refuse(x.table, fmt.Errorf("table %s: about %d entries, about %d MB, %s: %w (%w)",
				x.table.Name(), memory.About(x.entries), memory.About(int(memory.Bytes(x.entries)>>20)), lack, ErrTooLarge, entries.ErrMayPass), reasonMemory)
			continue
		}
		total, counted = total+x.grows, counted+x.counts
	}
	w.changes = slices.DeleteFunc(w.changes, func(c *change) bool { return c.table != nil && w.refusals.refused[c.table.Digest] })
	w.r.memory.Plan(total, wanted)
	return nil
}

// candidate is a table that may be refused.
type candidate struct {
	table                  *cache.Table
	grows, counts, entries int // at all its interfaces
}

// grows returns how many entries a change adds at its worst moment, and how many counters: a new stack
// is beside the old one, and an ACL may hold old and new entries. New ACLs may get indexes that have
// no counters yet.
func (w *wanted) grows(c *change) (n, counts int) {
	if c.existing == nil {
		n = entries.CountOf(c.want)
		return n, n
	}
	most := make([]int, len(c.existing))
	for i, p := range c.existing {
		most[i] = p.Count
	}
	for _, step := range c.steps {
		most[step.At] = max(most[step.At], step.Piece.Count)
	}
	for i, p := range c.existing {
		n += most[i] - p.Count
		counts += max(0, most[i]-w.m.Longest[w.acls.stacks[c.place].acls[i]])
	}
	return n, counts
}
