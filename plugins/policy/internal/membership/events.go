package membership

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"
)

// GroupAdded links a group without pods to its sets.
func (x *Sets) GroupAdded(id intent.GroupID, g *intent.Group) {
	x.links.add(id, g)
	for sc := range x.scopes.covering(g.Namespace, x.namespaces[g.Namespace]) {
		sc.grow(+1)
		for sel := range sc.selectorsOf(g) {
			x.link(sel, id)
		}
	}
}

// GroupRemoved unlinks a group without pods.
func (x *Sets) GroupRemoved(id intent.GroupID) {
	g := x.links.groups[id].def
	for sc := range x.scopes.covering(g.Namespace, x.namespaces[g.Namespace]) {
		sc.grow(-1)
	}
	for _, s := range x.links.remove(id) {
		x.groupLeft(s)
	}
}

// PodChanged records that addresses join or leave the sets of a pod's group.
func (x *Sets) PodChanged(old, now *intent.Pod) {
	if old == nil || now == nil || old.Group != now.Group || !slices.Equal(old.IPs, now.IPs) {
		x.journal.count(old, -1)
		x.journal.count(now, +1)
	}
	if now != nil && now.Shared {
		x.journal.noteShared(now)
	}
}

// NamespaceChanged links and unlinks the groups of a namespace, for the selectors that began or
// ceased to match the namespace.
func (x *Sets) NamespaceChanged(name string, old, now intent.Labels) {
	if now == nil {
		delete(x.namespaces, name)
	} else {
		x.namespaces[name] = now
	}
	for sc := range x.scopes.chosenIndex.Matching(old) {
		if old != nil && (now == nil || !sc.sel.Matches(now)) {
			x.relink(name, sc, -1)
		}
	}
	for sc := range x.scopes.chosenIndex.Matching(now) {
		if now != nil && (old == nil || !sc.sel.Matches(old)) {
			x.relink(name, sc, +1)
		}
	}
}

// fewSelectors is the number of selectors of a scope up to which finding the groups of each
// selector is cheaper than finding the selectors of each group.
const fewSelectors = 16

// relink links or unlinks the groups of a namespace, for the selectors of a scope.
func (x *Sets) relink(name string, sc *scope, d int) {
	change := x.unlink
	if d > 0 {
		change = x.link
	}
	for range x.state.MatchGroups(intent.GroupQuery{Namespace: name, Pods: intent.Everything}) {
		sc.grow(d)
	}
	if sc.size() <= fewSelectors {
		for sel := range sc.all() {
			for id := range x.state.MatchGroups(intent.GroupQuery{Namespace: name, Pods: sel.pods, Port: sel.key.port}) {
				change(sel, id)
			}
		}
		return
	}
	for id, g := range x.state.MatchGroups(intent.GroupQuery{Namespace: name, Pods: intent.Everything}) {
		for sel := range sc.selectorsOf(g) {
			change(sel, id)
		}
	}
}

// NodeChanged counts the addresses of a node in the sets of the selectors that select
// it.
func (x *Sets) NodeChanged(old, now *intent.Node) {
	sc := x.scopes.byKey[nodeScope]
	if sc == nil {
		return
	}
	count := func(n *intent.Node, old, now []netip.Addr) {
		for s := range sc.plain.Matching(n.Labels) {
			s.sets[0].changeNode(old, now)
			x.journal.touch(s.sets[0])
		}
	}
	if old != nil {
		count(old, old.Addresses, nil)
	}
	if now != nil {
		count(now, nil, now.Addresses)
	}
}
