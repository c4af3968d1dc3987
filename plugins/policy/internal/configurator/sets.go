package configurator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// Sets answers about address sets, as they are once everything was told to a
// transaction and until the next one is begun.
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

// addressSet is a set of addresses that stands for many prefixes in rules, or for
// what two sets have in common.
type addressSet struct {
	id      api.SetID
	members []netip.Prefix // the fewest, in order; nil with common
	common  *common        // nil for a set that does not change
}

// parts returns the sets of the processor that the set is made of.
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

// maxInline is the number of prefixes up to which rules name them one by one.
// What has more becomes an address set, so that the number of rules does not grow
// with the number of prefixes times that of ports.
const maxInline = 4

// meaning says for people what the set was made of.
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

// common is the addresses that sets of the processor have in common, with each other
// or with some prefixes. It changes with its parts.
type common struct {
	sets     []api.SetID    // in order
	within   api.Net        // of the prefixes; any without them
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

// containsAddr looks an address up in prefixes that are in order and do not overlap.
func containsAddr(prefixes []netip.Prefix, a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(prefixes, a, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return found || i > 0 && prefixes[i-1].Contains(a)
}
