package secgroup

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/internal/capacity"
	"github.com/sluice-net/sluice/renderer/secgroup/internal/permits"
)

// What lists may become beside Options.MaxRules: rules of all groups of a namespace's pods, and of
// the cluster. Neutron takes a minute for some ten thousand.
const (
	namespaceRules = 1 << 17
	totalRules     = 1 << 20
)

// side is a list in one direction of the pods that have it.
type side struct {
	list      *renderer.RuleList
	direction api.Direction
	node      string // the addresses of their node, where these differ
}

// compare orders sides by what they are, not by when they were made.
func (s side) compare(o side) int {
	a, b := s.list.Digest(), o.list.Digest()
	return cmp.Or(bytes.Compare(a[:], b[:]), cmp.Compare(s.direction, o.direction), cmp.Compare(s.node, o.node))
}

// cost is how many rules a list becomes, or one more than it may, and what it permits. It is kept
// until a set of the list changes, so that others cost nothing then.
type cost struct {
	rules   int
	permits *permits.List
}

// admission decides which lists become rules, by the rule of package capacity.
type admission struct {
	costs map[side]cost
	use   capacity.Use
}

// refused returns the lists that are closed, and records what the others take. Every group of a list
// counts.
func (r *Renderer) refused() map[side]capacity.Refusal {
	groups := map[side]map[pair]bool{}
	owners := map[side]map[string]bool{}
	for pod, cfg := range r.desired.pods {
		p := r.pairOf(pod, cfg)
		for d, l := range p.lists {
			if l == nil {
				continue
			}
			s := side{l, api.Direction(d), p.node}
			if groups[s] == nil {
				groups[s], owners[s] = map[pair]bool{}, map[string]bool{}
				r.count(s, pod)
			}
			groups[s][p], owners[s][pod.Namespace] = true, true
		}
	}
	maps.DeleteFunc(r.admission.costs, func(s side, _ cost) bool { return groups[s] == nil })
	lists := make([]capacity.List[side], 0, len(groups))
	for s, of := range groups {
		one := r.admission.costs[s].rules
		lists = append(lists, capacity.List[side]{Key: s, Cost: one * len(of), One: one, Namespaces: slices.Sorted(maps.Keys(owners[s]))})
	}
	refused := capacity.Refused(lists, capacity.Limits{List: r.options.MaxRules / 2, Namespace: namespaceRules, Total: totalRules}, side.compare)
	r.admission.use = capacity.UseOf(lists, refused)
	return refused
}

// count counts the rules of a list, without keeping them.
func (r *Renderer) count(s side, pod api.PodID) {
	if _, known := r.admission.costs[s]; known {
		return
	}
	b, l := r.builderFor(pod), permitsOf(s.list, s.direction)
	x, _, fits := b.expand(s.direction, l)
	c := cost{len(x.rules), l}
	if !fits {
		c.rules = r.options.MaxRules/2 + 1
	}
	r.admission.costs[s] = c
}

// forget drops what depends on sets that change.
func (x *admission) forget(changed map[api.SetID]bool) {
	maps.DeleteFunc(x.costs, func(_ side, c cost) bool {
		return slices.ContainsFunc(c.permits.Sets(), func(id api.SetID) bool { return changed[id] })
	})
}

// capacity returns what lists take.
func (x *admission) capacity(maxRules int) []renderer.Capacity {
	return []renderer.Capacity{{
		Resource: "rules of security groups", List: renderer.Share{Used: x.use.List, Most: maxRules / 2}, Of: x.use.Of,
		Namespace: renderer.Share{Used: x.use.Namespace, Most: namespaceRules}, Total: renderer.Share{Used: x.use.Total, Most: totalRules},
	}}
}
