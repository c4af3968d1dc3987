package processor

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Sets can be asked between two updates of the cache, in or after Flush: the
// configurator does so where sets have to be compared.

// AppendMembers appends the members of an active set, sorted; none for other sets.
func (p *Processor) AppendMembers(dst []netip.Addr, id api.SetID) []netip.Addr {
	return append(dst, p.Members(id)...)
}

// Contains says whether an address is a member of an active set.
func (p *Processor) Contains(id api.SetID, a netip.Addr) bool {
	if id == api.NodeSet {
		return p.nodeAddrs.has(a)
	}
	set := p.sets[id]
	switch {
	case set == nil || set.dead:
		return false
	case set.nodes != nil:
		return set.nodes.has(a)
	case !set.admits(a):
		return false
	}
	return slices.ContainsFunc(p.state.Holders(a), func(g api.GroupID) bool { return slices.Contains(p.groups[g].sets, set) })
}
