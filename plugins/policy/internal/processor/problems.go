package processor

import (
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// problemTracker tracks the problems of policies that apply to local pods. It examines only
// policies for which something relevant has changed.
type problemTracker struct {
	sets     *membership.Sets
	resolver *resolver

	names   map[api.PolicyID]*names        // of policies with named ports
	counted map[*localGroup][]*names       // names in which a group is counted
	dirty   map[api.PolicyID]struct{}      // policies whose problems may have changed
	present map[api.PolicyID][]api.Problem // of policies with problems
	solved  []api.Problem                  // by the last settle
}

func newProblemTracker(sets *membership.Sets, resolver *resolver) *problemTracker {
	return &problemTracker{
		sets: sets, resolver: resolver, names: map[api.PolicyID]*names{}, counted: map[*localGroup][]*names{},
		dirty: map[api.PolicyID]struct{}{}, present: map[api.PolicyID][]api.Problem{},
	}
}

// settle determines problems after groups were refreshed. It returns the new ones, sorted, and
// records the solved ones.
func (t *problemTracker) settle(refreshed []*localGroup) (found []api.Problem) {
	for _, st := range t.resolver.takeResolved() {
		t.follow(st.spec.ID)
	}
	for _, g := range refreshed {
		t.countGroup(g)
	}
	for _, s := range t.sets.TakeFlipped() {
		for id := range s.Users() {
			t.dirty[id] = struct{}{}
		}
	}
	t.solved = nil
	for id := range t.dirty {
		before, now := t.present[id], t.judge(id)
		found = append(found, api.ProblemsWithout(now, before)...)
		t.solved = append(t.solved, api.ProblemsWithout(before, now)...)
		if len(now) == 0 {
			delete(t.present, id)
		} else {
			t.present[id] = now
		}
	}
	clear(t.dirty)
	slices.SortFunc(found, api.Problem.Compare)
	slices.SortFunc(t.solved, api.Problem.Compare)
	return found
}

// all returns the current problems, sorted.
func (t *problemTracker) all() []api.Problem {
	var out []api.Problem
	for _, problems := range t.present {
		out = append(out, problems...)
	}
	slices.SortFunc(out, api.Problem.Compare)
	return out
}

// follow updates the named ports of a policy that was resolved anew, or no longer applies.
func (t *problemTracker) follow(id api.PolicyID) {
	t.dirty[id] = struct{}{}
	st, old := t.resolver.policies[id], t.names[id]
	if old != nil && (st == nil || st.spec != old.spec) {
		delete(t.names, id)
	}
	if st != nil && t.names[id] == nil {
		if n := namesOf(st.spec); n != nil {
			t.names[id] = n
		}
	}
}

// countGroup moves a local group from the policies in which it was counted to those of its list.
func (t *problemTracker) countGroup(g *localGroup) {
	was := t.counted[g]
	for _, n := range was {
		t.count(n, g.def, -1)
	}
	now := was[:0]
	if g.list != nil {
		for _, r := range g.list.resolutions {
			if !r.state.watched {
				continue
			}
			if n := t.names[r.state.spec.ID]; n != nil && len(n.ingress) > 0 {
				t.count(n, g.def, +1)
				now = append(now, n)
			}
		}
	}
	switch {
	case len(now) > 0:
		t.counted[g] = now
	case len(was) > 0:
		delete(t.counted, g)
	}
}

func (t *problemTracker) count(n *names, g *intent.Group, d int) {
	if n.count(g, d) {
		t.dirty[n.spec.ID] = struct{}{}
	}
}

// judge returns the problems of a policy.
func (t *problemTracker) judge(id api.PolicyID) (out []api.Problem) {
	st := t.resolver.policies[id]
	switch {
	case st == nil:
		return nil
	case st.refused:
		return []api.Problem{st.problem(t.resolver.quota)}
	}
	if st.usesRefused() {
		out = append(out, api.Problem{Object: id.String(), Field: "spec", Class: api.ClassSelector,
			Reason: "a selector in it matches nothing, because another one has its address set: change either of them a little"})
	}
	n := t.names[id]
	if n == nil {
		return out
	}
	for _, c := range n.ingress {
		if c.groups == 0 { // there are some: without any the policy would have no state
			out = append(out, c.problem(id))
		}
	}
	return append(out, t.judgeEgress(n, st.perPort)...)
}

// judgeEgress examines the selectors of the names. A name without any number is a problem if there
// are pods that should have given it one.
func (t *problemTracker) judgeEgress(n *names, perPort map[portName][]*membership.Selector) (out []api.Problem) {
	for _, at := range n.egress {
		selectors := perPort[at]
		if len(selectors) == 0 || slices.ContainsFunc(selectors, (*membership.Selector).HasNumber) {
			continue
		}
		if slices.ContainsFunc(selectors, t.hasPods) {
			out = append(out, at.problem(n.spec.ID))
		}
	}
	return out
}

// hasPods reports whether the peer of a selector has pods, with a named port or without.
func (t *problemTracker) hasPods(s *membership.Selector) bool {
	return s.AlwaysPresent() || t.sets.Active(s.Presence()).HasPods()
}
