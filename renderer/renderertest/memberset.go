package renderertest

import (
	"maps"
	"net/netip"
	"slices"
)

// memberSet is a set of prefixes that do not overlap. It knows how many members
// of each length there are, so that an address is looked up once per length.
type memberSet struct {
	members map[netip.Prefix]struct{}
	lengths map[length]int
}

// length of a prefix in one family.
type length struct {
	is4  bool
	bits int
}

func newMemberSet() *memberSet {
	return &memberSet{members: map[netip.Prefix]struct{}{}, lengths: map[length]int{}}
}

func lengthOf(p netip.Prefix) length { return length{p.Addr().Is4(), p.Bits()} }

// add reports whether the prefix was no member before.
func (s *memberSet) add(p netip.Prefix) bool {
	if s.has(p) {
		return false
	}
	s.members[p] = struct{}{}
	s.lengths[lengthOf(p)]++
	return true
}

// remove reports whether the prefix was a member.
func (s *memberSet) remove(p netip.Prefix) bool {
	if !s.has(p) {
		return false
	}
	delete(s.members, p)
	l := lengthOf(p)
	if s.lengths[l]--; s.lengths[l] == 0 {
		delete(s.lengths, l)
	}
	return true
}

// has reports whether the prefix itself is a member.
func (s *memberSet) has(p netip.Prefix) bool {
	if s == nil {
		return false
	}
	_, ok := s.members[p]
	return ok
}

// contains reports whether a member holds the address.
func (s *memberSet) contains(a netip.Addr) bool {
	if s == nil {
		return false
	}
	for l := range s.lengths {
		if l.is4 != a.Is4() {
			continue
		}
		p, err := a.Prefix(l.bits)
		if err != nil {
			continue // more bits than the address has: no prefix of its family
		}
		if s.has(p) {
			return true
		}
	}
	return false
}

// overlap returns two members of which one holds the other. Members of equal
// length cannot overlap, which is the case of every set of pods.
func (s *memberSet) overlap() (outer, inner netip.Prefix, found bool) {
	lengths := 0
	for l := range s.lengths {
		if l.is4 {
			lengths++
		}
	}
	if lengths < 2 && len(s.lengths)-lengths < 2 {
		return outer, inner, false
	}
	// In this order a prefix is followed at once by one that it holds, if any.
	sorted := s.sorted()
	for i, p := range sorted[:len(sorted)-1] {
		if p.Overlaps(sorted[i+1]) {
			return p, sorted[i+1], true
		}
	}
	return outer, inner, false
}

// missingIn counts the members that the other set does not have.
func (s *memberSet) missingIn(o *memberSet) int {
	n := 0
	for p := range s.members {
		if !o.has(p) {
			n++
		}
	}
	return n
}

// sorted returns the members by address, short prefixes first.
func (s *memberSet) sorted() []netip.Prefix {
	return slices.SortedFunc(maps.Keys(s.members), netip.Prefix.Compare)
}
