package cache

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"

	"github.com/gaissmai/bart"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/internal/prefixes"
)

// set holds the members of one address set. Members do not overlap. Single addresses are sorted
// lists, since a set can have very many; only longer prefixes need a longest-prefix match.
type set struct {
	hosts4 []uint32 // IPv4 addresses, as big-endian numbers
	hosts6 []netip.Addr
	nets   bart.Lite

	// before holds every prefix that changed since the last acknowledgement, and whether it was a member
	// then. It is nil for a set that is new since then and had no members.
	before map[netip.Prefix]bool
	isNew  bool

	families *Families      // memo of the fewest prefixes, without later changes; nil when unknown
	later    []netip.Prefix // addresses that have come or gone since families were made; at most maxLater
	derived  bool           // computed by the cache, not set by UpdateSet
}

func newSet() *set { return &set{isNew: true} }

func (s *set) len() int { return len(s.hosts4) + len(s.hosts6) + s.nets.Size() }

// number returns an IPv4 address as a number.
func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func address4(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

func (s *set) hasHost(a netip.Addr) bool {
	found := false
	if a.Is4() {
		_, found = slices.BinarySearch(s.hosts4, number(a))
	} else {
		_, found = slices.BinarySearchFunc(s.hosts6, a, netip.Addr.Compare)
	}
	return found
}

func (s *set) isMember(p netip.Prefix) bool {
	if prefixes.IsHost(p) {
		return s.hasHost(p.Addr())
	}
	return s.nets.Get(p)
}

// setMember adds or removes a member and reports whether the set changed.
func (s *set) setMember(p netip.Prefix, member bool) bool {
	if s.isMember(p) == member {
		return false
	}
	s.recordBefore(p, member)
	switch {
	case s.families == nil:
	case len(s.later) == maxLater || !prefixes.IsHost(p):
		s.families, s.later = nil, nil
	default:
		s.later = append(s.later, p)
	}
	switch a := p.Addr(); {
	case !prefixes.IsHost(p) && member:
		s.nets.Insert(p)
	case !prefixes.IsHost(p):
		s.nets.Delete(p)
	case a.Is4():
		i, _ := slices.BinarySearch(s.hosts4, number(a))
		s.hosts4 = putAt(s.hosts4, i, number(a), member)
	default:
		i, _ := slices.BinarySearchFunc(s.hosts6, a, netip.Addr.Compare)
		s.hosts6 = putAt(s.hosts6, i, a, member)
	}
	return true
}

func putAt[T any](list []T, i int, x T, member bool) []T {
	if member {
		return slices.Insert(list, i, x)
	}
	return slices.Delete(list, i, i+1)
}

// fill adds the first members of a new set at once.
func (s *set) fill(members []netip.Prefix) {
	for _, p := range members {
		switch a := p.Addr(); {
		case !prefixes.IsHost(p):
			s.nets.Insert(p)
		case a.Is4():
			s.hosts4 = append(s.hosts4, number(a))
		default:
			s.hosts6 = append(s.hosts6, a)
		}
	}
	if !slices.IsSorted(s.hosts4) {
		slices.Sort(s.hosts4)
	}
	slices.SortFunc(s.hosts6, netip.Addr.Compare)
	s.hosts4, s.hosts6 = slices.Compact(s.hosts4), slices.Compact(s.hosts6)
	s.families, s.later = nil, nil
}

// recordBefore records what a prefix was at the last acknowledgement.
func (s *set) recordBefore(p netip.Prefix, member bool) {
	if s.isNew {
		return
	}
	if s.before == nil {
		s.before = make(map[netip.Prefix]bool)
	}
	if _, ok := s.before[p]; !ok {
		s.before[p] = !member
	} else if s.before[p] == member {
		delete(s.before, p) // unchanged since then
	}
}

// hasChanged reports whether the members differ from those at the last acknowledgement.
func (s *set) hasChanged() bool { return len(s.before) > 0 || s.isNew && s.len() > 0 }

// contains reports whether the address is in the staged set.
func (s *set) contains(a netip.Addr) bool {
	return s.hasHost(a) || s.nets.Size() > 0 && s.nets.Contains(a)
}

// contained reports whether the address was in the set at the last acknowledgement.
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
	if s.hasHost(a) {
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

// members returns all members in order.
func (s *set) members() []netip.Prefix {
	out := make([]netip.Prefix, 0, s.len())
	for _, n := range s.hosts4 {
		out = append(out, prefixes.Host(address4(n)))
	}
	for _, a := range s.hosts6 {
		out = append(out, prefixes.Host(a))
	}
	if s.nets.Size() > 0 {
		for p := range s.nets.All() {
			out = append(out, p)
		}
		slices.SortFunc(out, prefixes.Compare)
	}
	return out
}

// maxLater is how many addresses may change until the fewest prefixes are made anew.
const maxLater = 32

// aggregated returns the fewest prefixes that contain exactly the members. What it has returned
// before does not change.
func (s *set) aggregated() Families {
	switch {
	case s.families == nil || len(s.later) > 0 && s.nets.Size() > 0:
		f := byFamily(slices.Clip(slices.Clone(prefixes.Aggregate(s.members()))))
		s.families = &f
	case len(s.later) > 0:
		s.families = s.families.with(s.later, s.hasHost)
	}
	s.later = s.later[:0]
	return *s.families
}

// with returns the fewest prefixes after some addresses have come or gone. is reports whether an
// address is a member now.
func (f Families) with(changed []netip.Prefix, is func(netip.Addr) bool) *Families {
	var cloned [len(f)]bool
	for _, p := range changed {
		family, a := 0, p.Addr()
		if a.Is6() {
			family = 1
		}
		if in := is(a); in != f.contains(family, a) {
			if !cloned[family] {
				f[family], cloned[family] = slices.Clone(f[family]), true
			}
			f[family] = prefixes.Put(f[family], p, in)
		}
	}
	return &f
}

// contains reports whether a list of the fewest prefixes contains an address.
func (f *Families) contains(family int, a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(f[family], prefixes.Host(a), prefixes.Compare)
	return found || i > 0 && f[family][i-1].Contains(a)
}

// sets holds the staged address sets.
type sets struct {
	mu      *sync.RWMutex // held while sets change
	all     map[api.SetID]*set
	changed map[api.SetID]struct{} // since the last acknowledgement
}

// setFor returns a set and creates it if it is missing.
func (x *sets) setFor(id api.SetID) *set {
	s := x.all[id]
	if s == nil {
		s = newSet()
		x.mu.Lock()
		x.all[id] = s
		x.mu.Unlock()
	}
	return s
}

// setMember adds or removes a member under the lock, and reports whether the set changed.
func (x *sets) setMember(id api.SetID, s *set, p netip.Prefix, member bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !s.setMember(p, member) {
		return false
	}
	x.changed[id] = struct{}{}
	return true
}

// fill gives a set its first members under the lock.
func (x *sets) fill(id api.SetID, s *set, members []netip.Prefix) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s.fill(members)
	x.changed[id] = struct{}{}
}

// membersOf returns the members of a set in order.
func (x *sets) membersOf(id api.SetID) []netip.Prefix {
	if s := x.all[id]; s != nil {
		return s.members()
	}
	return nil
}

// aggregated returns the fewest prefixes that contain exactly the members of a set. It is for the
// goroutine that changes the Cache.
func (x *sets) aggregated(id api.SetID) (out Families) {
	if s := x.all[id]; s != nil {
		out = s.aggregated()
	}
	return out
}

// contain reports whether an address is in a staged set.
func (x *sets) contain(id api.SetID, a netip.Addr) bool {
	s := x.all[id]
	return s != nil && s.contains(a)
}

// contained reports whether an address was in a set at the last acknowledgement. Goroutines that do not
// change the Cache must hold its lock.
func (x *sets) contained(id api.SetID, a netip.Addr) bool {
	s := x.all[id]
	return s != nil && s.contained(a)
}

// acknowledge acknowledges all members. The caller holds the lock.
func (x *sets) acknowledge() {
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
		s := x.setFor(l.podsSet)
		s.derived = true
		if x.setMember(l.podsSet, s, prefixes.Host(a.addr), l == first) {
			l.sized = false
		}
	}
}
