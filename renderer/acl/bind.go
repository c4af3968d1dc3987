package acl

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// maxACLs is how many ACLs one interface can have over both directions.
const maxACLs = 255

// bind gives an interface its lists, and remembers them.
func (m *mirror) bind(ctx context.Context, l *link, n *netif, to lists) error {
	if count := len(to.in) + len(to.out); count > maxACLs {
		err := fmt.Errorf("interface %s needs %d acls, %d are possible: %w", n.name, count, maxACLs, ErrTooLarge)
		if len(m.own(to.in))+len(m.own(to.out)) <= maxACLs {
			err = fmt.Errorf("%w (%w)", err, entries.ErrMayPass)
		}
		return err
	}
	if added, removed, ok := n.bound.exchange(to); ok {
		return m.exchange(ctx, l, n, added, removed)
	}
	if err := l.bind(ctx, n, to); err != nil {
		return err
	}
	n.bound = to
	return nil
}

// exchange returns which ACLs to append to what leaves by an interface, and which to take away
// then, both in order, so that it has other lists. VPP puts the last ACL of a list where it takes
// one away (acl_interface_add_del_inout_acl in acl.c), so it is possible only when one ACL is taken
// away, or one appended. It is false otherwise, and when the input list changes, when there would
// be too many for a moment, or when one of the lists is empty, which means that all may pass.
func (l lists) exchange(to lists) (added, removed []uint32, ok bool) {
	if !slices.Equal(l.in, to.in) || len(l.out) == 0 || len(to.out) == 0 {
		return nil, nil, false
	}
	for _, i := range l.out {
		if !slices.Contains(to.out, i) {
			removed = append(removed, i)
		}
	}
	for _, i := range to.out {
		if !slices.Contains(l.out, i) {
			added = append(added, i)
		}
	}
	switch {
	case len(removed) == 1 && len(added) > 1:
		added = append(added[1:], added[0]) // the last one takes the place of the one that goes
	case len(added) == 0:
		slices.Reverse(removed)
	case len(removed) > 1 && len(added) == 1: // it takes the first place; what is behind goes from the end
		slices.Reverse(removed[1:])
	case len(removed) > 1:
		return nil, nil, false
	}
	end := slices.Concat(l.out, added)
	for _, i := range removed {
		end = takenFrom(end, i)
	}
	return added, removed, slices.Equal(end, to.out) && len(l.in)+len(l.out)+len(added) <= maxACLs
}

// takenFrom returns a list as VPP leaves it when an ACL is taken away.
func takenFrom(list []uint32, acl uint32) []uint32 {
	at, last := slices.Index(list, acl), len(list)-1
	out := slices.Clone(list[:last])
	if at < last {
		out[at] = list[last]
	}
	return out
}

// exchange appends ACLs, and then takes others away. Before the first is taken away the old ones
// decide all, since each table does; afterwards the new ones do.
func (m *mirror) exchange(ctx context.Context, l *link, n *netif, added, removed []uint32) error {
	for _, i := range added {
		if err := l.addDel(ctx, n, i, true); err != nil {
			return err
		}
		n.bound.out = append(slices.Clone(n.bound.out), i)
	}
	for _, i := range removed {
		if err := l.addDel(ctx, n, i, false); err != nil {
			return err
		}
		n.bound.out = takenFrom(n.bound.out, i)
	}
	return nil
}
