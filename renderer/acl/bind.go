package acl

import (
	"context"
	"fmt"
	"slices"
)

// maxACLs is how many ACLs one interface can have over both directions.
const maxACLs = 255

// bind gives an interface its lists, and remembers them.
func (m *mirror) bind(ctx context.Context, l *link, n *netif, to lists) error {
	if count := len(to.in) + len(to.out); count > maxACLs {
		err := fmt.Errorf("interface %s needs %d acls, %d are possible: %w", n.name, count, maxACLs, ErrTooLarge)
		if len(m.own(to.in))+len(m.own(to.out)) <= maxACLs {
			err = fmt.Errorf("%w (%w)", err, errMayPass)
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

// exchange returns which ACLs to append to what leaves by an interface, and then which
// to take away, so that it has other lists. It is false when the input list changes,
// when an ACL would have to be put between others, when there would be too many for
// a moment, or when one of the lists is empty, which means that all may pass.
func (l lists) exchange(to lists) (added, removed []uint32, ok bool) {
	if !slices.Equal(l.in, to.in) || len(l.out) == 0 || len(to.out) == 0 {
		return nil, nil, false
	}
	var kept []uint32
	for _, i := range l.out {
		if slices.Contains(to.out, i) {
			kept = append(kept, i)
		} else {
			removed = append(removed, i)
		}
	}
	for _, i := range to.out {
		if !slices.Contains(l.out, i) {
			added = append(added, i)
		}
	}
	ok = slices.Equal(slices.Concat(kept, added), to.out) && len(l.in)+len(l.out)+len(added) <= maxACLs
	return added, removed, ok
}

// exchange appends ACLs from the first to the last, and takes others away from the
// last to the first. In between every packet meets its old or its new verdict: a list
// with old and new ACLs is a sequence that gets what is new first and loses what is
// old then, in the order that changes explains.
func (m *mirror) exchange(ctx context.Context, l *link, n *netif, added, removed []uint32) error {
	for _, i := range added {
		if err := l.addDel(ctx, n, i, true); err != nil {
			return err
		}
		n.bound.out = append(slices.Clone(n.bound.out), i)
	}
	for _, i := range slices.Backward(removed) {
		if err := l.addDel(ctx, n, i, false); err != nil {
			return err
		}
		n.bound.out = slices.DeleteFunc(slices.Clone(n.bound.out), func(o uint32) bool { return o == i })
	}
	return nil
}
