package processor

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// localPod is a pod that the sink knows or is going to know.
type localPod struct {
	id    api.PodID
	ips   []netip.Addr
	group *localGroup // nil: has left, or has no address
	pos   int         // in the group's pods
	dirty bool        // is in Processor.dirtyPods

	elsewhere bool         // is in Processor.remotes: the sink never hears of it
	nodeAddrs []netip.Addr // of its node, where it is elsewhere

	told       bool // the sink knows it, as it is in the following
	toldIPs    []netip.Addr
	toldList   *policyList
	toldShared []api.Sharing
}

// localGroup is a group with local pods that have an address. Policies are looked
// for only for these.
type localGroup struct {
	id    api.GroupID
	def   *api.Group
	pods  []*localPod // in no particular order; a pod knows its position
	list  *policyList // nil: no policy
	names []*names    // of its policies, that it is counted in
	dirty bool        // is in Processor.dirty: the list may be another
}

// localNamespace lists the local groups of a namespace.
type localNamespace struct {
	groups map[api.GroupID]*localGroup
	clean  int // groups that are not dirty
}

// localPodChanged takes over the state of a pod that is or was local.
func (p *Processor) localPodChanged(old, now *api.Pod) {
	var id api.PodID
	var oldIPs, nowIPs []netip.Addr
	if p.isLocal(old) {
		id, oldIPs = old.ID, old.NodeIPs
	}
	if p.isLocal(now) {
		id, nowIPs = now.ID, now.NodeIPs
	}
	p.nodeAddrs.changeAll(oldIPs, nowIPs)
	if p.node == "" {
		p.countHost(old, -1)
		p.countHost(now, +1)
	}

	pod := p.pods[id]
	stays := p.isLocal(now) && len(now.IPs) > 0
	if pod == nil && !stays {
		return
	}
	if pod == nil {
		pod = &localPod{id: id}
		p.pods[id] = pod
	}
	var group *localGroup
	if stays {
		group = p.localGroup(now.Group)
		if !slices.Equal(pod.ips, now.IPs) {
			pod.ips = slices.Clone(now.IPs)
		}
	}
	if pod.group != group {
		p.moveLocal(pod, group)
	}
	p.markPod(pod)
}

func (p *Processor) markPod(pod *localPod) {
	if !pod.dirty {
		pod.dirty = true
		p.dirtyPods = append(p.dirtyPods, pod)
	}
}

// localGroup returns the local group, which is about to get a pod.
func (p *Processor) localGroup(id api.GroupID) *localGroup {
	g := &p.groups[id]
	if g.local != nil {
		return g.local
	}
	g.local = &localGroup{id: id, def: g.def}
	ns := p.localNS[g.def.Namespace]
	if ns == nil {
		ns = &localNamespace{groups: map[api.GroupID]*localGroup{}}
		p.localNS[g.def.Namespace] = ns
	}
	ns.groups[id] = g.local
	ns.clean++
	p.markGroup(g.local)
	return g.local
}

// moveLocal moves a pod from its local group to another; nil is none. A group
// without pods stays marked, so that Flush lets its list go.
func (p *Processor) moveLocal(pod *localPod, to *localGroup) {
	if from := pod.group; from != nil {
		last := len(from.pods) - 1
		from.pods[pod.pos] = from.pods[last]
		from.pods[pod.pos].pos = pod.pos
		from.pods[last] = nil
		from.pods = from.pods[:last]
		if last == 0 {
			p.dropLocalGroup(from)
		}
	}
	pod.group = to
	if to != nil {
		pod.pos = len(to.pods)
		to.pods = append(to.pods, pod)
	}
}

func (p *Processor) dropLocalGroup(g *localGroup) {
	p.markGroup(g)
	ns := p.localNS[g.def.Namespace]
	delete(ns.groups, g.id)
	if len(ns.groups) == 0 {
		delete(p.localNS, g.def.Namespace)
	}
	p.groups[g.id].local = nil
}

// markGroup notes that other policies may apply to a group.
func (p *Processor) markGroup(g *localGroup) {
	if g.dirty {
		return
	}
	g.dirty = true
	p.dirty = append(p.dirty, g)
	p.localNS[g.def.Namespace].clean--
}

// fewGroups is the number of local groups of a namespace up to which each of them
// is looked at, instead of asking the cache.
const fewGroups = 16

// markSelected marks the local groups that a policy selects. Which these are
// depends on nothing but the policy, the groups' labels and those of namespaces.
func (p *Processor) markSelected(spec *api.PolicySpec) {
	for name, ns := range p.subjectNamespaces(spec) {
		if ns.clean > 0 {
			p.markSelectedIn(name, ns, spec.Subject)
		}
	}
}

// subjectNamespaces returns the namespaces with local pods that a policy can select.
func (p *Processor) subjectNamespaces(spec *api.PolicySpec) iter.Seq2[string, *localNamespace] {
	return func(yield func(string, *localNamespace) bool) {
		switch {
		case spec.Subject == nil:
		case spec.SubjectNamespaces == nil:
			if ns := p.localNS[spec.ID.Namespace]; ns != nil {
				yield(spec.ID.Namespace, ns)
			}
		default:
			for name, ns := range p.localNS {
				labels := p.namespaces[name]
				if labels != nil && spec.SubjectNamespaces.Matches(labels) && !yield(name, ns) {
					return
				}
			}
		}
	}
}

func (p *Processor) markSelectedIn(name string, ns *localNamespace, subject *api.Selector) {
	if len(ns.groups) <= fewGroups {
		for _, g := range ns.groups {
			if !g.dirty && subject.Matches(g.def.Labels) {
				p.markGroup(g)
			}
		}
		return
	}
	for id := range p.state.MatchGroups(api.GroupQuery{Namespace: name, Pods: subject}) {
		if g := p.groups[id].local; g != nil {
			p.markGroup(g)
		}
	}
}

// refreshGroups finds the lists of the groups that are marked, and marks the pods
// of those whose list is another now.
func (p *Processor) refreshGroups() {
	for _, g := range p.dirty {
		g.dirty = false
		var list *policyList
		if len(g.pods) > 0 {
			p.localNS[g.def.Namespace].clean++
			list = p.listOf(g)
		}
		p.countNames(g, list)
		if list == g.list {
			continue
		}
		if list != nil {
			list.groups++
		}
		p.unlist(g.list)
		g.list = list
		for _, pod := range g.pods {
			p.markPod(pod)
		}
	}
	p.dirty = p.dirty[:0]
}

// tell brings the sink's knowledge of a pod up to date.
func (p *Processor) tell(pod *localPod, sink Sink) {
	pod.dirty = false
	if pod.elsewhere {
		return
	}
	if pod.group == nil {
		delete(p.pods, pod.id)
		if pod.told {
			sink.Remove(pod.id)
		}
		return
	}
	shared := p.sharingsOf(pod)
	if pod.told && pod.toldList == pod.group.list && slices.Equal(pod.toldIPs, pod.ips) &&
		slices.EqualFunc(pod.toldShared, shared, api.Sharing.Equal) {
		return
	}
	pod.told, pod.toldIPs, pod.toldList, pod.toldShared = true, pod.ips, pod.group.list, shared
	sink.Configure(pod.id, pod.ips, pod.group.list.contivPolicies(), shared)
}
