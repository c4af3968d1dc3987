package acl

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/renderer/cache"
)

// install changes the vswitch so that every packet meets, at every moment, either
// the old or the new rules: new ACLs come first, then what can be changed in place
// without an interface seeing rules that are not its own, then interfaces are
// switched over, then the rest is changed in place, and what is unused is removed.
//
// It stops at the first error. Every step that was acknowledged is in the mirror.
func (w *wanted) install(ctx context.Context) error {
	if err := w.prepare(ctx); err != nil {
		return err
	}
	for _, phase := range []func(context.Context) error{w.create, w.changeInput, w.changeEarly, w.bind, w.changeLate, w.cleanUp} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sorted returns the slots that are held afterwards in the order of their names.
func (w *wanted) sorted() []*slot {
	return slices.SortedFunc(maps.Keys(w.live), func(a, b *slot) int {
		switch {
		case a.name < b.name:
			return -1
		case a.name > b.name:
			return 1
		}
		return 0
	})
}

// create adds the ACLs of slots that have none.
func (w *wanted) create(ctx context.Context) error {
	for _, s := range w.sorted() {
		if len(s.indexes) > 0 {
			continue
		}
		for n, p := range s.want {
			index, err := w.m.put(ctx, w.r.link, none, s, n, p)
			if err != nil {
				return err
			}
			s.indexes = append(s.indexes, index)
		}
	}
	return nil
}

// changeEarly changes in place what need not wait.
func (w *wanted) changeEarly(ctx context.Context) error { return w.change(ctx, w.early) }

// changeLate changes the slots that interfaces had to leave first.
func (w *wanted) changeLate(ctx context.Context) error { return w.change(ctx, w.late) }

func (w *wanted) change(ctx context.Context, changes []change) error {
	for _, c := range changes {
		index := c.index()
		if w.m.acls[index].piece.digest == c.piece.digest {
			continue
		}
		if _, err := w.m.put(ctx, w.r.link, index, c.slot, c.n, c.piece); err != nil {
			return err
		}
	}
	return nil
}

// bind switches interfaces over, see mirror.bind.
func (w *wanted) bind(ctx context.Context) error {
	for _, n := range w.m.ifs {
		to := w.m.with(n, w.ours(n))
		if to.equal(n.bound) {
			continue
		}
		if err := w.m.bind(ctx, w.r.link, n, to); errors.Is(err, ErrTooLarge) {
			w.refuseInterface(n, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// ours returns which of our ACLs an interface must have.
func (w *wanted) ours(n *netif) lists {
	in, out := w.senders[n.index], w.tables[n.index]
	reflect := w.r.slot(reflectSlot).indexes
	switch {
	case w.held[n.index]:
		closed := w.r.slot(closedSlot).indexes
		return lists{in: closed, out: closed}
	case in != nil && out != nil:
		return lists{in: w.listOf(in, n.bound.in), out: w.listOf(out, n.bound.out)}
	case in != nil: // nothing keeps replies out
		return lists{in: w.listOf(in, n.bound.in)}
	case out != nil:
		return lists{in: reflect, out: w.listOf(out, n.bound.out)}
	case w.uplinks[n.index]:
		to := lists{in: reflect, out: slices.Clone(w.r.slot(infraSlot).indexes)}
		for _, s := range w.r.globalSlots() {
			to.out = append(to.out, s.indexes...)
		}
		return to
	}
	return lists{}
}

// listOf returns the ACLs of a list that is to have a table. One whose table was refused
// keeps what it has, or is closed.
func (w *wanted) listOf(t *cache.Table, bound []uint32) []uint32 {
	infra := w.r.slot(infraSlot).indexes
	switch own := w.m.own(bound); {
	case !w.tooBig[t.Digest]:
		return slices.Concat(infra, w.r.local[t.Digest].indexes)
	case len(own) > 0:
		return own
	}
	return slices.Concat(infra, w.r.slot(closedSlot).indexes)
}

// cleanUp removes our ACLs that no slot holds and no interface has, and forgets
// the slots that hold nothing.
func (w *wanted) cleanUp(ctx context.Context) error {
	used := w.m.users()
	for s := range w.live {
		for _, i := range s.indexes {
			used[i] = true
		}
	}
	for _, i := range slices.Sorted(maps.Keys(w.m.acls)) {
		if used[i] {
			continue
		}
		if err := w.m.remove(ctx, w.r.link, i); err != nil {
			return err
		}
	}
	for s := range w.live {
		w.forget(s)
	}
	for name, s := range w.r.slots {
		s.indexes = slices.DeleteFunc(s.indexes, func(i uint32) bool { return w.m.acls[i] == nil })
		if len(s.indexes) == 0 {
			delete(w.r.slots, name)
		}
	}
	return nil
}

// forget drops the entries that were sent: what is compared are digests. Where
// several ACLs may change together, the order depends on what they hold.
func (w *wanted) forget(s *slot) {
	if len(s.indexes) == 1 && !s.isGlobal() {
		w.m.acls[s.indexes[0]].piece.entries = nil
		s.want[0].entries = nil
	}
}
