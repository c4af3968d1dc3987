package configurator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// Sets answers queries about address sets. Its answers are valid from the time that a transaction
// has received all changes until the next one begins.
type Sets interface {
	// Members returns the members of a set; an unknown one has none.
	Members(id api.SetID) []netip.Addr
	// Contains reports whether an address is a member of a set.
	Contains(id api.SetID, a netip.Addr) bool
}

// noSets has no members.
type noSets struct{}

func (noSets) Members(api.SetID) []netip.Addr { return nil }

func (noSets) Contains(api.SetID, netip.Addr) bool { return false }

// addressSet is a set of addresses that replaces many prefixes in rules, or that is the
// intersection of two sets.
type addressSet struct {
	id      api.SetID
	members []netip.Prefix // the fewest, sorted; nil with common
	common  *common        // nil for a set that does not change
}

// parts returns the sets of the processor from which the set is built.
func (s addressSet) parts() []api.SetID {
	if s.common == nil {
		return nil
	}
	return s.common.sets
}

// equal reports whether two sets with one ID are the same.
func (s addressSet) equal(o addressSet) bool {
	return s.common.equal(o.common) && slices.Equal(s.members, o.members)
}

// maxInline is the number of prefixes up to which rules list them individually. More become an
// address set, so that the number of rules is not the number of prefixes times that of ports.
const maxInline = 4

// meaning describes for users what the set was built from.
func (s addressSet) meaning() string {
	if s.common == nil {
		return "blocks"
	}
	names := make([]string, len(s.common.sets))
	for i, id := range s.common.sets {
		names[i] = id.String()
	}
	in := strings.Join(names, " and ")
	if len(names) == 2 {
		in = "both " + in
	}
	switch prefixes := s.common.prefixes; {
	case len(prefixes) == 0:
		return "in " + in
	case len(prefixes) > maxInline:
		return fmt.Sprintf("in %s, within %d blocks", in, len(prefixes))
	default:
		return fmt.Sprintf("in %s, within %s", in, prefixes)
	}
}

// common is the intersection of sets of the processor with each other or with prefixes. It changes
// with its parts.
type common struct {
	sets     []api.SetID    // in order
	within   api.Net        // of the prefixes; any if there are none
	prefixes []netip.Prefix // the fewest, in order
}

func (c *common) equal(o *common) bool {
	if c == nil || o == nil {
		return c == o
	}
	return slices.Equal(c.sets, o.sets) && slices.Equal(c.prefixes, o.prefixes)
}

// contains reports whether an address is in all parts.
func (c *common) contains(sets Sets, a netip.Addr) bool {
	return (c.within.IsAny() || containsAddr(c.prefixes, a)) &&
		!slices.ContainsFunc(c.sets, func(s api.SetID) bool { return !sets.Contains(s, a) })
}

// containsAddr looks up an address in prefixes that are sorted and do not overlap.
func containsAddr(prefixes []netip.Prefix, a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(prefixes, a, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return found || i > 0 && prefixes[i-1].Contains(a)
}
