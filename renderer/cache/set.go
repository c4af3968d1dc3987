package cache

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

	"github.com/gaissmai/bart"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// set holds the members of one address set. Members do not overlap. Addresses
// are found in a map; only real prefixes need a longest-prefix table.
type set struct {
	hosts map[netip.Addr]struct{}
	nets  bart.Lite

	// before says, for every prefix that was touched since the last Commit,
	// whether it was a member then.
	before map[netip.Prefix]bool

	// sorted holds all members in order, but for the prefixes in late, which were
	// touched since it was made. It is made when it is first asked for.
	sorted []netip.Prefix
	late   []netip.Prefix

	derived bool // made here, not told by UpdateSet
}

// maxLate is how many members are put into their place one by one before it is
// cheaper to sort all of them.
const maxLate = 64

func newSet() *set { return &set{hosts: make(map[netip.Addr]struct{})} }

func (s *set) len() int { return len(s.hosts) + s.nets.Size() }

func (s *set) has(p netip.Prefix) bool {
	if prefixes.IsHost(p) {
		_, ok := s.hosts[p.Addr()]
		return ok
	}
	return s.nets.Get(p)
}

// put adds or removes a member and reports whether that changed anything.
func (s *set) put(p netip.Prefix, member bool) bool {
	if s.has(p) == member {
		return false
	}
	if s.before == nil {
		s.before = make(map[netip.Prefix]bool)
	}
	if _, ok := s.before[p]; !ok {
		s.before[p] = !member
	} else if s.before[p] == member {
		delete(s.before, p) // as it was
	}
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

// contains reports whether the address is in the staged set.
func (s *set) contains(a netip.Addr) bool {
	if _, ok := s.hosts[a]; ok {
		return true
	}
	return s.nets.Size() > 0 && s.nets.Contains(a)
}

// contained reports whether the address was in the set at the last Commit.
func (s *set) contained(a netip.Addr) bool {
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

// UpdateSet stages a change of the members of a set, as renderer.Txn defines it.
// Prefixes are masked and IPv4 addresses written as IPv6 are unwrapped; what is
// not a prefix is no member.
func (c *Cache) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	s := c.sets.of(id)
	c.resync.sawSet(id, s, added)
	for _, p := range removed {
		c.putMember(id, s, renderer.Unmapped(p), false)
	}
	for _, p := range added {
		c.putMember(id, s, renderer.Unmapped(p), true)
	}
}

// putMember changes one member and remembers which local addresses it touches.
func (c *Cache) putMember(id api.SetID, s *set, p netip.Prefix, member bool) {
	if !p.IsValid() || !c.sets.put(id, s, p, member) {
		return
	}
	c.stale.any = true
	c.addrs.within(p, func(a netip.Addr) { c.stale.touched[membershipChange{id, a}] = struct{}{} })
}

// Members returns the staged members of a set, sorted by ComparePrefixes. The
// caller must not change the slice, and it is valid until the next change.
func (c *Cache) Members(id api.SetID) []netip.Prefix {
	s := c.sets.all[id]
	if s == nil {
		return nil
	}
	return s.members()
}

// InSet reports whether an address is in the staged set.
func (c *Cache) InSet(id api.SetID, a netip.Addr) bool { return c.sets.contain(id, a) }

// sets are the address sets, as staged.
type sets struct {
	mu      *sync.RWMutex // held where they change
	all     map[api.SetID]*set
	changed map[api.SetID]struct{} // since the last Commit
}

// of returns a set, which is made unless it is there.
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

// put adds or removes a member, while nobody reads it, and reports whether that changed anything.
func (x *sets) put(id api.SetID, s *set, p netip.Prefix, member bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !s.put(p, member) {
		return false
	}
	x.changed[id] = struct{}{}
	return true
}

// contain reports whether an address is in a staged set.
func (x *sets) contain(id api.SetID, a netip.Addr) bool {
	s := x.all[id]
	return s != nil && s.contains(a)
}

// contained reports whether an address was in a set at the last Commit. Whoever does not change the
// Cache holds its lock.
func (x *sets) contained(id api.SetID, a netip.Addr) bool {
	s := x.all[id]
	return s != nil && s.contained(a)
}

// commit acknowledges all members. The lock is held.
func (x *sets) commit() {
	for id := range x.changed {
		s := x.all[id]
		s.before = nil
		if s.len() == 0 {
			delete(x.all, id)
		}
	}
	clear(x.changed)
}

// derive keeps the sets of the pods that have opposite lists, for an address of a pod
// that has, or had, one of them. An address of pods with several lists is in one of the
// sets only: the lists agree about it, and no part of the global table is about the pods
// of another.
func (x *sets) derive(l *list, a *address) {
	lists := []*list{l}
	var first *list // the one that the global table asks first
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
