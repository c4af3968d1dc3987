package cache

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/gaissmai/bart"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/internal/prefixes"
)

// set holds the members of one address set. Members do not overlap. Single addresses are in a map;
// only longer prefixes need a longest-prefix match.
type set struct {
	hosts map[netip.Addr]struct{}
	nets  bart.Lite

	// before holds every prefix that changed since the last Commit, and whether it was a member
	// then. It is nil for a set that is new since then and had no members.
	before map[netip.Prefix]bool
	isNew  bool

	// sorted holds all members in order, except the prefixes in late, which changed since sorted
	// was made. It is made on first use.
	sorted []netip.Prefix
	late   []netip.Prefix

	derived bool // computed by the cache, not set by UpdateSet
}

// maxLate is the number of changed members up to which insertion one by one is cheaper than sorting
// all members.
const maxLate = 64

func newSet() *set { return &set{hosts: make(map[netip.Addr]struct{}), isNew: true} }

func (s *set) len() int { return len(s.hosts) + s.nets.Size() }

func (s *set) has(p netip.Prefix) bool {
	if prefixes.IsHost(p) {
		_, ok := s.hosts[p.Addr()]
		return ok
	}
	return s.nets.Get(p)
}

// put adds or removes a member and reports whether the set changed.
func (s *set) put(p netip.Prefix, member bool) bool {
	if s.has(p) == member {
		return false
	}
	s.note(p, member)
	switch {
	case !prefixes.IsHost(p) && member:
		s.nets.Insert(p)
	case !prefixes.IsHost(p):
		s.nets.Delete(p)
	case member:
		s.hosts[p.Addr()] = struct{}{}
	default:
		delete(s.hosts, p.Addr())
	}
	if s.sorted != nil {
		s.late = append(s.late, p)
	}
	if len(s.late) > maxLate {
		s.sorted, s.late = nil, nil
	}
	return true
}

// note records what a prefix was at the last Commit.
func (s *set) note(p netip.Prefix, member bool) {
	if s.isNew {
		return
	}
	if s.before == nil {
		s.before = make(map[netip.Prefix]bool)
	}
	if _, ok := s.before[p]; !ok {
		s.before[p] = !member
	} else if s.before[p] == member {
		delete(s.before, p) // unchanged since Commit
	}
}

// hasChanged reports whether the members differ from those at the last Commit.
func (s *set) hasChanged() bool { return len(s.before) > 0 || s.isNew && s.len() > 0 }

// contains reports whether the address is in the staged set.
func (s *set) contains(a netip.Addr) bool {
	if _, ok := s.hosts[a]; ok {
		return true
	}
	return s.nets.Size() > 0 && s.nets.Contains(a)
}

// contained reports whether the address was in the set at the last Commit.
func (s *set) contained(a netip.Addr) bool {
	if s.isNew {
		return false
	}
	if was, ok := s.before[prefixes.Host(a)]; ok && was {
		return true
	}
	for p, was := range s.before {
		if was && p.Contains(a) {
			return true
		}
	}
	if _, ok := s.hosts[a]; ok {
		_, isNew := s.before[prefixes.Host(a)]
		return !isNew
	}
	if !s.contains(a) {
		return false
	}
	p, _ := s.nets.LookupPrefixLPM(prefixes.Host(a))
	_, isNew := s.before[p]
	return !isNew
}

// members returns all members in order. The slice is valid until the next change.
func (s *set) members() []netip.Prefix {
	if s.sorted == nil {
		s.sorted = make([]netip.Prefix, 0, s.len())
		for a := range s.hosts {
			s.sorted = append(s.sorted, prefixes.Host(a))
		}
		for p := range s.nets.All() {
			s.sorted = append(s.sorted, p)
		}
		slices.SortFunc(s.sorted, prefixes.Compare)
		return s.sorted
	}
	for _, p := range s.late {
		i, found := slices.BinarySearchFunc(s.sorted, p, prefixes.Compare)
		switch member := s.has(p); {
		case member && !found:
			s.sorted = slices.Insert(s.sorted, i, p)
		case !member && found:
			s.sorted = slices.Delete(s.sorted, i, i+1)
		}
	}
	s.late = s.late[:0]
	return s.sorted
}

// sets holds the staged address sets.
type sets struct {
	mu      *sync.RWMutex // held while sets change
	all     map[api.SetID]*set
	changed map[api.SetID]struct{} // since the last Commit
	stale   map[api.SetID]struct{} // since the last Compute
}

// of returns a set and creates it if it is missing.
func (x *sets) of(id api.SetID) *set {
	s := x.all[id]
	if s == nil {
		s = newSet()
		x.mu.Lock()
		x.all[id] = s
		x.mu.Unlock()
	}
	return s
}

// put adds or removes a member under the lock, and reports whether the set changed.
func (x *sets) put(id api.SetID, s *set, p netip.Prefix, member bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !s.put(p, member) {
		return false
	}
	x.changed[id], x.stale[id] = struct{}{}, struct{}{}
	return true
}

// membersOf returns the members of a set in order. The slice is valid until the next change.
func (x *sets) membersOf(id api.SetID) []netip.Prefix {
	s := x.all[id]
	if s == nil {
		return nil
	}
	return s.members()
}

// contain reports whether an address is in a staged set.
func (x *sets) contain(id api.SetID, a netip.Addr) bool {
	s := x.all[id]
	return s != nil && s.contains(a)
}

// contained reports whether an address was in a set at the last Commit. Goroutines that do not
// change the Cache must hold its lock.
func (x *sets) contained(id api.SetID, a netip.Addr) bool {
	s := x.all[id]
	return s != nil && s.contained(a)
}

// commit acknowledges all members. The caller holds the lock.
func (x *sets) commit() {
	for id := range x.changed {
		s := x.all[id]
		s.before, s.isNew = nil, false
		if s.len() == 0 {
			delete(x.all, id)
		}
	}
	clear(x.changed)
}

// derive updates the sets of pods of opposite lists, for an address of a pod that has, or had, one
// of these lists. If the pods of an address have several lists, the address is in only one of the
// sets: the lists agree about it, and each part of the global table applies to other addresses than
// every other part.
func (x *sets) derive(l *list, a *address) {
	lists := []*list{l}
	var first *list // the list that comes first in the global table
	for _, o := range a.owners {
		if o.opp == nil {
			continue
		}
		lists = append(lists, o.opp)
		if first == nil || slices.Compare(o.opp.digest[:], first.digest[:]) < 0 {
			first = o.opp
		}
	}
	for _, l := range lists {
		s := x.of(l.podsSet)
		s.derived = true
		x.put(l.podsSet, s, prefixes.Host(a.addr), l == first)
	}
}
