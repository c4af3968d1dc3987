package processor

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Flush tells the sink what became different since the last Flush: for every set
// its net change, for every pod its new state, sorted; sets first. It returns the
// problems that are new, sorted. It must be called when no Update of the cache is
// running.
func (p *Processor) Flush(sink Sink) []api.Problem {
	p.settleFamilies()
	p.settleShared()
	p.refreshGroups()
	p.dropUnused()
	for _, u := range p.takeUpdates() {
		switch {
		case len(u.added)+len(u.removed) == 0:
		case u.dead:
			sink.DropSet(u.id, u.removed)
		default:
			sink.UpdateSet(u.id, u.added, u.removed)
		}
	}
	slices.SortFunc(p.dirtyPods, func(a, b *localPod) int { return a.id.Compare(b.id) })
	for _, pod := range p.dirtyPods {
		p.tell(pod, sink)
	}
	clear(p.dirtyPods)
	p.dirtyPods = p.dirtyPods[:0]
	p.settleContested()
	return p.settleProblems()
}

// takeUpdates returns what became different in the sets, sorted by ID.
func (p *Processor) takeUpdates() []update {
	updates := make([]update, 0, len(p.touched)+1)
	for _, set := range p.touched {
		u := p.takeUpdate(set)
		p.resize(set, len(u.added)-len(u.removed))
		if set.dead {
			p.forget(set)
		}
		if !set.refused {
			updates = append(updates, u)
		}
	}
	clear(p.touched)
	p.touched = p.touched[:0]
	own := update{id: api.NodeSet}
	own.added, own.removed = p.nodeAddrs.take()
	updates = append(updates, own)
	slices.SortFunc(updates, func(a, b update) int { return cmp.Compare(a.id, b.id) })
	return updates
}

// settleContested forgets the addresses that only one pod has now. The others may
// still be counted twice in some set.
func (p *Processor) settleContested() {
	maps.DeleteFunc(p.contested, func(a netip.Addr, _ struct{}) bool { return len(p.state.Holders(a)) < 2 })
}

// Replay tells a sink that knows nothing the whole state: every set that has
// members, then every pod. It is for sinks that start anew, and takes the place of
// a Flush: what Flush would have told is in it and will not be told again.
func (p *Processor) Replay(sink Sink) []api.Problem {
	found := p.Flush(nobody{})
	if own := p.nodeAddrs.members(); len(own) > 0 {
		sink.UpdateSet(api.NodeSet, prefixes(own), nil)
	}
	members := p.allMembers()
	for _, id := range slices.Sorted(maps.Keys(members)) {
		if len(members[id]) > 0 {
			sink.UpdateSet(id, members[id], nil)
		}
	}
	for _, pod := range p.sortedPods() {
		sink.Configure(pod.id, pod.ips, pod.group.list.contivPolicies(), pod.toldShared)
	}
	return found
}

// nobody is a sink that does not care.
type nobody struct{}

func (nobody) UpdateSet(api.SetID, []netip.Prefix, []netip.Prefix)                   {}
func (nobody) DropSet(api.SetID, []netip.Prefix)                                     {}
func (nobody) Configure(api.PodID, []netip.Addr, []*api.ContivPolicy, []api.Sharing) {}
func (nobody) Remove(api.PodID)                                                      {}
