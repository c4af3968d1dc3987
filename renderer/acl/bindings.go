package acl

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// bindings determine the ACL lists that interfaces must have.
type bindings struct {
	ownership *ownership
	slots     *slots
	guards    map[uint32]*slot // by interface; empty with Split
	refusals  *refusals
}

// ours returns the ACLs of ours that an interface must have.
func (b *bindings) ours(n *mirror.Interface) mirror.Lists {
	if b.ownership.blocked[n.Index] {
		closed := b.slots.get(closedSlot).indexes
		return mirror.Lists{In: closed, Out: closed}
	}
	if b.ownership.options.Orientation == Split {
		return b.oursSplit(n)
	}
	infra, open := b.slots.get(infraSlot).indexes, slices.Concat(b.slots.get(infraSlot).indexes, b.slots.get(openSlot).indexes)
	to := mirror.Lists{}
	if b.ownership.judgesInput(n) {
		to.In = b.slots.get(reflectSlot).indexes
		if guard := b.guards[n.Index]; guard != nil {
			to.In = slices.Concat(infra, guard.indexes, to.In)
		}
	}
	switch {
	case b.ownership.tables[n.Index] != nil:
		to.Out = b.listOf(b.ownership.tables[n.Index], n.Bound.Out)
	case b.ownership.uplinks[n.Index] && b.ownership.layout.Global != nil:
		to.Out = slices.Clone(infra)
		for _, s := range b.slots.globalSlots() {
			to.Out = append(to.Out, s.indexes...)
		}
	case b.ownership.isOpen(n):
		to.Out = open
	}
	return to
}

// oursSplit returns the lists that an interface should have with Orientation Split.
func (b *bindings) oursSplit(n *mirror.Interface) mirror.Lists {
	in, out := b.ownership.senders[n.Index], b.ownership.tables[n.Index]
	switch {
	case in != nil && out != nil:
		return mirror.Lists{In: b.listOf(in, n.Bound.In), Out: b.listOf(out, n.Bound.Out)}
	case in != nil: // nothing blocks replies
		return mirror.Lists{In: b.listOf(in, n.Bound.In)}
	case out != nil:
		return mirror.Lists{In: b.slots.get(reflectSlot).indexes, Out: b.listOf(out, n.Bound.Out)}
	}
	return mirror.Lists{}
}

// listOf returns the ACLs for a list with table t. If t was refused, the list keeps its ACLs, or is
// blocked when it has none.
func (b *bindings) listOf(t *cache.Table, bound []uint32) []uint32 {
	infra := b.slots.get(infraSlot).indexes
	switch own := b.ownership.m.Own(bound); {
	case !b.refusals.tooBig[t.Digest]:
		return slices.Concat(infra, b.slots.local[t.Digest].indexes)
	case b.decides(own):
		return own
	}
	return slices.Concat(infra, b.slots.get(closedSlot).indexes)
}

// decides reports whether the list contains ACLs of policy, or the blocking ACL.
func (b *bindings) decides(own []uint32) bool {
	constant := slices.Concat(b.slots.get(infraSlot).indexes, b.slots.get(openSlot).indexes, b.slots.get(reflectSlot).indexes)
	return slices.ContainsFunc(own, func(i uint32) bool { return !slices.Contains(constant, i) })
}

// refuseInterface records that the table of an interface does not fit.
func (b *bindings) refuseInterface(n *mirror.Interface, err error) {
	in, out := b.ownership.senders[n.Index], b.ownership.tables[n.Index]
	switch {
	case in != nil && out != nil:
		b.refusals.add(err, reasonACLs, slices.Concat(in.Origins, out.Origins), 1)
	case in != nil:
		b.refusals.add(err, reasonACLs, in.Origins, 1)
	case out != nil:
		b.refusals.add(err, reasonACLs, out.Origins, 1)
	case b.ownership.layout.Global != nil:
		b.refusals.add(err, reasonACLs, b.ownership.layout.Global.Origins, 0)
	default:
		b.refusals.errs = append(b.refusals.errs, err)
	}
}

// isBound reports whether an interface has the lists that it must have.
func (b *bindings) isBound(n *mirror.Interface) bool {
	return b.ownership.m.With(n, b.ours(n)).Equal(n.Bound)
}
