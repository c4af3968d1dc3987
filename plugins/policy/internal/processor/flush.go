package processor

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// Sink receives changes. Slices that it receives are immutable and may be kept.
type Sink interface {
	// UpdateSet changes the members of an address set; both lists are sorted, the
	// prefixes are single addresses. An added member was not in the set, a removed
	// one was.
	UpdateSet(id api.SetID, added, removed []netip.Prefix)
	// DropSet reports that no policy refers to a set any more, and its members, sorted.
	DropSet(id api.SetID, members []netip.Prefix)
	// Configure sets the policies that apply to a local pod: sorted by ID, none if the pod is
	// unrestricted. Equal lists are the same slice, so the address of the first element identifies
	// the list as long as a pod has it. shared lists the other pods that have one of its addresses
	// and different restrictions.
	Configure(pod api.PodID, ips []netip.Addr, policies []*api.ContivPolicy, shared []api.Sharing)
	// Remove reports that a pod is no longer local, or has no address any more.
	Remove(pod api.PodID)
}

// Flush sends the changes since the last Flush to the sink: the net change of every set, then the
// new state of every pod, both sorted. It returns the new problems, sorted. It must not be called
// during an Update of the cache.
func (p *Processor) Flush(sink Sink) []api.Problem {
	p.sets.SettleNumbers(p.resolver.renumber)
	p.sharing.settle()
	refreshed := p.resolver.refresh()
	p.publishSets(sink)
	p.publishPods(sink)
	return p.problems.settle(refreshed)
}

// publishSets sends the changes of sets to the sink, sorted by ID.
func (p *Processor) publishSets(sink Sink) {
	updates := append(p.sets.TakeUpdates(), p.node.TakeUpdate())
	slices.SortFunc(updates, func(a, b membership.Update) int { return cmp.Compare(a.ID, b.ID) })
	for _, u := range updates {
		switch {
		case len(u.Added)+len(u.Removed) == 0:
		case u.Dead:
			sink.DropSet(u.ID, u.Removed)
		default:
			sink.UpdateSet(u.ID, u.Added, u.Removed)
		}
	}
}

// publishPods sends the marked pods to the sink.
func (p *Processor) publishPods(sink Sink) {
	dirty := p.local.dirtyPods
	slices.SortFunc(dirty, comparePods)
	for _, pod := range dirty {
		p.publish(pod, sink)
	}
	clear(dirty)
	p.local.dirtyPods = dirty[:0]
}

// publish brings the sink up to date about a pod.
func (p *Processor) publish(pod *localPod, sink Sink) {
	pod.dirty = false
	if pod.elsewhere {
		return
	}
	if pod.group == nil {
		delete(p.local.pods, pod.id)
		if pod.published.known {
			sink.Remove(pod.id)
		}
		return
	}
	shared, was := p.sharing.sharings(pod), &pod.published
	if was.known && was.list == pod.group.list && slices.Equal(was.ips, pod.ips) &&
		slices.EqualFunc(was.shared, shared, api.Sharing.Equal) {
		return
	}
	*was = publishedPod{true, pod.ips, pod.group.list, shared}
	sink.Configure(pod.id, pod.ips, pod.group.list.contivPolicies(), shared)
}

// Replay sends the complete state to an empty sink: every set with members, then every pod. It
// replaces a Flush for sinks that start anew: the changes that Flush would have sent are included
// and will not be sent again.
func (p *Processor) Replay(sink Sink) []api.Problem {
	found := p.Flush(discardSink{})
	if own := p.node.Info().Members; len(own) > 0 {
		sink.UpdateSet(api.NodeSet, own, nil)
	}
	members := p.sets.All()
	for _, id := range slices.Sorted(maps.Keys(members)) {
		if len(members[id]) > 0 {
			sink.UpdateSet(id, members[id], nil)
		}
	}
	for _, pod := range p.local.sorted() {
		sink.Configure(pod.id, pod.ips, pod.group.list.contivPolicies(), pod.published.shared)
	}
	return found
}

// discardSink is a sink that discards everything.
type discardSink struct{}

func (discardSink) UpdateSet(api.SetID, []netip.Prefix, []netip.Prefix)                   {}
func (discardSink) DropSet(api.SetID, []netip.Prefix)                                     {}
func (discardSink) Configure(api.PodID, []netip.Addr, []*api.ContivPolicy, []api.Sharing) {}
func (discardSink) Remove(api.PodID)                                                      {}
