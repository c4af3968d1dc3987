package cache

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// UpdateSet stages a change of the members of a set, as defined by *renderer.Changes. It masks prefixes,
// unmaps IPv4-mapped IPv6 addresses and ignores invalid prefixes.
func (c *Cache) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	s := c.sets.setFor(id)
	c.resync.sawSet(id, s, added)
	added, removed = unmapped(added), unmapped(removed)
	asked := c.lists.isAsked(id)
	few := len(added)+len(removed) <= fewMembers
	switch {
	case !asked && s.isNew && s.len() == 0:
		if len(added) > 0 {
			c.sets.fill(id, s, added)
			c.stale.any = true
			c.lists.resize(id)
		}
		return
	case asked && !few:
		for l := range c.lists.naming[id] {
			c.stale.judged[l] = struct{}{}
		}
	}
	put := func(members []netip.Prefix, member bool) {
		for _, p := range members {
			if !c.sets.setMember(id, s, p, member) {
				continue
			}
			if c.stale.any = true; asked && few {
				c.addrs.within(p, func(a netip.Addr) { c.stale.touched[membershipChange{id, a}] = struct{}{} })
			}
		}
	}
	put(removed, false)
	put(added, true)
	c.lists.resize(id)
}

// fewMembers is how many members of a set may change until all verdicts of the lists that name it
// are looked at again, instead of those about the addresses of each member.
const fewMembers = 16

// unmapped returns the valid prefixes, masked and unmapped.
func unmapped(in []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(in))
	for _, p := range in {
		if p = renderer.Unmapped(p); p.IsValid() {
			out = append(out, p)
		}
	}
	return out
}

// Aggregated returns the fewest prefixes that contain exactly the staged members of a set. The
// caller must not change them.
func (c *Cache) Aggregated(id api.SetID) Families { return c.sets.aggregated(id) }

// InSet reports whether an address is in the staged set.
func (c *Cache) InSet(id api.SetID, a netip.Addr) bool { return c.sets.contain(id, a) }
