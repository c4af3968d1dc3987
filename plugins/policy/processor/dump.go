package processor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// SetInfo describes an active address set to people.
type SetInfo struct {
	ID       api.SetID      `json:"id"`
	Selector string         `json:"selector"`        // in the style of kubectl
	Members  []netip.Prefix `json:"members"`         // addresses, sorted
	Users    []api.PolicyID `json:"users,omitempty"` // policies, sorted
}

// PodInfo says which policies apply to a local pod.
type PodInfo struct {
	ID       api.PodID      `json:"id"`
	IPs      []netip.Addr   `json:"ips"`
	Policies []api.PolicyID `json:"policies,omitempty"` // sorted
}

// Sets returns the active sets, sorted by ID. The set of node addresses is always
// there.
func (p *Processor) Sets() []SetInfo {
	out := []SetInfo{{ID: api.NodeSet, Selector: "addresses of the node", Members: prefixes(p.nodeAddrs.members())}}
	members := p.allMembers()
	for _, id := range slices.Sorted(maps.Keys(p.sets)) {
		set := p.sets[id]
		text := set.sel.String()
		if set.sel.isFamily() {
			text += fmt.Sprintf(", port %s is %d/%s", set.sel.port.Name, set.number, set.sel.port.Protocol)
		}
		out = append(out, SetInfo{
			ID: id, Selector: text, Members: members[id],
			Users: slices.SortedFunc(maps.Keys(set.sel.users), api.PolicyID.Compare),
		})
	}
	return out
}

// Members returns the members of an active set, sorted; none for other sets.
func (p *Processor) Members(id api.SetID) []netip.Addr {
	if id == api.NodeSet {
		return p.nodeAddrs.members()
	}
	set := p.sets[id]
	switch {
	case set == nil:
		return nil
	case set.nodes != nil:
		return set.nodes.members()
	}
	tmp := addrSet{sel: set.sel}
	for g := range p.state.MatchGroups(set.sel.query()) {
		if slices.Contains(p.groups[g].sets, set) {
			tmp.collect(p.addresses(g))
		}
	}
	members, _ := tmp.members.take(nil)
	out := make([]netip.Addr, len(members))
	for i, m := range members {
		out[i] = m.Addr()
	}
	return out
}

// allMembers returns the members of all sets but that of the node: in one pass over groups, which are
// in many sets.
func (p *Processor) allMembers() map[api.SetID][]netip.Prefix {
	found := map[*addrSet]*addrSet{}
	for g := range p.groups {
		sets := p.groups[g].sets
		if len(sets) == 0 {
			continue
		}
		addrs := p.addresses(api.GroupID(g))
		for _, set := range sets {
			tmp := found[set]
			if tmp == nil {
				tmp = &addrSet{sel: set.sel}
				found[set] = tmp
			}
			tmp.collect(addrs)
		}
	}
	out := make(map[api.SetID][]netip.Prefix, len(p.sets))
	for id, set := range p.sets {
		switch {
		case set.nodes != nil:
			out[id] = prefixes(set.nodes.members())
		case found[set] != nil:
			out[id], _ = found[set].members.take(nil)
		}
	}
	return out
}

// Pods returns the local pods that have an address, sorted by ID.
func (p *Processor) Pods() []PodInfo {
	var out []PodInfo
	for _, pod := range p.sortedPods() {
		info := PodInfo{ID: pod.id, IPs: pod.ips}
		for _, policy := range pod.group.list.contivPolicies() {
			info.Policies = append(info.Policies, policy.ID)
		}
		out = append(out, info)
	}
	return out
}

// Policies returns how the policies apply to a local pod, sorted by ID.
func (p *Processor) Policies(id api.PodID) []*api.ContivPolicy {
	if pod := p.pods[id]; pod != nil && pod.group != nil {
		return pod.group.list.contivPolicies()
	}
	return nil
}

func (p *Processor) sortedPods() []*localPod {
	pods := slices.Collect(maps.Values(p.pods))
	pods = slices.DeleteFunc(pods, func(pod *localPod) bool { return pod.group == nil })
	slices.SortFunc(pods, func(a, b *localPod) int { return a.id.Compare(b.id) })
	return pods
}
