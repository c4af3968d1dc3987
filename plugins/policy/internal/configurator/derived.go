package configurator

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// derivedSet is an address set made of blocks, or of two sets, shared by lists.
type derivedSet struct {
	addressSet
	uses int  // by lists
	told bool // renderers know its members

	// Of a set with common: what renderers know, and the addresses that came to or
	// left one of its parts since.
	current map[netip.Addr]struct{}
	moved   []netip.Prefix
}

// difference returns what renderers have to be told of a set, and takes it for told.
func (s *derivedSet) difference(members Sets) (added, removed []netip.Prefix) {
	switch {
	case s.common != nil:
		return s.commonDifference(members)
	case s.told == (s.uses > 0):
		return nil, nil
	case s.told:
		return nil, s.members
	}
	return s.members, nil
}

func (s *derivedSet) commonDifference(members Sets) (added, removed []netip.Prefix) {
	moved := s.moved
	s.moved = nil
	switch {
	case s.uses == 0:
		removed = s.listed()
		s.current = nil
		return nil, removed
	case !s.told:
		s.current = map[netip.Addr]struct{}{}
		for _, a := range members.Members(s.common.sets[0]) {
			moved = append(moved, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	slices.SortFunc(moved, netip.Prefix.Compare)
	for _, p := range slices.Compact(moved) {
		_, was := s.current[p.Addr()]
		switch is := s.common.contains(members, p.Addr()); {
		case is && !was:
			s.current[p.Addr()] = struct{}{}
			added = append(added, p)
		case was && !is:
			delete(s.current, p.Addr())
			removed = append(removed, p)
		}
	}
	return added, removed
}

// listed returns the members that renderers know, in order.
func (s *derivedSet) listed() []netip.Prefix {
	if s.common == nil {
		return s.members
	}
	out := make([]netip.Prefix, 0, len(s.current))
	for a := range s.current {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// derivedSets holds the derived sets that lists use.
type derivedSets struct {
	byID    map[api.SetID]*derivedSet
	touched map[api.SetID]struct{}      // renderers may have to be told of them
	partOf  map[api.SetID][]*derivedSet // sets with common, by their parts
}

func newDerivedSets() derivedSets {
	return derivedSets{byID: map[api.SetID]*derivedSet{}, touched: map[api.SetID]struct{}{}, partOf: map[api.SetID][]*derivedSet{}}
}

func (x *derivedSets) use(s addressSet) {
	set := x.byID[s.id]
	if set == nil {
		set = &derivedSet{addressSet: s}
		x.byID[s.id] = set
		for _, part := range s.parts() {
			x.partOf[part] = append(x.partOf[part], set)
		}
	}
	set.uses++
	x.touched[s.id] = struct{}{}
}

func (x *derivedSets) release(id api.SetID) {
	x.byID[id].uses--
	x.touched[id] = struct{}{}
}

// forgetPublished makes the next tell say everything, as a resync must.
func (x *derivedSets) forgetPublished() {
	for id, set := range x.byID {
		set.told, set.current = false, nil
		x.touched[id] = struct{}{}
	}
}

// moved notes that addresses came to or left a set of the processor.
func (x *derivedSets) moved(id api.SetID, prefixes []netip.Prefix) {
	for _, set := range x.partOf[id] {
		set.moved = append(set.moved, prefixes...)
		x.touched[set.id] = struct{}{}
	}
}

// publish reports derived sets that came into use or have other members, and drops and
// reports those that nobody uses any more, in the order of their IDs.
func (x *derivedSets) publish(members Sets, update func(id api.SetID, added, removed []netip.Prefix)) {
	for _, id := range slices.Sorted(maps.Keys(x.touched)) {
		set := x.byID[id]
		added, removed := set.difference(members)
		if len(added)+len(removed) > 0 {
			update(id, added, removed)
		}
		set.told = set.uses > 0
		if set.uses == 0 {
			x.drop(set)
		}
	}
	clear(x.touched)
}

// drop forgets a set.
func (x *derivedSets) drop(set *derivedSet) {
	delete(x.byID, set.id)
	for _, part := range set.parts() {
		rest := slices.DeleteFunc(x.partOf[part], func(s *derivedSet) bool { return s == set })
		if x.partOf[part] = rest; len(rest) == 0 {
			delete(x.partOf, part)
		}
	}
}
