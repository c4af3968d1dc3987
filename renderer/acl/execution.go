package acl

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// install changes the vswitch so that every packet meets, at every moment, the old or the new rules
// of an interface. Each interface has ACLs of its own. Their content changes in place, in one message
// or in an order that shows no third state (layout.Changes); or the interface gets new ACLs, is
// switched to them, and the old ones are removed.
//
// Guards come first, since new interfaces are bound to them; they deny only what the old or the new
// output denies. Then come interfaces whose changes may deny anything, and then those that only
// permit more.
//
// It stops at the first error; other writes of the same round may have been made. The caller then
// discards the mirror, and reads what VPP holds.
func (w *wanted) install(ctx context.Context) error {
	w.prepare()
	if err := w.admit(ctx); err != nil {
		return err
	}
	for _, phase := range []func(context.Context) error{w.changeShared, w.changeGuards, w.changeInterfaces, w.cleanUp, w.raise} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// changeShared creates and changes the ACLs that interfaces share.
func (w *wanted) changeShared(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(w.shared)) {
		p := w.shared[name]
		index, known := w.acls.shared[name]
		switch {
		case !known || w.m.ACLs[index] == nil:
			index = mirror.None
		case w.m.ACLs[index].Piece.Digest == p.Digest:
			continue
		}
		index, err := w.writeACL(ctx, index, name == infraACL || name == reflectACL, mirror.Tag(name, 0, p.Digest), p)
		if err != nil {
			return err
		}
		w.acls.shared[name] = index
	}
	return nil
}

// writeACL writes an ACL. A change of an input ACL is not shown to sessions: otherwise VPP would treat all
// sessions that were created on input as outdated, and drop the flows that pods have opened. They need
// not see it, since outputs deny what inputs deny, once these are changed as well.
func (w *wanted) writeACL(ctx context.Context, index uint32, isInput bool, tag string, p entries.Piece) (uint32, error) {
	if index == mirror.None || p.Count > w.m.ACLs[index].Piece.Count {
		if err := w.r.memory.Room(); err != nil {
			return mirror.None, err
		}
	}
	if isInput && index != mirror.None && w.r.options.Flows.Established == Revoke {
		return w.m.PutUnseen(ctx, index, tag, p)
	}
	return w.m.Put(ctx, index, tag, p)
}

// changeGuards changes and creates guards.
func (w *wanted) changeGuards(ctx context.Context) error {
	for _, c := range w.changes {
		if c.place.use == guard {
			if err := w.change(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// change makes a change of a stack. Old ACLs that it replaces stay bound until the interface is
// switched.
func (w *wanted) change(ctx context.Context, c *change) error {
	s := w.acls.stacks[c.place]
	if c.existing == nil {
		s = &stack{shape: c.shape}
		for n, p := range c.want {
			index, err := w.writeACL(ctx, mirror.None, c.place.use == guard, mirror.Tag(nameOf(c.place.use, c.shape, n), n, p.Digest), p)
			if err != nil {
				return err
			}
			s.acls = append(s.acls, index)
		}
		c.replaced, w.acls.stacks[c.place] = w.acls.indexes(c.place), s
	}
	for _, step := range c.steps {
		if _, err := w.writeACL(ctx, s.acls[step.At], c.place.use == guard, mirror.Tag(nameOf(c.place.use, c.shape, step.At), step.At, step.Piece.Digest), step.Piece); err != nil {
			return err
		}
	}
	s.hold(c)
	return nil
}

// hold records that a change was made.
func (s *stack) hold(c *change) { s.want, s.table, s.current = c.want, c.digest, true }

// interfaceChanges are the changes of one interface.
type interfaceChanges struct {
	n       *mirror.Interface
	changes []*change
	grows   int  // entries
	more    bool // it only gets more permits
	done    bool // it is in a batch
}

// isInPlace reports whether all changes are in place.
func (t *interfaceChanges) isInPlace() bool {
	return len(t.changes) > 0 && !slices.ContainsFunc(t.changes, func(c *change) bool { return c.existing == nil })
}

// changeInterfaces changes one interface after the other. Those that may deny something come first,
// and among them those whose lists become shorter, to make room for longer ones.
func (w *wanted) changeInterfaces(ctx context.Context) error {
	var in batch
	for _, t := range w.byInterface() {
		if t.isInPlace() && w.bindings.isBound(t.n) {
			if in.add(t); in.cost < atOnce {
				continue
			}
		}
		if err := w.changeTogether(ctx, &in); err != nil {
			return err
		}
		if t.done {
			continue
		}
		for _, c := range t.changes {
			if err := w.change(ctx, c); err != nil {
				return err
			}
		}
		if err := w.bindInterface(ctx, t.n); err != nil {
			return err
		}
		for _, c := range t.changes {
			if err := w.removeUnused(ctx, c.replaced); err != nil {
				return err
			}
		}
	}
	return w.changeTogether(ctx, &in)
}

// atOnce is about how many entries VPP applies before it gets time to forward, where changes of
// several interfaces are sent together: it takes 1 us for each.
const atOnce = 1_500

// batch is the changes in place of some interfaces.
type batch struct {
	changes []*change
	cost    int // of the dearest step of each
}

func (b *batch) add(t *interfaceChanges) {
	for _, c := range t.changes {
		dearest := 0
		for _, step := range c.steps {
			dearest = max(dearest, 2*step.Piece.Count+entries.CountOf(c.want[step.At:]))
		}
		b.changes, b.cost = append(b.changes, c), b.cost+dearest
	}
	t.done = true
}

// changeTogether makes the first step of all changes, then the second ones, and so on. VPP makes those
// of one round one after the other, without waiting for the agent. A step is not sent before the one
// before it was made, since no packet may meet a third state.
func (w *wanted) changeTogether(ctx context.Context, b *batch) error {
	for n := 0; ; n++ {
		var round []mirror.Write
		for _, c := range b.changes {
			if n < len(c.steps) {
				at, p := c.steps[n].At, c.steps[n].Piece
				round = append(round, mirror.Write{Index: w.acls.stacks[c.place].acls[at], Tag: mirror.Tag(nameOf(c.place.use, c.shape, at), at, p.Digest), Piece: p})
			}
		}
		if len(round) == 0 {
			break
		}
		if err := w.r.memory.Room(); err != nil {
			return err
		}
		if err := w.m.PutTogether(ctx, round); err != nil {
			return err
		}
	}
	for _, c := range b.changes {
		w.acls.stacks[c.place].hold(c)
	}
	*b = batch{}
	return nil
}

// byInterface returns the changes of all interfaces, in the order in which they are made.
func (w *wanted) byInterface() []*interfaceChanges {
	of := make(map[*mirror.Interface]*interfaceChanges, len(w.m.Interfaces))
	out := make([]*interfaceChanges, 0, len(w.m.Interfaces))
	for _, n := range w.m.Interfaces {
		of[n] = &interfaceChanges{n: n}
		out = append(out, of[n])
	}
	for _, c := range w.changes {
		if c.place.use == guard {
			continue
		}
		t := of[c.n]
		t.more = c.more && (t.more || len(t.changes) == 0)
		t.changes = append(t.changes, c)
		t.grows += entries.CountOf(c.want) - entries.CountOf(c.existing)
	}
	slices.SortStableFunc(out, func(a, b *interfaceChanges) int {
		switch {
		case a.more != b.more && a.more:
			return 1
		case a.more != b.more:
			return -1
		}
		return cmp.Compare(a.grows, b.grows)
	})
	return out
}

// bindInterface gives an interface the lists that it must have.
func (w *wanted) bindInterface(ctx context.Context, n *mirror.Interface) error {
	to := w.m.With(n, w.bindings.ours(n))
	if to.Equal(n.Bound) {
		return nil
	}
	if err := w.r.memory.Room(); err != nil {
		return err
	}
	err := w.m.Bind(ctx, n, to)
	if errors.Is(err, ErrTooLarge) {
		w.bindings.refuseInterface(n, err)
		return nil
	}
	return err
}

// removeUnused removes those of some ACLs that no interface has.
func (w *wanted) removeUnused(ctx context.Context, some []uint32) error {
	used := w.m.Users()
	for _, index := range some {
		if used[index] || w.m.ACLs[index] == nil {
			continue
		}
		if err := w.m.Remove(ctx, index); err != nil {
			return err
		}
	}
	return nil
}

// cleanUp removes our ACLs that no stack in use holds and no interface has.
func (w *wanted) cleanUp(ctx context.Context) error {
	keep := make(map[uint32]bool)
	for name := range w.shared {
		keep[w.acls.shared[name]] = true
	}
	for at, s := range w.acls.stacks {
		if !w.live[at] {
			delete(w.acls.stacks, at)
			continue
		}
		for _, index := range s.acls {
			keep[index] = true
		}
	}
	var rest []uint32
	for _, index := range slices.Sorted(maps.Keys(w.m.ACLs)) {
		if !keep[index] {
			rest = append(rest, index)
		}
	}
	if err := w.removeUnused(ctx, rest); err != nil {
		return err
	}
	maps.DeleteFunc(w.acls.shared, func(_ string, index uint32) bool { return w.m.ACLs[index] == nil })
	return nil
}

// raise sets up the interfaces that a CNI plugin left down, once they have their rules and the
// MACIP list that the plugin sets last.
func (w *wanted) raise(ctx context.Context) error {
	for _, n := range w.m.Interfaces {
		_, isPods := w.ownership.pods[n.Index]
		if !n.Down || n.Made == nil || !isPods && !w.ownership.blocked[n.Index] || !w.bindings.isBound(n) {
			continue
		}
		if err := w.r.link.Raise(ctx, n); err != nil {
			return err
		}
		n.Down = false
	}
	return nil
}
