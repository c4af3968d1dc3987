package membership

import (
	"maps"
	"net/netip"
	"slices"
)

// countedSet is a set whose members are counted: those of the own node, which local
// pods tell, and those of selected nodes, two of which may have one address.
type countedSet struct {
	refs      map[netip.Addr]int
	published map[netip.Addr]struct{} // taken before
	moved     []netip.Addr            // counted since the last take
}

func newCountedSet() countedSet {
	return countedSet{refs: map[netip.Addr]int{}, published: map[netip.Addr]struct{}{}}
}

// change counts d more objects that have an address.
func (s *countedSet) change(a netip.Addr, d int) {
	s.refs[a] += d
	if s.refs[a] <= 0 {
		delete(s.refs, a)
	}
	s.moved = append(s.moved, a)
}

// changeAll counts an object that had some addresses and has others now.
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

// take returns what became different since the last take, and takes it for published.
func (s *countedSet) take() (added, removed []netip.Prefix) {
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

// has reports whether an address was published.
func (s *countedSet) has(a netip.Addr) bool {
	_, ok := s.published[a]
	return ok
}

// members returns what was published, sorted.
func (s *countedSet) members() []netip.Addr {
	return slices.SortedFunc(maps.Keys(s.published), netip.Addr.Compare)
}
