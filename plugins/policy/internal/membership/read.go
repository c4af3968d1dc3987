package membership

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// Info describes an active address set for users.
type Info struct {
	ID       api.SetID
	Selector string         // in the style of kubectl
	Members  []netip.Prefix // addresses, sorted
	Users    []api.PolicyID // sorted
}

// Infos describes the sets that policies name, sorted by ID.
func (x *Sets) Infos() []Info {
	var out []Info
	members := x.All()
	for _, id := range slices.Sorted(maps.Keys(x.byID)) {
		set := x.byID[id]
		if !set.sel.isNamed() {
			continue
		}
		out = append(out, Info{
			ID: id, Selector: set.meaning(), Members: members[id],
			Users: slices.SortedFunc(maps.Keys(set.sel.users), api.PolicyID.Compare),
		})
	}
	return out
}

// Selectors returns the meanings of the sets that policies name.
func (x *Sets) Selectors() map[api.SetID]string {
	out := make(map[api.SetID]string, len(x.byID))
	for id, set := range x.byID {
		if set.sel.isNamed() {
			out[id] = set.meaning()
		}
	}
	return out
}

// meaning returns the selector in words.
func (s *Set) meaning() string {
	if !s.sel.PerPort() {
		return s.sel.String()
	}
	return fmt.Sprintf("%s, port %s is %d/%s", s.sel.String(), s.sel.key.port.Name, s.Number, s.sel.key.port.Protocol)
}

// Contains reports whether an address is a member of an active set.
func (x *Sets) Contains(id api.SetID, a netip.Addr) bool {
	set := x.byID[id]
	switch {
	case set == nil:
		return false
	case set.nodes != nil:
		return set.nodes.wasPublished(a)
	case !set.admits(a):
		return false
	}
	return slices.ContainsFunc(x.state.Holders(a), func(g intent.GroupID) bool { return x.links.contains(set, g) })
}

// Members returns the members of an active set, sorted; none for other sets.
func (x *Sets) Members(id api.SetID) []netip.Addr {
	set := x.byID[id]
	switch {
	case set == nil:
		return nil
	case set.nodes != nil:
		return set.nodes.members()
	}
	return x.membersOf(set, deltas{})
}

// membersOf returns the members of a set, sorted. It counts the pods that its groups have now, and
// found, which has those that joined or left since the last update.
func (x *Sets) membersOf(set *Set, found deltas) (out []netip.Addr) {
	var addrs []netip.Addr
	for g := range x.state.MatchGroups(set.sel.Query()) {
		if x.links.contains(set, g) {
			addrs = x.state.AppendAddresses(addrs[:0], g)
			set.collect(&found, addrs)
		}
	}
	found.drain(nil, func(a netip.Addr, n int) {
		if n > 0 {
			out = append(out, a)
		}
	})
	return out
}

// collect adds the addresses of a linked group that are members.
func (s *Set) collect(found *deltas, addrs []netip.Addr) {
	for _, a := range addrs {
		if s.admits(a) && !s.Refused {
			found.add(a, +1)
		}
	}
}

// All returns the members of all published sets. It makes one pass over groups, which are in many sets.
func (x *Sets) All() map[api.SetID][]netip.Prefix {
	found := map[*Set]*deltas{}
	var addrs []netip.Addr
	for g := range x.links.groups {
		sets := x.links.groups[g].sets
		if len(sets) == 0 {
			continue
		}
		addrs = x.state.AppendAddresses(addrs[:0], intent.GroupID(g))
		for _, set := range sets {
			if !set.published {
				continue
			}
			if found[set] == nil {
				found[set] = &deltas{}
			}
			set.collect(found[set], addrs)
		}
	}
	out := make(map[api.SetID][]netip.Prefix, len(x.byID))
	for id, set := range x.byID {
		switch {
		case !set.published:
		case set.nodes != nil:
			out[id] = prefixes(set.nodes.members())
		case found[set] != nil:
			var members []netip.Prefix
			found[set].drain(nil, func(a netip.Addr, _ int) { members = append(members, netip.PrefixFrom(a, a.BitLen())) })
			out[id] = members
		}
	}
	return out
}
