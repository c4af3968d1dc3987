package acl

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// execution carries out what is wanted. It changes the vswitch, the mirror and the slots, and makes
// no decisions.
type execution struct{ *wanted }

// changeInputs changes the input ACLs in place, unseen by sessions. Otherwise VPP would treat all
// sessions that were created on input as outdated, and drop the flows that pods have opened.
// Sessions need not see it: outputs deny what these changes deny.
func (x *execution) changeInputs(ctx context.Context) error {
	return x.change(ctx, inputsOf(x.m, x.plan))
}

// create adds the ACLs of slots without ACLs.
func (x *execution) create(ctx context.Context) error {
	for _, s := range x.plan.sorted() {
		if len(s.indexes) > 0 {
			continue
		}
		for n, p := range s.want {
			if err := x.r.memory.Room(); err != nil {
				return err
			}
			index, err := x.m.Put(ctx, mirror.None, s.tag(n, p), p)
			if err != nil {
				return err
			}
			s.indexes = append(s.indexes, index)
		}
	}
	return nil
}

// changeEarly makes the changes in place that need not wait.
func (x *execution) changeEarly(ctx context.Context) error { return x.change(ctx, x.plan.early) }

// changeLate changes the slots that interfaces had to leave first.
func (x *execution) changeLate(ctx context.Context) error { return x.change(ctx, x.plan.late) }

func (x *execution) change(ctx context.Context, changes []change) error {
	for _, c := range changes {
		index := c.index()
		if x.m.ACLs[index].Piece.Digest == c.piece.Digest {
			continue
		}
		if c.paced || c.piece.Count > x.m.ACLs[index].Piece.Count {
			if err := x.r.memory.Room(); err != nil {
				return err
			}
		}
		if c.paced {
			if err := x.switchOver(ctx, c); err != nil {
				return err
			}
			continue
		}
		put := x.m.Put
		if c.slot.isInput() && x.r.options.Flows.Established == Revoke {
			put = x.m.PutUnseen
		}
		if _, err := put(ctx, index, c.slot.tag(c.n, c.piece), c.piece); err != nil {
			return err
		}
	}
	return nil
}

// bind switches interfaces, those whose lists become shorter first; see Mirror.Bind.
func (x *execution) bind(ctx context.Context) error {
	for _, n := range x.plan.turns {
		if err := x.r.memory.Room(); err != nil {
			return err
		}
		if err := x.bindInterface(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// bindInterface sets the lists of an interface.
func (x *execution) bindInterface(ctx context.Context, n *mirror.Interface) error {
	to := x.m.With(n, x.bindings.ours(n))
	if to.Equal(n.Bound) {
		return nil
	}
	err := x.m.Bind(ctx, n, to)
	if errors.Is(err, ErrTooLarge) {
		x.bindings.refuseInterface(n, err)
		return nil
	}
	return err
}

// cleanUp removes our ACLs that no slot holds and no interface has, and drops empty slots.
func (x *execution) cleanUp(ctx context.Context) error {
	used := x.m.Users()
	for s := range x.plan.live {
		for _, i := range s.indexes {
			used[i] = true
		}
	}
	for _, i := range slices.Sorted(maps.Keys(x.m.ACLs)) {
		if used[i] {
			continue
		}
		if err := x.m.Remove(ctx, i); err != nil {
			return err
		}
	}
	for s := range x.plan.live {
		x.forget(s)
	}
	for name, s := range x.slots.byName {
		s.indexes = slices.DeleteFunc(s.indexes, func(i uint32) bool { return x.m.ACLs[i] == nil })
		if len(s.indexes) == 0 {
			delete(x.slots.byName, name)
		}
	}
	return nil
}

// forget drops the entries that were sent; comparisons use digests. It keeps them where several
// ACLs may change together, because the order of changes depends on the entries.
func (x *execution) forget(s *slot) {
	if len(s.indexes) == 1 && !s.isGlobal() {
		x.m.ACLs[s.indexes[0]].Piece.Entries = nil
		s.want[0].Entries = nil
	}
}

// raise sets up the interfaces that a CNI plugin left down, once they have their rules and the
// MACIP list that the plugin sets last.
func (x *execution) raise(ctx context.Context) error {
	for _, n := range x.m.Interfaces {
		_, isPods := x.ownership.pods[n.Index]
		if !n.Down || n.Made == nil || !isPods && !x.ownership.blocked[n.Index] || !x.bindings.isBound(n) {
			continue
		}
		if err := x.r.link.Raise(ctx, n); err != nil {
			return err
		}
		n.Down = false
	}
	return nil
}

// switchOver creates a new ACL and switches interfaces to it. At any time each interface has the
// old or the new ACL.
func (x *execution) switchOver(ctx context.Context, c change) error {
	old := c.index()
	index, err := x.m.Put(ctx, mirror.None, c.slot.tag(c.n, c.piece), c.piece)
	if err != nil {
		return err
	}
	c.slot.indexes = slices.Clone(c.slot.indexes)
	c.slot.indexes[c.n] = index
	for _, n := range x.m.Interfaces {
		if !slices.Contains(n.Bound.Out, old) {
			continue
		}
		if err := x.r.memory.Room(); err != nil {
			return err
		}
		if err := x.m.Bind(ctx, n, n.Bound.With(old, index)); err != nil {
			return err
		}
	}
	return x.m.Remove(ctx, old)
}

// prepare decides the content of the slots, and refuses what does not fit into the memory of the
// vswitch. It makes no changing calls.
func (w *wanted) prepare(ctx context.Context) error {
	for _, t := range w.layout.Tables {
		if !w.tables.isCurrent(t) && !w.tables.patch(t) {
			w.tables.expandTable(t)
		}
	}
	w.tables.share()
	return w.fit(ctx, w.expandGlobal())
}

// install changes the vswitch so that every packet meets, at every moment, either the old or the
// new rules. New ACLs come first, then changes in place that give no interface foreign rules, then
// switches of interfaces, then other changes in place, and removals.
// Interfaces that were left down are set up when they have what they must have.
//
// It stops at the first error. The mirror contains every acknowledged step.
func (w *wanted) install(ctx context.Context) error {
	if err := w.prepare(ctx); err != nil {
		return err
	}
	x := &execution{w}
	for _, phase := range []func(context.Context) error{x.create, x.changeInputs, x.changeEarly, x.bind, x.changeLate, x.cleanUp, x.raise} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}
