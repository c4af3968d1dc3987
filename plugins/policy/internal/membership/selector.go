package membership

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Selector is an active selector. A plain one is one address set. One with a named port is one set
// per number that the name has in the matching groups. It is active as long as it has users.
type Selector struct {
	Peer
	scope   *scope
	sets    []*Set               // sorted by number
	users   map[api.PolicyID]int // number of uses of each user
	claims  []claim              // the same uses, by tally
	members int                  // addresses of the pods of linked groups; of presence selectors the groups
	moved   bool                 // is in Sets.moved
}

// claim is how many uses of a selector a tally has.
type claim struct {
	tally *Tally
	uses  int
}

// Tally sums up the selectors that some policies use, each once. Everything is of the current state.
type Tally struct {
	// Silent is whether these uses do not make renderers get the sets: they only count.
	Silent    bool
	Selectors int
	// Members counts the addresses of their pods, for each set again, blocks not considered.
	Members int
	// Examined is what it takes to find their groups among those of their scopes, see Peer.scans.
	Examined int
	// Selected counts those whose namespaces are given by a selector: all namespaces are examined.
	Selected int
}

func (t *Tally) count(s *Selector, d int) {
	t.Selectors += d
	t.Members += d * s.members
	if s.key.scope.selected {
		t.Selected += d
	}
	if n := s.scans(); n > 0 {
		s.scope.count(t, d*n)
	}
}

// grow records that the linked groups have n more addresses.
func (s *Selector) grow(n int) {
	s.members += n
	for _, c := range s.claims {
		c.tally.Members += n
	}
}

// isNamed reports whether a policy names the sets, so that they are published.
func (s *Selector) isNamed() bool {
	return slices.ContainsFunc(s.claims, func(c claim) bool { return !c.tally.Silent })
}

// IsCountedIn reports whether a tally has a use of the selector.
func (s *Selector) IsCountedIn(t *Tally) bool {
	return slices.ContainsFunc(s.claims, func(c claim) bool { return c.tally == t })
}

// Set is one address set: the addresses of the pods of the linked groups, restricted to the block
// of its selector. Users of the selector read the exported fields; they never change.
type Set struct {
	ID      api.SetID
	Number  uint16 // of the named port; 0 for a plain selector
	Refused bool   // another set has its ID: it has no members

	sel       *Selector
	groups    int  // number of linked groups
	size      int  // number of published members; only of sets within a block
	touched   bool // is in journal.touched
	published bool // the last updates told its members
	missed    bool // the journal lacks changes, because it was not published

	nodes   *countedSet // of a node selector, which has no journal
	journal deltas      // of pods of linked groups, since the last update
}

// Sets returns the sets of the selector, sorted by number. The caller must not modify it.
func (s *Selector) Sets() []*Set { return s.sets }

// Users returns the users of the selector, in no particular order.
func (s *Selector) Users() iter.Seq[api.PolicyID] { return maps.Keys(s.users) }

// Refused reports whether the ID of one of the selector's sets is used by another set.
func (s *Selector) Refused() bool {
	return !s.key.presence && slices.ContainsFunc(s.sets, func(set *Set) bool { return set.Refused })
}

// HasNumber reports whether the named port of the selector has a number. Pods without an address
// count, but not for a block, because their address may not be within it.
func (s *Selector) HasNumber() bool {
	if s.block == nil {
		return len(s.sets) > 0
	}
	return slices.ContainsFunc(s.sets, func(set *Set) bool { return set.size > 0 })
}

// HasPods reports whether a presence selector has any group.
func (s *Selector) HasPods() bool { return s.sets[0].groups > 0 }

func (s *Selector) find(number uint16) (int, bool) {
	return slices.BinarySearchFunc(s.sets, number, func(a *Set, n uint16) int { return cmp.Compare(a.Number, n) })
}

// admits reports whether the set contains an address of a pod of its groups.
func (s *Set) admits(a netip.Addr) bool { return s.sel.block == nil || s.sel.block.Contains(a) }

// changeNode counts the addresses of a node, unless the set was refused.
func (s *Set) changeNode(old, now []netip.Addr) {
	if !s.Refused {
		s.nodes.changeAll(old, now)
	}
}

// resize updates the number of members, for sets of named ports within blocks. It reports whether
// the set became empty or ceased to be. Other sets of named ports have members as long as they have
// groups.
func (s *Set) resize(d int) (flipped bool) {
	if d == 0 || s.sel.block == nil || !s.sel.PerPort() {
		return false
	}
	s.size += d
	return s.size == 0 || s.size == d
}
