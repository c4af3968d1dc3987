package processor

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// localPod is a pod of the agent's node, or one that shares an address with such a pod.
type localPod struct {
	id    api.PodID
	ips   []netip.Addr
	group *localGroup // nil: the pod has left, or has no address
	pos   int         // index in the group's pods
	dirty bool        // is in localPods.dirtyPods

	elsewhere bool         // is on another node: the sink does not receive it
	nodeAddrs []netip.Addr // of its node, if it is elsewhere

	published publishedPod
}

// publishedPod is the state of a pod that the sink has received.
type publishedPod struct {
	known    bool // false: the sink does not have the pod
	ips      []netip.Addr
	policies []*api.ContivPolicy
	shared   []api.Sharing
}

// localGroup is a group with local pods that have an address. Only for these are policies resolved.
type localGroup struct {
	id       intent.GroupID
	def      *intent.Group
	pods     []*localPod         // unordered; a pod knows its position
	list     *policyList         // nil: no policy
	policies []*api.ContivPolicy // those of the list when its pods were marked last
	dirty    bool                // is in localPods.dirty: the list may change
}

// localNamespace lists the local groups of a namespace.
type localNamespace struct {
	groups map[intent.GroupID]*localGroup
	clean  int // number of groups that are not dirty
}

// localPods holds the pods of the agent's node, by group and namespace, and marks what the next
// Flush must examine.
type localPods struct {
	state State
	node  *membership.OwnNode
	sets  *membership.Sets

	pods       map[api.PodID]*localPod
	groups     map[intent.GroupID]*localGroup
	namespaces map[string]*localNamespace
	dirtyPods  []*localPod
	dirty      []*localGroup
}

func newLocalPods(state State, node *membership.OwnNode, sets *membership.Sets) *localPods {
	return &localPods{
		state: state, node: node, sets: sets,
		pods: map[api.PodID]*localPod{}, groups: map[intent.GroupID]*localGroup{}, namespaces: map[string]*localNamespace{},
	}
}

// podChanged updates the state of a pod that is or was local.
func (l *localPods) podChanged(old, now *intent.Pod) {
	var id api.PodID
	if l.node.Has(old) {
		id = old.ID
	}
	if l.node.Has(now) {
		id = now.ID
	}
	pod := l.pods[id]
	stays := l.node.Has(now) && len(now.IPs) > 0
	if pod == nil && !stays {
		return
	}
	if pod == nil {
		pod = &localPod{id: id}
		l.pods[id] = pod
	}
	var group *localGroup
	if stays {
		group = l.group(now.Group)
		if !slices.Equal(pod.ips, now.IPs) {
			pod.ips = slices.Clone(now.IPs)
		}
	}
	if pod.group != group {
		l.move(pod, group)
	}
	l.markPod(pod)
}

func (l *localPods) markPod(pod *localPod) {
	if !pod.dirty {
		pod.dirty = true
		l.dirtyPods = append(l.dirtyPods, pod)
	}
}

func (l *localPods) markPods(g *localGroup) {
	for _, pod := range g.pods {
		l.markPod(pod)
	}
}

// group returns the local group that is about to get a pod.
func (l *localPods) group(id intent.GroupID) *localGroup {
	if g := l.groups[id]; g != nil {
		return g
	}
	g := &localGroup{id: id, def: l.sets.Group(id)}
	l.groups[id] = g
	ns := l.namespaces[g.def.Namespace]
	if ns == nil {
		ns = &localNamespace{groups: map[intent.GroupID]*localGroup{}}
		l.namespaces[g.def.Namespace] = ns
	}
	ns.groups[id] = g
	ns.clean++
	l.markGroup(g)
	return g
}

// move moves a pod from its local group to another; nil means none. A group without pods stays
// marked, so that Flush releases its list.
func (l *localPods) move(pod *localPod, to *localGroup) {
	if from := pod.group; from != nil {
		last := len(from.pods) - 1
		from.pods[pod.pos] = from.pods[last]
		from.pods[pod.pos].pos = pod.pos
		from.pods[last] = nil
		from.pods = from.pods[:last]
		if last == 0 {
			l.dropGroup(from)
		}
	}
	pod.group = to
	if to != nil {
		pod.pos = len(to.pods)
		to.pods = append(to.pods, pod)
	}
}

func (l *localPods) dropGroup(g *localGroup) {
	l.markGroup(g)
	ns := l.namespaces[g.def.Namespace]
	delete(ns.groups, g.id)
	if len(ns.groups) == 0 {
		delete(l.namespaces, g.def.Namespace)
	}
	delete(l.groups, g.id)
}

// markGroup marks a group to which other policies may apply.
func (l *localPods) markGroup(g *localGroup) {
	if g.dirty {
		return
	}
	g.dirty = true
	l.dirty = append(l.dirty, g)
	l.namespaces[g.def.Namespace].clean--
}

// takeGroups returns the marked groups and removes their marks. The result is valid until the next
// group is marked.
func (l *localPods) takeGroups() []*localGroup {
	marked := l.dirty
	l.dirty = l.dirty[:0]
	for _, g := range marked {
		if g.dirty = false; len(g.pods) > 0 {
			l.namespaces[g.def.Namespace].clean++
		}
	}
	return marked
}

// namespaceChanged marks the groups of a namespace if other cluster-scoped policies may select its
// pods.
func (l *localPods) namespaceChanged(name string, old, now intent.Labels) {
	if ns := l.namespaces[name]; ns != nil && ns.clean > 0 && l.state.SubjectsDiffer(old, now) {
		for _, g := range ns.groups {
			l.markGroup(g)
		}
	}
}

// policyChanged marks the groups that the policy selects or selected.
func (l *localPods) policyChanged(old, now *intent.Policy) {
	if old != nil {
		l.markSelected(old)
	}
	if now != nil && (old == nil || old.Subject != now.Subject || old.SubjectNamespaces != now.SubjectNamespaces) {
		l.markSelected(now)
	}
}

// fewGroups is the number of local groups of a namespace up to which scanning them is cheaper than
// querying the cache.
const fewGroups = 16

// markSelected marks the local groups that a policy selects. They depend only on the policy, the
// groups' labels and those of namespaces.
func (l *localPods) markSelected(spec *intent.Policy) {
	for name, ns := range l.subjectNamespaces(spec) {
		if ns.clean > 0 {
			l.markSelectedIn(name, ns, spec.Subject)
		}
	}
}

// subjectNamespaces returns the namespaces with local pods that a policy can select.
func (l *localPods) subjectNamespaces(spec *intent.Policy) iter.Seq2[string, *localNamespace] {
	return func(yield func(string, *localNamespace) bool) {
		switch {
		case spec.Subject == nil:
		case spec.SubjectNamespaces == nil:
			if ns := l.namespaces[spec.ID.Namespace]; ns != nil {
				yield(spec.ID.Namespace, ns)
			}
		default:
			for name, ns := range l.namespaces {
				labels := l.sets.Labels(name)
				if labels != nil && spec.SubjectNamespaces.Matches(labels) && !yield(name, ns) {
					return
				}
			}
		}
	}
}

func (l *localPods) markSelectedIn(name string, ns *localNamespace, subject *intent.Selector) {
	if len(ns.groups) <= fewGroups {
		for _, g := range ns.groups {
			if !g.dirty && subject.Matches(g.def.Labels) {
				l.markGroup(g)
			}
		}
		return
	}
	for id := range l.state.MatchGroups(intent.GroupQuery{Namespace: name, Pods: subject}) {
		if g := l.groups[id]; g != nil {
			l.markGroup(g)
		}
	}
}

func comparePods(a, b *localPod) int { return a.id.Compare(b.id) }
