package cache

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// UnenforcedTracker knows which rules that a renderer was told its stack cannot enforce as they
// are: those that it cannot express, and those that it had to refuse. Its answer is a
// function of what was told last and of what was refused last, whatever happened before.
// It follows changes: a pod costs a look at its lists.
type UnenforcedTracker struct {
	lost     func(api.ContivRule) bool // the stack cannot express the rule
	reason   string                    // why
	matters  bool                      // such rules count
	pods     map[api.PodID]lostLists   // that have such rules
	rules    map[lostRule]int          // those rules, and how many of the pods have them
	oversize []renderer.Unenforced     // refused
	answer   []renderer.Unenforced     // of Unenforced
	current  bool                      // answer is what it must be
}

// lostLists are the lists of a pod that have a rule that cannot be expressed; nil for a
// list that has none.
type lostLists struct {
	ingress, egress *renderer.RuleList
}

// lostRule is a rule that cannot be expressed, and what becomes of it. A rule that passes
// on may permit and deny.
type lostRule struct {
	origin api.Origin
	effect renderer.Effect
}

// NewUnenforcedTracker takes which rules the stack cannot express, and why. What such a rule
// permits must stay closed, and what it denies must be denied with more.
func NewUnenforcedTracker(reason string, lost func(api.ContivRule) bool) UnenforcedTracker {
	return UnenforcedTracker{lost: lost, reason: reason, matters: true, pods: map[api.PodID]lostLists{}, rules: map[lostRule]int{}}
}

// Matters reports whether the stack that there is now cannot express such rules.
func (x *UnenforcedTracker) Matters() bool { return x.matters }

// SetMatters takes over whether the stack that there is now cannot express such rules.
func (x *UnenforcedTracker) SetMatters(matters bool) {
	x.current = x.current && x.matters == matters
	x.matters = matters
}

// StagedTxn is a transaction that is applied to a cache and to what the stack falls short of.
type StagedTxn struct {
	Changes
	shortfall *UnenforcedTracker
	pods      []stagedPod
}

type stagedPod struct {
	id    api.PodID
	lists lostLists
}

// NewTxn begins a transaction.
func (x *UnenforcedTracker) NewTxn(resync bool) StagedTxn {
	return StagedTxn{Changes: Changes{Resync: resync}, shortfall: x}
}

// Render records the configuration of a pod.
func (t *StagedTxn) Render(pod api.PodID, cfg renderer.PodConfig) {
	t.Changes.Render(pod, cfg)
	t.pods = append(t.pods, stagedPod{pod, lostLists{t.shortfall.only(cfg.Ingress), t.shortfall.only(cfg.Egress)}})
}

// Remove records the removal of a pod.
func (t *StagedTxn) Remove(pod api.PodID) {
	t.Changes.Remove(pod)
	t.pods = append(t.pods, stagedPod{id: pod})
}

// HasPods reports whether anything was said of pods; a resync says it of all.
func (t *StagedTxn) HasPods() bool { return t.Resync || len(t.pods) > 0 }

// Apply applies everything to the cache, and forgets it.
func (t *StagedTxn) Apply(c Staged) {
	resync := t.Resync
	t.Changes.Apply(c)
	t.shortfall.apply(resync, t.pods)
	t.pods = nil
}

// only returns the list if it has a rule that cannot be expressed, else nil.
func (x *UnenforcedTracker) only(l *renderer.RuleList) *renderer.RuleList {
	if slices.ContainsFunc(l.Rules(), x.lost) {
		return l
	}
	return nil
}

// apply takes over the pods of a transaction, in order.
func (x *UnenforcedTracker) apply(resync bool, pods []stagedPod) {
	if resync {
		x.current = x.current && len(x.pods) == 0
		clear(x.pods)
		clear(x.rules)
	}
	for _, p := range pods {
		old := x.pods[p.id]
		if old == p.lists {
			continue
		}
		x.current = false
		x.count(old, -1)
		x.count(p.lists, +1)
		if x.pods[p.id] = p.lists; p.lists == (lostLists{}) {
			delete(x.pods, p.id)
		}
	}
}

// count counts the rules of a pod; one that is in several rules of a list, once.
func (x *UnenforcedTracker) count(of lostLists, d int) {
	seen := map[lostRule]bool{}
	for _, l := range [2]*renderer.RuleList{of.ingress, of.egress} {
		for i, r := range l.Rules() {
			if !x.lost(r) {
				continue
			}
			effect := renderer.EffectClosed
			if r.Action == api.Deny {
				effect = renderer.EffectWider
			}
			for _, o := range l.Origins(i) {
				rule := lostRule{o, effect}
				if seen[rule] {
					continue
				}
				seen[rule] = true
				if x.rules[rule] += d; x.rules[rule] <= 0 {
					delete(x.rules, rule)
				}
			}
		}
	}
}

// Refused takes over what a commit had to refuse. What is said of one rule several
// times is said once, of all the pods.
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

// Unenforced is that of renderer.Reporter.
func (x *UnenforcedTracker) Unenforced() []renderer.Unenforced {
	if x.current {
		return x.answer
	}
	now := slices.Clone(x.oversize)
	if x.matters {
		for rule, pods := range x.rules {
			now = append(now, renderer.Unenforced{Origin: rule.origin, Class: api.ClassStack, Reason: x.reason, Effect: rule.effect, Pods: pods})
		}
	}
	now = renderer.SortUnenforced(now)
	if x.current = true; !slices.Equal(now, x.answer) {
		x.answer = now
	}
	return x.answer
}
