package mirror

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Mirror is the known content of the vswitch: read once, then updated with every acknowledged
// change.
type Mirror struct {
	link       *Link
	ACLs       map[uint32]*ACL // ours only
	Interfaces []*Interface    // sorted by index
	Longest    map[uint32]int  // entries of the longest list that an index of an ACL had, as far as known

	// Losing is called before ACLs are replaced or removed. The returned function is called after
	// the vswitch has answered; done reports whether the change was made.
	Losing func(indexes ...uint32) (lost func(done bool))
}

// ACL is one of our ACLs in the vswitch.
type ACL struct {
	Index uint32
	Tag   string
	Piece entries.Piece // without rules after a read; without entries where these are not needed
}

// Interface is an interface of the vswitch.
type Interface struct {
	Index     uint32
	Name, Tag string
	Super     uint32    // the interface that it is a sub-interface of; its own index: of none
	Down      bool      // as read last
	Made      *vpp.Made // by sluice-cni; nil for other interfaces
	Bound     Lists
	Behind    Lists // foreign ACLs behind ours, or behind where ours were
}

// Lists are the input and the output ACLs of an interface.
type Lists struct{ In, Out []uint32 }

// Equal reports whether both have the same ACLs in the same order.
func (l Lists) Equal(o Lists) bool { return slices.Equal(l.In, o.In) && slices.Equal(l.Out, o.Out) }

// Read rebuilds the mirror. before are interfaces of the same VPP process that were known before,
// if any.
func (l *Link) Read(ctx context.Context, before []*Interface) (*Mirror, error) {
	m := &Mirror{link: l, Interfaces: before, ACLs: make(map[uint32]*ACL), Longest: make(map[uint32]int), Losing: func(...uint32) func(bool) { return func(bool) {} }}
	all, err := l.ReadACLs(ctx, None)
	if err != nil {
		return nil, err
	}
	same := make(map[entries.Digest]entries.Piece) // interfaces of pods with equal rules hold the same entries
	for _, d := range all {
		if _, _, own := ParseTag(d.Tag); own {
			p := entries.NewPiece(FromRules(d.R), nil)
			if known, ok := same[p.Digest]; ok {
				p = known
			}
			same[p.Digest] = p
			m.hold(d.ACLIndex, d.Tag, p)
		}
	}
	return m, m.ReadInterfaces(ctx)
}

// ReadInterfaces refreshes the interfaces and their ACL lists.
func (m *Mirror) ReadInterfaces(ctx context.Context) error {
	ifs, err := m.link.readInterfaces(ctx)
	if err != nil {
		return err
	}
	bound, err := m.link.readLists(ctx)
	if err != nil {
		return err
	}
	old := make(map[uint32]*Interface, len(m.Interfaces))
	for _, n := range m.Interfaces {
		old[n.Index] = n
	}
	for _, n := range ifs {
		n.Bound = bound[n.Index]
		var behind Lists
		if was := old[n.Index]; was != nil && was.Name == n.Name {
			behind = was.Behind
		}
		n.Behind = Lists{In: m.behind(n.Bound.In, behind.In), Out: m.behind(n.Bound.Out, behind.Out)}
	}
	named := make(map[uint32]vpp.Named, len(ifs))
	for _, n := range ifs {
		named[n.Index] = vpp.Named{Name: n.Name, Tag: n.Tag}
	}
	made, err := m.link.ReadMade(ctx, named)
	if err != nil {
		return err
	}
	for _, n := range ifs {
		n.Made = made[n.Index]
	}
	slices.SortFunc(ifs, func(a, b *Interface) int { return cmp.Compare(a.Index, b.Index) })
	m.Interfaces = ifs
	return nil
}

// Own returns our ACLs in a list.
func (m *Mirror) Own(list []uint32) []uint32 {
	var out []uint32
	for _, i := range list {
		if m.ACLs[i] != nil {
			out = append(out, i)
		}
	}
	return out
}

// HasOthers reports whether a list has a foreign ACL.
func (m *Mirror) HasOthers(list []uint32) bool { return len(m.Own(list)) < len(list) }

// behind returns the foreign ACLs behind the first of ours. If none of ours is left, those in
// before remain.
func (m *Mirror) behind(list, before []uint32) []uint32 {
	first := slices.IndexFunc(list, func(i uint32) bool { return m.ACLs[i] != nil })
	if first < 0 {
		return before
	}
	var out []uint32
	for _, i := range list[first:] {
		if m.ACLs[i] == nil {
			out = append(out, i)
		}
	}
	return out
}

// With returns the lists of an interface with ours replaced. Foreign ACLs stay in front of ours or
// behind them.
func (m *Mirror) With(n *Interface, ours Lists) Lists {
	replace := func(list, behind, ours []uint32) []uint32 {
		var front, back []uint32
		for _, i := range list {
			switch {
			case m.ACLs[i] != nil:
			case slices.Contains(behind, i):
				back = append(back, i)
			default:
				front = append(front, i)
			}
		}
		return slices.Concat(front, ours, back)
	}
	return Lists{In: replace(n.Bound.In, n.Behind.In, ours.In), Out: replace(n.Bound.Out, n.Behind.Out, ours.Out)}
}

// putting is a way to write the content of an ACL; it returns the ACL's index.
type putting func(ctx context.Context, index uint32, tag string, p entries.Piece) (uint32, error)

// Put writes the content of an ACL, and records it once it is acknowledged.
func (m *Mirror) Put(ctx context.Context, index uint32, tag string, p entries.Piece) (uint32, error) {
	return m.putBy(ctx, m.link.addReplace, index, tag, p)
}

// PutUnseen replaces the content of an ACL that exists. Sessions do not see the change, as far as
// the vswitch has commands to that end.
func (m *Mirror) PutUnseen(ctx context.Context, index uint32, tag string, p entries.Piece) (uint32, error) {
	return m.putBy(ctx, m.link.putUnseen, index, tag, p)
}

func (m *Mirror) putBy(ctx context.Context, put putting, index uint32, tag string, p entries.Piece) (uint32, error) {
	lost := m.Losing(index)
	index, err := put(ctx, index, tag, p)
	lost(err == nil)
	if err != nil {
		return None, err
	}
	m.hold(index, tag, p)
	return index, nil
}

// Write is new content of an ACL that exists.
type Write struct {
	Index uint32
	Tag   string
	Piece entries.Piece
}

// PutTogether writes ACLs that do not depend on each other: if one write fails, the others are made.
// After an error the mirror does not know which.
func (m *Mirror) PutTogether(ctx context.Context, all []Write) error {
	indexes := make([]uint32, len(all))
	for i, w := range all {
		indexes[i] = w.Index
	}
	lost := m.Losing(indexes...)
	err := m.link.putTogether(ctx, all)
	lost(err == nil)
	if err != nil {
		return err
	}
	for _, w := range all {
		m.hold(w.Index, w.Tag, w.Piece)
	}
	return nil
}

// hold records an ACL.
func (m *Mirror) hold(index uint32, tag string, p entries.Piece) {
	m.ACLs[index] = &ACL{Index: index, Tag: tag, Piece: p}
	m.Longest[index] = max(m.Longest[index], p.Count)
}

// Counted returns the number of entries that VPP has counters for: it frees none.
func (m *Mirror) Counted() (n int) {
	for _, longest := range m.Longest {
		n += longest
	}
	return n
}

// Remove deletes one of our ACLs.
func (m *Mirror) Remove(ctx context.Context, index uint32) error {
	lost := m.Losing(index)
	err := m.link.remove(ctx, index, m.ACLs[index].Tag)
	lost(err == nil)
	if err != nil {
		return err
	}
	delete(m.ACLs, index)
	return nil
}

// Entries returns the number of entries in our ACLs, or on interfaces, if that is more: interfaces share
// few.
func (m *Mirror) Entries() int {
	held, applied := 0, 0
	for _, h := range m.ACLs {
		held += h.Piece.Count
	}
	for _, i := range m.Interfaces {
		for _, list := range [2][]uint32{i.Bound.In, i.Bound.Out} {
			for _, index := range list {
				if h := m.ACLs[index]; h != nil {
					applied += h.Piece.Count
				}
			}
		}
	}
	return max(held, applied)
}

// Users returns the set of our ACLs that some interface has.
func (m *Mirror) Users() map[uint32]bool {
	out := make(map[uint32]bool)
	for _, n := range m.Interfaces {
		for _, list := range [2][]uint32{n.Bound.In, n.Bound.Out} {
			for _, i := range list {
				out[i] = true
			}
		}
	}
	return out
}

// Rebound returns the interfaces that have lost ACLs of ours, or have them in another order, since
// they were last read or bound.
func (m *Mirror) Rebound(before []*Interface) (found []Drift) {
	old := make(map[uint32]*Interface, len(before))
	for _, n := range before {
		old[n.Index] = n
	}
	for _, n := range m.Interfaces {
		was := old[n.Index]
		if was == nil || was.Name != n.Name || was.Tag != n.Tag {
			continue
		}
		expected, has := Lists{In: m.Own(was.Bound.In), Out: m.Own(was.Bound.Out)}, Lists{In: m.Own(n.Bound.In), Out: m.Own(n.Bound.Out)}
		if !expected.Equal(has) {
			found = append(found, Drift{Kind: DriftBinding, What: fmt.Sprintf("interface %s has input %v and output %v of ours instead of %v and %v",
				n.Name, has.In, has.Out, expected.In, expected.Out)})
		}
	}
	return found
}

// HoldsBeside reports whether the vswitch has ACLs of ours that do not have the given name.
func (m *Mirror) HoldsBeside(name string) bool {
	for _, h := range m.ACLs {
		if of, _, _ := ParseTag(h.Tag); of != name {
			return true
		}
	}
	return false
}
