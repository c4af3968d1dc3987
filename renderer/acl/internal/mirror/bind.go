package mirror

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// maxACLs is the maximum number of ACLs of one interface, over both directions.
const maxACLs = 255

// Bind sets the lists of an interface and records them.
func (m *Mirror) Bind(ctx context.Context, n *Interface, to Lists) error {
	if count := len(to.In) + len(to.Out); count > maxACLs {
		err := fmt.Errorf("interface %s needs %d acls, at most %d are possible: %w", n.Name, count, maxACLs, entries.ErrTooLarge)
		if len(m.Own(to.In))+len(m.Own(to.Out)) <= maxACLs {
			err = fmt.Errorf("%w (%w)", err, entries.ErrMayPass)
		}
		return err
	}
	if added, removed, ok := n.Bound.Exchange(to); ok {
		return m.exchange(ctx, n, added, removed)
	}
	if err := m.link.bind(ctx, n, to); err != nil {
		return err
	}
	n.Bound = to
	return nil
}

// Exchange returns the ACLs to append to the output list of an interface, and the ACLs to remove
// then, both in order, to get another list. When VPP removes an ACL, it moves the last ACL of the
// list to that position (acl_interface_add_del_inout_acl in acl.c). So this is possible only when
// one ACL is removed or one is appended. ok is false otherwise, when the input list changes, and
// when there would be too many ACLs for a moment. It is also false when one of the lists is empty,
// because an empty list permits everything.
func (l Lists) Exchange(to Lists) (added, removed []uint32, ok bool) {
	if !slices.Equal(l.In, to.In) || len(l.Out) == 0 || len(to.Out) == 0 {
		return nil, nil, false
	}
	for _, i := range l.Out {
		if !slices.Contains(to.Out, i) {
			removed = append(removed, i)
		}
	}
	for _, i := range to.Out {
		if !slices.Contains(l.Out, i) {
			added = append(added, i)
		}
	}
	switch {
	case len(removed) == 1 && len(added) > 1:
		added = append(added[1:], added[0]) // the last one moves to the position of the removed one
	case len(added) == 0:
		slices.Reverse(removed)
	case len(removed) > 1 && len(added) == 1: // it moves to the first position; the rest is removed from the end
		slices.Reverse(removed[1:])
	case len(removed) > 1:
		return nil, nil, false
	}
	end := slices.Concat(l.Out, added)
	for _, i := range removed {
		end = takenFrom(end, i)
	}
	return added, removed, slices.Equal(end, to.Out) && len(l.In)+len(l.Out)+len(added) <= maxACLs
}

// takenFrom returns a list as VPP leaves it when an ACL is removed.
func takenFrom(list []uint32, acl uint32) []uint32 {
	at, last := slices.Index(list, acl), len(list)-1
	out := slices.Clone(list[:last])
	if at < last {
		out[at] = list[last]
	}
	return out
}

// exchange appends ACLs and then removes others. Every table decides all traffic, so the old ones
// decide before the first removal, and the new ones afterwards.
func (m *Mirror) exchange(ctx context.Context, n *Interface, added, removed []uint32) error {
	for _, i := range added {
		if err := m.link.addDel(ctx, n, i, true); err != nil {
			return err
		}
		n.Bound.Out = append(slices.Clone(n.Bound.Out), i)
	}
	for _, i := range removed {
		if err := m.link.addDel(ctx, n, i, false); err != nil {
			return err
		}
		n.Bound.Out = takenFrom(n.Bound.Out, i)
	}
	return nil
}
