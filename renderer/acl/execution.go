package acl

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// execution carries a plan out. It changes the vswitch, the mirror and slots, and decides nothing.
type execution struct {
	r         *Renderer
	m         *mirror.Mirror
	slots     *slots
	ownership *ownership
	bindings  *bindings
	plan      *plan
}

// changeInputs changes the ACLs of inputs in place. VPP would take every session that packets made
// as they entered for outdated, and with them the flows that pods have opened. So sessions are not
// looked at again for these changes: what they deny, outputs deny, too.
//
// When something fails between, the next commit reads everything and sets it anew.
func (x *execution) changeInputs(ctx context.Context) error {
	changes := inputsOf(x.m, x.plan)
	if len(changes) == 0 {
		return nil
	}
	revoke := x.r.options.Flows.Established == Revoke
	if revoke {
		if _, err := x.r.flows.setting(ctx, reclassify(false)); err != nil {
			return err
		}
	}
	if err := x.change(ctx, changes); err != nil || !revoke {
		return err
	}
	_, err := x.r.flows.setting(ctx, reclassify(true))
	return err
}

// create adds the ACLs of slots that have none.
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

// changeEarly changes in place what need not wait.
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
		if _, err := x.m.Put(ctx, index, c.slot.tag(c.n, c.piece), c.piece); err != nil {
			return err
		}
	}
	return nil
}

// bind switches interfaces over, those first whose lists become shorter; see mirror.bind.
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

// bindInterface gives an interface the lists that it must have.
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

// cleanUp removes our ACLs that no slot holds and no interface has, and forgets
// the slots that hold nothing.
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

// forget drops the entries that were sent: what is compared are digests. Where
// several ACLs may change together, the order depends on what they hold.
func (x *execution) forget(s *slot) {
	if len(s.indexes) == 1 && !s.isGlobal() {
		x.m.ACLs[s.indexes[0]].Piece.Entries = nil
		s.want[0].Entries = nil
	}
}

// raise sets up the interfaces that a CNI plugin made and left down, once they have what they must
// have: rules, and the list of sources that the plugin gives them last.
func (x *execution) raise(ctx context.Context) error {
	for _, n := range x.m.Interfaces {
		_, isPods := x.ownership.pods[n.Index]
		if !n.Down || !vpp.MadeByCNI(n.Name) || n.Made == nil || !isPods && !x.ownership.blocked[n.Index] || !x.bindings.isBound(n) {
			continue
		}
		if err := x.r.link.Raise(ctx, n); err != nil {
			return err
		}
		n.Down = false
	}
	return nil
}

// switchOver makes a new ACL and switches interfaces to it. Each of them has the old or the new one
// at any time.
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

// takeTurns has slots change whose changes take long, one after the other, until it is time to look
// at what has come meanwhile. One at least has its turn.
func (x *execution) takeTurns(ctx context.Context) error {
	left := make(map[*slot]bool)
	for i, c := range x.plan.slow {
		isFirst := i == 0 || x.plan.slow[i-1].slot != c.slot
		if isFirst && i > 0 && time.Since(x.r.pace.turns.began) >= x.r.bounds.turns {
			for _, c := range x.plan.slow[i:] {
				left[c.slot] = true
			}
			break
		}
		if err := x.change(ctx, x.plan.slow[i:i+1]); err != nil {
			return err
		}
		if isFirst {
			x.r.pace.turns.count++
			c.slot.turn.last = x.r.pace.turns.count
		}
	}
	x.leave(left)
	return nil
}

// leave notes which slots wait for their turn. They hold what they held, and are laid out anew by
// the next Commit. Slots of refused tables go on waiting.
func (x *execution) leave(left map[*slot]bool) {
	r := x.r
	r.pace.turns.since = time.Time{}
	for s := range x.plan.live {
		if !left[s] {
			s.turn.since = time.Time{}
			continue
		}
		if s.turn.since.IsZero() {
			s.turn.since = r.pace.turns.began
		}
		if r.pace.turns.since.IsZero() || s.turn.since.Before(r.pace.turns.since) {
			r.pace.turns.since = s.turn.since
		}
		s.keep(r.mirror)
	}
}
