package acl

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// install changes the vswitch so that every packet meets, at every moment, either
// the old or the new rules: new ACLs come first, then what can be changed in place
// without an interface seeing rules that are not its own, then interfaces are
// switched over, then the rest is changed in place, and what is unused is removed. What takes long
// comes last. Interfaces that were made down go up when they have what they must have.
//
// It stops at the first error. Every step that was acknowledged is in the mirror.
func (w *wanted) install(ctx context.Context) error {
	if err := w.prepare(ctx); err != nil {
		return err
	}
	for _, phase := range []func(context.Context) error{w.create, w.changeInputs, w.changeEarly, w.bind, w.changeLate, w.cleanUp, w.takeTurns, w.raise} {
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
			if err := w.r.memory.Room(); err != nil {
				return err
			}
			index, err := w.m.Put(ctx, mirror.None, s.tag(n, p), p)
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
		if w.m.ACLs[index].Piece.Digest == c.piece.Digest {
			continue
		}
		if c.paced || c.piece.Count > w.m.ACLs[index].Piece.Count {
			if err := w.r.memory.Room(); err != nil {
				return err
			}
		}
		if c.paced {
			if err := w.switchOver(ctx, c); err != nil {
				return err
			}
			continue
		}
		if _, err := w.m.Put(ctx, index, c.slot.tag(c.n, c.piece), c.piece); err != nil {
			return err
		}
	}
	return nil
}

// bind switches interfaces over, those first whose lists become shorter; see mirror.bind.
func (w *wanted) bind(ctx context.Context) error {
	for _, n := range w.turns {
		if err := w.r.memory.Room(); err != nil {
			return err
		}
		if err := w.bindInterface(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// bindInterface gives an interface the lists that it must have.
func (w *wanted) bindInterface(ctx context.Context, n *mirror.Interface) error {
	to := w.m.With(n, w.ours(n))
	if to.Equal(n.Bound) {
		return nil
	}
	err := w.m.Bind(ctx, n, to)
	if errors.Is(err, ErrTooLarge) {
		w.refuseInterface(n, err)
		return nil
	}
	return err
}

// ours returns which of our ACLs an interface must have.
func (w *wanted) ours(n *mirror.Interface) mirror.Lists {
	if w.who.held[n.Index] {
		closed := w.slots.get(closedSlot).indexes
		return mirror.Lists{In: closed, Out: closed}
	}
	if w.r.options.Orientation == Split {
		return w.oursSplit(n)
	}
	infra, open := w.slots.get(infraSlot).indexes, slices.Concat(w.slots.get(infraSlot).indexes, w.slots.get(openSlot).indexes)
	to := mirror.Lists{}
	if w.who.judgesInput(n) {
		to.In = w.slots.get(reflectSlot).indexes
		if guard := w.guards[n.Index]; guard != nil {
			to.In = slices.Concat(infra, guard.indexes, to.In)
		}
	}
	switch {
	case w.who.tables[n.Index] != nil:
		to.Out = w.listOf(w.who.tables[n.Index], n.Bound.Out)
	case w.who.uplinks[n.Index] && w.layout.Global != nil:
		to.Out = slices.Clone(infra)
		for _, s := range w.slots.globalSlots() {
			to.Out = append(to.Out, s.indexes...)
		}
	case w.who.isOpen(n):
		to.Out = open
	}
	return to
}

// judges reports whether rules are for the packets of an interface, in either direction.
func (o *ownership) judges(n *mirror.Interface) bool {
	t := o.layout.Senders[o.pods[n.Index]]
	return o.tables[n.Index] != nil || o.uplinks[n.Index] && o.layout.Global != nil || t != nil && !expand.PermitsAll(t)
}

// judgesInput reports whether an interface is to have ACLs of ours for what enters: it is a pod's
// or an uplink. Without rules, what ACLs of others leave undecided stays denied.
func (o *ownership) judgesInput(n *mirror.Interface) bool {
	_, isPods := o.pods[n.Index]
	return (isPods || o.uplinks[n.Index]) && (o.judges(n) || !o.m.HasOthers(n.Bound.In))
}

// isOpen reports whether an interface is to permit what leaves, and to make sessions of it.
func (o *ownership) isOpen(n *mirror.Interface) bool {
	_, isPods := o.pods[n.Index]
	if o.tables[n.Index] != nil || o.uplinks[n.Index] && o.layout.Global != nil || !isPods && !o.uplinks[n.Index] {
		return false
	}
	return o.judges(n) || !o.m.HasOthers(n.Bound.Out)
}

// oursSplit is ours with Split.
func (w *wanted) oursSplit(n *mirror.Interface) mirror.Lists {
	in, out := w.who.senders[n.Index], w.who.tables[n.Index]
	switch {
	case in != nil && out != nil:
		return mirror.Lists{In: w.listOf(in, n.Bound.In), Out: w.listOf(out, n.Bound.Out)}
	case in != nil: // nothing keeps replies out
		return mirror.Lists{In: w.listOf(in, n.Bound.In)}
	case out != nil:
		return mirror.Lists{In: w.slots.get(reflectSlot).indexes, Out: w.listOf(out, n.Bound.Out)}
	}
	return mirror.Lists{}
}

// listOf returns the ACLs of a list that is to have a table. One whose table was refused
// keeps what it has, or is closed.
func (w *wanted) listOf(t *cache.Table, bound []uint32) []uint32 {
	infra := w.slots.get(infraSlot).indexes
	switch own := w.m.Own(bound); {
	case !w.tooBig[t.Digest]:
		return slices.Concat(infra, w.slots.local[t.Digest].indexes)
	case w.decides(own):
		return own
	}
	return slices.Concat(infra, w.slots.get(closedSlot).indexes)
}

// decides reports whether ACLs of ours are of policy, or closed.
func (w *wanted) decides(own []uint32) bool {
	constant := slices.Concat(w.slots.get(infraSlot).indexes, w.slots.get(openSlot).indexes, w.slots.get(reflectSlot).indexes)
	return slices.ContainsFunc(own, func(i uint32) bool { return !slices.Contains(constant, i) })
}

// cleanUp removes our ACLs that no slot holds and no interface has, and forgets
// the slots that hold nothing.
func (w *wanted) cleanUp(ctx context.Context) error {
	used := w.m.Users()
	for s := range w.live {
		for _, i := range s.indexes {
			used[i] = true
		}
	}
	for _, i := range slices.Sorted(maps.Keys(w.m.ACLs)) {
		if used[i] {
			continue
		}
		if err := w.m.Remove(ctx, i); err != nil {
			return err
		}
	}
	for s := range w.live {
		w.forget(s)
	}
	for name, s := range w.slots.byName {
		s.indexes = slices.DeleteFunc(s.indexes, func(i uint32) bool { return w.m.ACLs[i] == nil })
		if len(s.indexes) == 0 {
			delete(w.slots.byName, name)
		}
	}
	return nil
}

// forget drops the entries that were sent: what is compared are digests. Where
// several ACLs may change together, the order depends on what they hold.
func (w *wanted) forget(s *slot) {
	if len(s.indexes) == 1 && !s.isGlobal() {
		w.m.ACLs[s.indexes[0]].Piece.Entries = nil
		s.want[0].Entries = nil
	}
}
