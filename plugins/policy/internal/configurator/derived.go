package configurator

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// derivedSet is an address set built from blocks, or from the intersection of two sets. Lists share
// it.
type derivedSet struct {
	addressSet
	uses      int  // number of lists
	published bool // renderers have its members

	// For a set with common: the members that renderers have, and the addresses that have since
	// joined or left one of its parts.
	current map[netip.Addr]struct{}
	moved   []netip.Prefix
}

// difference returns the changes to send to renderers, and records them as sent.
func (s *derivedSet) difference(members Sets) (added, removed []netip.Prefix) {
	switch {
	case s.common != nil:
		return s.commonDifference(members)
	case s.published == (s.uses > 0):
		return nil, nil
	case s.published:
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
	case !s.published:
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

// listed returns the members that renderers have, sorted.
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
	touched map[api.SetID]struct{}      // sets with possible changes for renderers
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

// moved records that addresses joined or left a set of the processor.
func (x *derivedSets) moved(id api.SetID, prefixes []netip.Prefix) {
	for _, set := range x.partOf[id] {
		set.moved = append(set.moved, prefixes...)
		x.touched[set.id] = struct{}{}
	}
}

// publish sends derived sets that came into use or whose members changed, and drops and reports
// those that are no longer used, in the order of their IDs.
func (x *derivedSets) publish(members Sets, update func(id api.SetID, added, removed []netip.Prefix)) {
	if len(x.touched) == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(x.touched)) {
		set := x.byID[id]
		added, removed := set.difference(members)
		if len(added)+len(removed) > 0 {
			update(id, added, removed)
		}
		set.published = set.uses > 0
		if set.uses == 0 {
			x.drop(set)
		}
	}
	clear(x.touched)
}

// drop removes a set.
func (x *derivedSets) drop(set *derivedSet) {
	delete(x.byID, set.id)
	for _, part := range set.parts() {
		rest := slices.DeleteFunc(x.partOf[part], func(s *derivedSet) bool { return s == set })
		if x.partOf[part] = rest; len(rest) == 0 {
			delete(x.partOf, part)
		}
	}
}
