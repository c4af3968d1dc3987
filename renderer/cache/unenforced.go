package cache

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// UnenforcedTracker tracks the rules that the dataplane cannot enforce exactly: rules that it
// cannot express, and rules that the renderer had to refuse. Its result depends only on the current
// rules and the last refusals, not on history. It works incrementally: changing a pod costs a look
// at the lists of that pod.
type UnenforcedTracker struct {
	lost     func(*api.ContivRule) bool // whether the dataplane cannot express the rule
	reason   string                     // why
	matters  bool                       // whether such rules count
	pods     map[api.PodID]lostLists    // pods that have such rules
	rules    map[lostRule]int           // those rules, with the number of their pods
	oversize []renderer.Unenforced      // refused rules
	answer   []renderer.Unenforced      // memoized result of Unenforced
	current  bool                       // answer is valid
}

// lostLists holds the lists of a pod that contain a rule that cannot be expressed; a list without
// such a rule is nil.
type lostLists struct {
	ingress, egress *renderer.RuleList
}

// lostRule is a rule that cannot be expressed, and the effect. A Pass rule may become both permits
// and denies.
type lostRule struct {
	origin api.Origin
	effect renderer.Effect
}

// NewUnenforcedTracker returns a tracker. lost reports whether the dataplane cannot express a rule
// of those in RuleList.Unusual, and reason says why. The renderer must deny what such a rule
// permits, and must deny more than such a rule denies.
func NewUnenforcedTracker(reason string, lost func(*api.ContivRule) bool) UnenforcedTracker {
	return UnenforcedTracker{lost: lost, reason: reason, matters: true, pods: map[api.PodID]lostLists{}, rules: map[lostRule]int{}}
}

// Matters reports whether the current dataplane cannot express such rules.
func (x *UnenforcedTracker) Matters() bool { return x.matters }

// SetMatters sets whether the current dataplane cannot express such rules.
func (x *UnenforcedTracker) SetMatters(matters bool) {
	x.current = x.current && x.matters == matters
	x.matters = matters
}

// Track takes over changes.
func (x *UnenforcedTracker) Track(c renderer.Changes) {
	if c.Resync {
		x.current = x.current && len(x.pods) == 0
		clear(x.pods)
		clear(x.rules)
	}
	for pod, cfg := range c.Pods {
		var now lostLists
		if cfg != nil {
			now = lostLists{x.only(cfg.Ingress), x.only(cfg.Egress)}
		}
		old := x.pods[pod]
		if old == now {
			continue
		}
		x.current = false
		x.count(old, -1)
		x.count(now, +1)
		if x.pods[pod] = now; now == (lostLists{}) {
			delete(x.pods, pod)
		}
	}
}

// only returns the list if it has a rule that cannot be expressed, and nil otherwise.
func (x *UnenforcedTracker) only(l *renderer.RuleList) *renderer.RuleList {
	for _, r := range l.Unusual() {
		if x.lost(&r) {
			return l
		}
	}
	return nil
}

// count adds d to the count of each lost rule of a pod. The rules of its two lists differ in their
// direction.
func (x *UnenforcedTracker) count(of lostLists, d int) {
	for _, l := range [2]*renderer.RuleList{of.ingress, of.egress} {
		for _, rule := range x.lostIn(l) {
			if x.rules[rule] += d; x.rules[rule] <= 0 {
				delete(x.rules, rule)
			}
		}
	}
}

// lostIn returns the lost rules of a list, each once.
func (x *UnenforcedTracker) lostIn(l *renderer.RuleList) (out []lostRule) {
	seen := map[lostRule]bool{}
	for i, r := range l.Unusual() {
		if !x.lost(&r) {
			continue
		}
		effect := renderer.EffectClosed
		if r.Action == api.Deny {
			effect = renderer.EffectWider
		}
		for _, o := range l.Origins(i) {
			if rule := (lostRule{o, effect}); !seen[rule] {
				seen[rule] = true
				out = append(out, rule)
			}
		}
	}
	return out
}

// Refused replaces the refusals by those of the last Apply. Several refusals of one rule are
// merged, with the sum of their pods.
func (x *UnenforcedTracker) Refused(said []renderer.Unenforced) {
	pods := map[renderer.Unenforced]int{}
	for _, u := range said {
		n := u.Pods
		u.Pods = 0
		pods[u] += n
	}
	var rules []renderer.Unenforced
	for u, n := range pods {
		u.Pods = n
		rules = append(rules, u)
	}
	rules = renderer.SortUnenforced(rules)
	x.current = x.current && slices.Equal(x.oversize, rules)
	x.oversize = rules
}

// Unenforced implements renderer.Reporter.
func (x *UnenforcedTracker) Unenforced() []renderer.Unenforced {
	if x.current {
		return x.answer
	}
	now := slices.Clone(x.oversize)
	if x.matters {
		for rule, pods := range x.rules {
			now = append(now, renderer.Unenforced{Origin: rule.origin, Class: api.ClassDataplane, Reason: x.reason, Effect: rule.effect, Pods: pods})
		}
	}
	now = renderer.SortUnenforced(now)
	if x.current = true; !slices.Equal(now, x.answer) {
		x.answer = now
	}
	return x.answer
}
