package membership

import (
	"maps"
	"net/netip"
	"slices"
)

// countedSet is a set that counts references to its members: the set of the own node's addresses,
// which local pods name, and sets of selected nodes, two of which may share an address.
type countedSet struct {
	refs      map[netip.Addr]int
	published map[netip.Addr]struct{} // by the last take
	moved     []netip.Addr            // with changed counts since the last take
}

func newCountedSet() countedSet {
	return countedSet{refs: map[netip.Addr]int{}, published: map[netip.Addr]struct{}{}}
}

// change adds d to the number of objects that have an address.
func (s *countedSet) change(a netip.Addr, d int) {
	s.refs[a] += d
	if s.refs[a] <= 0 {
		delete(s.refs, a)
	}
	s.moved = append(s.moved, a)
}

// changeAll updates the counts for an object whose addresses changed from old to now.
func (s *countedSet) changeAll(old, now []netip.Addr) {
	if slices.Equal(old, now) {
		return
	}
	for _, a := range now {
		s.change(a, +1)
	}
	for _, a := range old {
		s.change(a, -1)
	}
}

// takeChanges returns the changes since the last take, and records them as published.
func (s *countedSet) takeChanges() (added, removed []netip.Prefix) {
	slices.SortFunc(s.moved, netip.Addr.Compare)
	for _, a := range slices.Compact(s.moved) {
		_, was := s.published[a]
		switch is := s.refs[a] > 0; {
		case is && !was:
			s.published[a] = struct{}{}
			added = append(added, netip.PrefixFrom(a, a.BitLen()))
		case was && !is:
			delete(s.published, a)
			removed = append(removed, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	s.moved = s.moved[:0]
	return added, removed
}

// wasPublished reports whether an address was published.
func (s *countedSet) wasPublished(a netip.Addr) bool {
	_, ok := s.published[a]
	return ok
}

// members returns what was published, sorted.
func (s *countedSet) members() []netip.Addr {
	return slices.SortedFunc(maps.Keys(s.published), netip.Addr.Compare)
}
