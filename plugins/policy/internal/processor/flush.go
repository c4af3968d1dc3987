package processor

import (
	"cmp"
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
	// Configure sets the policies that apply to a local pod: sorted by ID, none if the pod is
	// unrestricted. Equal lists are the same slice, so the address of the first element identifies
	// the list as long as the sink keeps it. shared lists the other pods that have one of its addresses
	// and different restrictions.
	Configure(pod api.PodID, ips []netip.Addr, policies []*api.ContivPolicy, shared []api.Sharing)
	// Remove reports that a pod is no longer local, or has no address any more.
	Remove(pod api.PodID)
}

// Flush sends the changes since the last Flush to the sink: the net change of every set, then the
// new state of every pod, both sorted. Sets that no policy names any more lose all members. It
// returns the new problems, sorted. It must not be called during an Update of the cache.
func (p *Processor) Flush(sink Sink) []api.Problem {
	p.sets.SettleNumbers(p.resolver.renumber)
	p.sharing.settle()
	refreshed := p.resolver.refresh(p.sharing.sharers)
	reports := p.settlePods()
	p.sets.DropIdle()
	p.publishSets(sink)
	for _, r := range reports {
		r.send(sink)
	}
	return sorted(p.problems.settle(refreshed), p.sharing.found)
}

// publishSets sends the changes of sets to the sink, sorted by ID.
func (p *Processor) publishSets(sink Sink) {
	updates := append(p.sets.TakeUpdates(), p.node.TakeUpdate())
	slices.SortFunc(updates, func(a, b membership.Update) int { return cmp.Compare(a.ID, b.ID) })
	for _, u := range updates {
		if len(u.Added)+len(u.Removed) > 0 {
			sink.UpdateSet(u.ID, u.Added, u.Removed)
		}
	}
}

// report is what the sink must learn about a pod.
type report struct {
	pod                 *localPod
	removed, configured bool
}

// settlePods determines what the sink must learn about the marked pods.
func (p *Processor) settlePods() (reports []report) {
	dirty := p.local.dirtyPods
	slices.SortFunc(dirty, comparePods)
	for _, pod := range dirty {
		if r := p.settlePod(pod); r.removed || r.configured {
			reports = append(reports, r)
		}
	}
	clear(dirty)
	p.local.dirtyPods = dirty[:0]
	return reports
}

func (p *Processor) settlePod(pod *localPod) (r report) {
	r.pod = pod
	pod.dirty = false
	switch {
	case pod.elsewhere:
	case pod.group == nil:
		delete(p.local.pods, pod.id)
		r.removed = pod.published.known
		pod.published = publishedPod{}
	default:
		now := publishedPod{known: true, ips: pod.ips, policies: pod.group.list.contivPolicies(), shared: p.sharing.sharings(pod)}
		r.configured = !pod.published.same(now)
		pod.published = now
	}
	return r
}

// same reports whether the sink has to learn nothing.
func (p *publishedPod) same(now publishedPod) bool {
	return p.known && sameList(p.policies, now.policies) && slices.Equal(p.ips, now.ips) && slices.EqualFunc(p.shared, now.shared, api.Sharing.Equal)
}

func (r report) send(sink Sink) {
	if r.removed {
		sink.Remove(r.pod.id)
	}
	if r.configured {
		now := &r.pod.published
		sink.Configure(r.pod.id, now.ips, now.policies, now.shared)
	}
}
