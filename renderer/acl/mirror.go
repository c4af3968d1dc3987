package acl

import (
	"cmp"
	"context"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// mirror is what the vswitch is known to hold: read from it, then changed with
// every change that it acknowledged.
type mirror struct {
	acls map[uint32]*held // ours only
	long int              // an ACL that has had more entries is kept as a spare
	ifs  []*netif         // sorted by index

	spares spares

	// losing is called before an ACL is replaced or removed, and what it returns when the
	// vswitch has answered: done says that it was.
	losing func(aclIndex uint32) (lost func(done bool))
}

// held is an ACL of ours in the vswitch.
type held struct {
	index uint32
	tag   string
	piece entries.Piece // without rules after a read; without entries where they are not needed, see forget

	longest int // list that it has had, as far as that is known
}

// netif is an interface of the vswitch.
type netif struct {
	index     uint32
	name, tag string
	down      bool      // it was when it was read
	made      *vpp.Made // by sluice-cni; nil for others
	bound     lists
	behind    lists // of those that are not ours: what stands behind ours, or did when we had some
}

// lists are the ACLs of an interface: what enters the vswitch, and what leaves it.
type lists struct{ in, out []uint32 }

func (l lists) equal(o lists) bool { return slices.Equal(l.in, o.in) && slices.Equal(l.out, o.out) }

// read makes the mirror anew. Interfaces of the same process that were known before may be given.
func (l *link) read(ctx context.Context, before []*netif) (*mirror, error) {
	m := &mirror{ifs: before, acls: make(map[uint32]*held), spares: make(spares), losing: func(uint32) func(bool) { return func(bool) {} }}
	all, err := l.readACLs(ctx, none)
	if err != nil {
		return nil, err
	}
	same := make(map[entries.Digest]entries.Piece) // groups of interfaces hold the same
	for _, d := range all {
		if d.Tag == spareTag {
			m.spares[d.ACLIndex] = entries.MaxEntries // as long as it is not known
		} else if _, _, _, own := parseTag(d.Tag); own {
			p := entries.NewPiece(fromRules(d.R), nil)
			if known, ok := same[p.Digest]; ok {
				p = known
			}
			same[p.Digest] = p
			m.hold(d.ACLIndex, d.Tag, p)
		}
	}
	return m, m.readInterfaces(ctx, l)
}

// readInterfaces brings interfaces and what is bound to them up to date.
func (m *mirror) readInterfaces(ctx context.Context, l *link) error {
	ifs, err := l.readInterfaces(ctx)
	if err != nil {
		return err
	}
	bound, err := l.readLists(ctx)
	if err != nil {
		return err
	}
	old := make(map[uint32]*netif, len(m.ifs))
	for _, n := range m.ifs {
		old[n.index] = n
	}
	for _, n := range ifs {
		n.bound = bound[n.index]
		var behind lists
		if was := old[n.index]; was != nil && was.name == n.name {
			behind = was.behind
		}
		n.behind = lists{in: m.behind(n.bound.in, behind.in), out: m.behind(n.bound.out, behind.out)}
	}
	if err := l.readMade(ctx, ifs); err != nil {
		return err
	}
	slices.SortFunc(ifs, func(a, b *netif) int { return cmp.Compare(a.index, b.index) })
	m.ifs = ifs
	return nil
}

// own picks the ACLs of ours from a list.
func (m *mirror) own(list []uint32) []uint32 {
	var out []uint32
	for _, i := range list {
		if m.acls[i] != nil {
			out = append(out, i)
		}
	}
	return out
}

// hasOthers reports whether a list has an ACL that is not ours.
func (m *mirror) hasOthers(list []uint32) bool { return len(m.own(list)) < len(list) }

// behind returns which ACLs of others stand behind the first of ours. Where none of ours is left,
// those that did before do so still.
func (m *mirror) behind(list, before []uint32) []uint32 {
	first := slices.IndexFunc(list, func(i uint32) bool { return m.acls[i] != nil })
	if first < 0 {
		return before
	}
	var out []uint32
	for _, i := range list[first:] {
		if m.acls[i] == nil {
			out = append(out, i)
		}
	}
	return out
}

// with returns the lists of an interface with ours replaced. Those of others stay in front of ours,
// or behind them.
func (m *mirror) with(n *netif, ours lists) lists {
	replace := func(list, behind, ours []uint32) []uint32 {
		var front, back []uint32
		for _, i := range list {
			switch {
			case m.acls[i] != nil:
			case slices.Contains(behind, i):
				back = append(back, i)
			default:
				front = append(front, i)
			}
		}
		return slices.Concat(front, ours, back)
	}
	return lists{in: replace(n.bound.in, n.behind.in, ours.in), out: replace(n.bound.out, n.behind.out, ours.out)}
}

// put sends the content of an ACL and remembers it once it is acknowledged.
func (m *mirror) put(ctx context.Context, l *link, index uint32, slot *slot, n int, p entries.Piece) (uint32, error) {
	tag := aclTag(slot.name, n, slot.role(n), p.Digest)
	longest := m.longest(index)
	if index == none {
		index, longest = m.spareFor(p.Count)
	}
	lost := m.losing(index)
	index, err := l.put(ctx, index, tag, p)
	lost(err == nil)
	if err != nil {
		return none, err
	}
	m.hold(index, tag, p).longest = max(longest, p.Count)
	return index, nil
}

// hold remembers an ACL.
func (m *mirror) hold(index uint32, tag string, p entries.Piece) *held {
	h := &held{index: index, tag: tag, piece: p, longest: p.Count}
	m.acls[index] = h
	return h
}

// remove deletes an ACL of ours, or keeps it as a spare, and forgets it.
func (m *mirror) remove(ctx context.Context, l *link, index uint32) error {
	lost := m.losing(index)
	kept, err := m.spare(ctx, l, index)
	if err == nil && !kept {
		err = l.remove(ctx, index, m.acls[index].tag)
	}
	lost(err == nil)
	if err != nil {
		return err
	}
	delete(m.acls, index)
	return nil
}

// held returns how many entries our ACLs have.
func (m *mirror) held() (n int) {
	for _, h := range m.acls {
		n += h.piece.Count
	}
	return n
}

// applied returns how many entries interfaces have.
func (m *mirror) applied() (n int) {
	for _, i := range m.ifs {
		for _, list := range [2][]uint32{i.bound.in, i.bound.out} {
			for _, index := range list {
				if h := m.acls[index]; h != nil {
					n += h.piece.Count
				}
			}
		}
	}
	return n
}

// users returns which of our ACLs some interface has.
func (m *mirror) users() map[uint32]bool {
	out := make(map[uint32]bool)
	for _, n := range m.ifs {
		for _, list := range [2][]uint32{n.bound.in, n.bound.out} {
			for _, i := range list {
				out[i] = true
			}
		}
	}
	return out
}
