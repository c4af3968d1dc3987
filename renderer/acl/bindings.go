package acl

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// bindings determine the ACL lists that interfaces must have.
type bindings struct {
	ownership *ownership
	acls      *acls
	refusals  *refusals
}

// ours returns the ACLs of ours that an interface must have.
func (b *bindings) ours(n *mirror.Interface) mirror.Lists {
	if b.ownership.blocked[n.Index] {
		closed := b.acls.one(closedACL)
		return mirror.Lists{In: closed, Out: closed}
	}
	if b.ownership.options.Orientation == Split {
		return b.oursSplit(n)
	}
	infra := b.acls.one(infraACL)
	to := mirror.Lists{}
	if b.ownership.judgesInput(n) {
		to.In = b.acls.one(reflectACL)
		if _, isPods := b.ownership.pods[n.Index]; isPods {
			to.In = slices.Concat(infra, b.acls.indexes(place{n.Index, guard}), to.In)
		}
	}
	if t := b.ownership.outputTable(n); t != nil {
		to.Out = b.listOf(t, place{n.Index, output}, n.Bound.Out)
	} else if b.ownership.isOpen(n) {
		to.Out = slices.Concat(infra, b.acls.one(openACL))
	}
	return to
}

// oursSplit returns the lists that an interface should have with Orientation Split.
func (b *bindings) oursSplit(n *mirror.Interface) mirror.Lists {
	in, out := b.ownership.senders[n.Index], b.ownership.tables[n.Index]
	switch {
	case in != nil && out != nil:
		return mirror.Lists{In: b.listOf(in, place{n.Index, input}, n.Bound.In), Out: b.listOf(out, place{n.Index, output}, n.Bound.Out)}
	case in != nil: // nothing blocks replies
		return mirror.Lists{In: b.listOf(in, place{n.Index, input}, n.Bound.In)}
	case out != nil:
		return mirror.Lists{In: b.acls.one(reflectACL), Out: b.listOf(out, place{n.Index, output}, n.Bound.Out)}
	}
	return mirror.Lists{}
}

// listOf returns the ACLs for a list with table t. If t was refused, the list keeps its ACLs, or is
// blocked when it has none.
func (b *bindings) listOf(t *cache.Table, at place, bound []uint32) []uint32 {
	infra := b.acls.one(infraACL)
	switch own := b.ownership.m.Own(bound); {
	case !b.refusals.refused[t.Digest]:
		return slices.Concat(infra, b.acls.indexes(at))
	case b.decides(own):
		return own
	}
	return slices.Concat(infra, b.acls.one(closedACL))
}

// decides reports whether the list contains ACLs of policy, or the blocking ACL.
func (b *bindings) decides(own []uint32) bool {
	constant := slices.Concat(b.acls.one(infraACL), b.acls.one(openACL), b.acls.one(reflectACL))
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
