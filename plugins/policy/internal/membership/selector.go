package membership

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Selector is an active selector. A plain one is one address set. One with a named
// port is one set per number that the name stands for in the groups that match. It is
// active as long as it has users.
type Selector struct {
	Peer
	sets  []*Set               // sorted by number
	users map[api.PolicyID]int // how often each uses it
	moved bool                 // is in Sets.moved
}

// Set is one address set: the addresses of the pods of the groups that are linked to
// it, as far as they are within the block of its selector. Who uses the selector reads
// the exported fields; they never change.
type Set struct {
	ID      api.SetID
	Number  uint16 // of the named port; 0: a plain selector
	Refused bool   // another set has its ID: it matches nothing

	sel     *Selector
	groups  int  // that are linked
	size    int  // members that were published; of sets within a block only
	touched bool // is in journal.touched
	fresh   bool // was not published yet
	dead    bool // its last update is to come

	nodes *countedSet // of a selector of nodes, which needs nothing of what follows

	journal        []delta        // since the last update
	members        addrList       // of a fresh set all, of a dead one those it had in the end
	added, removed []netip.Prefix // what the journal comes to, sorted
}

// delta says that d more pods of a set have an address.
type delta struct {
	addr netip.Addr
	d    int
}

// Sets returns the sets of the selector, sorted by number. It must not be changed.
func (s *Selector) Sets() []*Set { return s.sets }

// Retain counts one more use of the selector.
func (s *Selector) Retain(user api.PolicyID) { s.users[user]++ }

// Users returns who uses the selector, in any order.
func (s *Selector) Users() iter.Seq[api.PolicyID] { return maps.Keys(s.users) }

// Refused reports whether a set of the selector has no ID of its own.
func (s *Selector) Refused() bool {
	return !s.key.presence && slices.ContainsFunc(s.sets, func(set *Set) bool { return set.Refused })
}

// HasNumber reports whether the named port of the selector stands for a number. A pod
// that has no address yet counts, but not for a block: it may come to be within it or
// not.
func (s *Selector) HasNumber() bool {
	if s.block == nil {
		return len(s.sets) > 0
	}
	return slices.ContainsFunc(s.sets, func(set *Set) bool { return set.size > 0 })
}

// HasPods reports whether a selector for presence has any group.
func (s *Selector) HasPods() bool { return s.sets[0].groups > 0 }

func (s *Selector) find(number uint16) (int, bool) {
	return slices.BinarySearchFunc(s.sets, number, func(a *Set, n uint16) int { return cmp.Compare(a.Number, n) })
}

// admits reports whether an address of a group's pod is one of the set.
func (s *Set) admits(a netip.Addr) bool { return s.sel.block == nil || s.sel.block.Contains(a) }

// collect notes addresses as members.
func (s *Set) collect(addrs []netip.Addr) {
	if s.Refused {
		return
	}
	for _, a := range addrs {
		if s.admits(a) {
			s.members.add(a)
		}
	}
}

// changeNode counts the addresses of a node, unless the set has no ID.
func (s *Set) changeNode(old, now []netip.Addr) {
	if !s.Refused {
		s.nodes.changeAll(old, now)
	}
}

// resize keeps the number of members of the sets of named ports within blocks. It
// reports whether there are some now and were none, or the reverse. Other sets of named
// ports have members as long as they have groups.
func (s *Set) resize(d int) (flipped bool) {
	if d == 0 || s.sel.block == nil || !s.sel.PerPort() {
		return false
	}
	s.size += d
	return s.size == 0 || s.size == d
}
