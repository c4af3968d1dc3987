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
	// DropSet reports that no policy refers to a set any more, and members that it loses, sorted.
	// The others follow, unless a policy refers to it again.
	DropSet(id api.SetID, members []netip.Prefix)
	// Configure sets the policies that apply to a local pod: sorted by ID, none if the pod is
	// unrestricted. Equal lists are the same slice, so the address of the first element identifies
	// the list as long as a pod has it. shared lists the other pods that have one of its addresses
	// and different restrictions.
	Configure(pod api.PodID, ips []netip.Addr, policies []*api.ContivPolicy, shared []api.Sharing)
	// Await reports that the policies of a pod are not known yet, or not the newest ones. Configure
	// or Remove follows. Until then the sink keeps what it has for the pod, if the addresses are
	// the same, and otherwise blocks the pod. Sets that it has for the pod stay current.
	Await(pod api.PodID, ips []netip.Addr)
	// Remove reports that a pod is no longer local, or has no address any more.
	Remove(pod api.PodID)
}

// Flush sends the changes since the last Flush to the sink: the net change of every set, then the
// new state of every pod, both sorted. It returns the new problems, sorted. It must not be called
// during an Update of the cache.
//
// It does about as much work on new and unused selectors as Options.Turn permits. Pods whose
// policies have other selectors wait for the next Flush, see Unfinished.
func (p *Processor) Flush(sink Sink) []api.Problem { return p.flush(sink, p.turn) }

// FlushAll is Flush without a bound: no pod waits.
func (p *Processor) FlushAll(sink Sink) []api.Problem { return p.flush(sink, noBound) }

// Unfinished reports whether the next Flush has work even if nothing changes.
func (p *Processor) Unfinished() bool { return len(p.resolver.waiting) > 0 || p.unfinished }

func (p *Processor) flush(sink Sink, turn int) []api.Problem {
	p.sets.SettleNumbers(p.resolver.renumber)
	p.sharing.settle()
	refreshed, left := p.resolver.refresh(turn)
	reports := p.settlePods()
	unused := max(1, left/2) // dataplanes take longer to remove members than to add them
	p.resolver.dropUnused(unused)
	p.publishSets(sink)
	for _, r := range reports {
		r.send(sink)
	}
	found := sorted(p.problems.settle(refreshed), p.sharing.found)
	p.unfinished = p.sets.DropIdle(unused) // presence selectors that are no longer needed
	return found
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

// report is what the sink must learn about a pod.
type report struct {
	pod                        *localPod
	removed, configured, waits bool
}

// settlePods determines what the sink must learn about the marked pods.
func (p *Processor) settlePods() (reports []report) {
	dirty := p.local.dirtyPods
	slices.SortFunc(dirty, comparePods)
	for _, pod := range dirty {
		if r := p.settlePod(pod); r.removed || r.configured || r.waits {
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
	if pod.elsewhere {
		return r
	}
	was := &pod.published
	if pod.group == nil {
		delete(p.local.pods, pod.id)
		r.removed = was.known
		p.replace(was, publishedPod{})
		return r
	}
	waits, relisted := p.sharing.waiting(pod)
	if relisted {
		now := publishedPod{known: true, ips: pod.ips, list: pod.group.list}
		now.shared, now.others = p.sharing.sharings(pod)
		if r.configured = was.waits || !was.same(now); r.configured {
			p.replace(was, now)
		}
	}
	if r.waits = waits && (!was.waits || !slices.Equal(was.ips, pod.ips)); r.waits {
		was.known, was.waits, was.ips = true, true, pod.ips
	}
	return r
}

// same reports whether the sink has to learn nothing.
func (p *publishedPod) same(now publishedPod) bool {
	return p.known && p.list == now.list && slices.Equal(p.ips, now.ips) && slices.EqualFunc(p.shared, now.shared, api.Sharing.Equal)
}

// replace replaces what the sink has of a pod, as a user of lists.
func (p *Processor) replace(was *publishedPod, now publishedPod) {
	for _, l := range append(now.others, now.list) {
		p.resolver.hold(l)
	}
	for _, l := range append(was.others, was.list) {
		p.resolver.unlist(l)
	}
	*was = now
}

func (r report) send(sink Sink) {
	pod := r.pod
	if r.removed {
		sink.Remove(pod.id)
	}
	if r.configured {
		sink.Configure(pod.id, pod.ips, pod.published.list.contivPolicies(), pod.published.shared)
	}
	if r.waits {
		sink.Await(pod.id, pod.ips)
	}
}

// Replay sends the complete state to an empty sink: every set with members, then every pod. It
// replaces a Flush for sinks that start anew: the changes that Flush would have sent are included
// and will not be sent again.
func (p *Processor) Replay(sink Sink) []api.Problem {
	found := p.FlushAll(discardSink{})
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
func (discardSink) Await(api.PodID, []netip.Addr)                                         {}
func (discardSink) Remove(api.PodID)                                                      {}
