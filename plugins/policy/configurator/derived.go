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

func (in *interner) useSet(s addressSet) {
	set := in.derived[s.id]
	if set == nil {
		set = &derivedSet{addressSet: s}
		in.derived[s.id] = set
		for _, part := range s.parts() {
			in.partOf[part] = append(in.partOf[part], set)
		}
	}
	set.uses++
	in.touched[s.id] = struct{}{}
}

// forgetTold makes the next tell say everything, as a resync must.
func (in *interner) forgetTold() {
	for id, set := range in.derived {
		set.told, set.current = false, nil
		in.touched[id] = struct{}{}
	}
}

// moved notes that addresses came to or left a set of the processor.
func (in *interner) moved(id api.SetID, prefixes []netip.Prefix) {
	for _, set := range in.partOf[id] {
		set.moved = append(set.moved, prefixes...)
		in.touched[set.id] = struct{}{}
	}
}

// tell reports derived sets that came into use or have other members, and drops and
// reports those that nobody uses any more, in the order of their IDs.
func (in *interner) tell(members Sets, update func(id api.SetID, added, removed []netip.Prefix)) {
	for _, id := range slices.Sorted(maps.Keys(in.touched)) {
		set := in.derived[id]
		added, removed := set.difference(members)
		if len(added)+len(removed) > 0 {
			update(id, added, removed)
		}
		set.told = set.uses > 0
		if set.uses == 0 {
			in.drop(set)
		}
	}
	clear(in.touched)
}

// drop forgets a set.
func (in *interner) drop(set *derivedSet) {
	delete(in.derived, set.id)
	for _, part := range set.parts() {
		rest := slices.DeleteFunc(in.partOf[part], func(s *derivedSet) bool { return s == set })
		if in.partOf[part] = rest; len(rest) == 0 {
			delete(in.partOf, part)
		}
	}
}
