package processor

import (
	"encoding/binary"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// resolver determines the policies of local groups, and keeps one object per policy, per resolution
// and per list.
type resolver struct {
	state PolicyState
	sets  *membership.Sets
	local *localPods

	policies map[api.PolicyID]*policyState
	lists    map[string]*policyList
	unlisted []*policyList  // may have lost their last group
	lastID   uint64         // of a resolution
	resolved []*policyState // see takeResolved
}

func newResolver(state PolicyState, sets *membership.Sets, local *localPods) *resolver {
	return &resolver{state: state, sets: sets, local: local, policies: map[api.PolicyID]*policyState{}, lists: map[string]*policyList{}}
}

// renumber records that the numbers of a named port of a policy changed.
func (r *resolver) renumber(id api.PolicyID) {
	if st := r.policies[id]; st != nil {
		st.stale = true
		r.local.markSelected(st.spec)
	}
}

// refresh determines the lists of the marked groups, and marks the pods of groups whose list
// changed. It returns the groups; the result is valid until the next group is marked. It drops
// unused lists, resolutions and selectors.
func (r *resolver) refresh() []*localGroup {
	groups := r.local.takeGroups()
	for _, g := range groups {
		var list *policyList
		if len(g.pods) > 0 {
			list = r.listOf(g)
		}
		if list == g.list {
			continue
		}
		if list != nil {
			list.groups++
		}
		r.unlist(g.list)
		g.list = list
		for _, pod := range g.pods {
			r.local.markPod(pod)
		}
	}
	r.dropUnused()
	return groups
}

// listOf returns the list of the policies that apply to a group, or nil if there are none.
func (r *resolver) listOf(g *localGroup) *policyList {
	specs := r.state.Policies(g.id)
	if len(specs) == 0 {
		return nil
	}
	resolutions := make([]*resolution, len(specs))
	key := make([]byte, 0, 8*len(specs))
	for i, spec := range specs {
		resolutions[i] = r.resolutionOf(spec, g.def)
		key = binary.LittleEndian.AppendUint64(key, resolutions[i].id)
	}
	if l, ok := r.lists[string(key)]; ok {
		return l
	}
	l := &policyList{key: string(key), resolutions: resolutions, policies: make([]*api.ContivPolicy, len(specs))}
	for i, res := range resolutions {
		l.policies[i] = res.policy
		res.lists++
	}
	r.lists[l.key] = l
	return l
}

// resolutionOf returns the up-to-date resolution of a policy for a group.
func (r *resolver) resolutionOf(spec *intent.Policy, g *intent.Group) *resolution {
	st := r.policies[spec.ID]
	if st == nil {
		st = &policyState{resolutions: map[string]*resolution{}}
		r.policies[spec.ID] = st
	}
	if st.spec != spec || st.stale {
		st.spec, st.stale = spec, false
		st.watched = st.watched || hasNames(spec)
		st.version++
	}
	ingress, key := resolveIngress(spec, g)
	res := st.resolutions[key]
	if res == nil {
		res = &resolution{state: st, key: key}
		st.resolutions[key] = res
	}
	if res.version != st.version {
		res.version = st.version
		r.resolve(res, ingress)
	}
	return res
}

// resolve rebuilds the policy of a resolution. If it is equal, it stays the same object.
func (r *resolver) resolve(res *resolution, ingress [][]api.PolicyPort) {
	b := builder{sets: r.sets, spec: res.state.spec}
	policy := b.policy(ingress)
	for _, s := range b.uses {
		s.Retain(policy.ID)
	}
	for _, s := range res.uses {
		r.sets.Release(s, policy.ID)
	}
	res.uses, res.state.perPort = b.uses, b.perPort
	res.state.watched = res.state.watched || res.usesRefused()
	r.note(res.state)
	if res.policy != nil && equalPolicies(res.policy, policy) {
		return
	}
	r.lastID++
	res.id, res.policy = r.lastID, policy
}

// note records that a policy was resolved anew, or no longer applies. It does nothing for policies
// that cannot have problems.
func (r *resolver) note(st *policyState) {
	if st.watched {
		r.resolved = append(r.resolved, st)
	}
}

// takeResolved returns the policies that may have problems and were resolved anew, or no longer
// apply, since the last call. The result is valid until the next refresh.
func (r *resolver) takeResolved() []*policyState {
	resolved := r.resolved
	r.resolved = r.resolved[:0]
	return resolved
}

// unlist drops one reference of a group to a list.
func (r *resolver) unlist(l *policyList) {
	if l == nil {
		return
	}
	if l.groups--; l.groups == 0 {
		r.unlisted = append(r.unlisted, l)
	}
}

// dropUnused drops the lists without groups, then the resolutions without lists, then the selectors
// without resolutions. It runs when all groups have their lists, so it drops nothing that is needed
// again.
func (r *resolver) dropUnused() {
	for _, l := range r.unlisted {
		if l.groups > 0 || r.lists[l.key] != l {
			continue
		}
		delete(r.lists, l.key)
		for _, res := range l.resolutions {
			if res.lists--; res.lists == 0 {
				r.dropResolution(res)
			}
		}
	}
	r.unlisted = r.unlisted[:0]
	r.sets.DropIdle()
}

func (r *resolver) dropResolution(res *resolution) {
	id := res.state.spec.ID
	for _, s := range res.uses {
		r.sets.Release(s, id)
	}
	res.uses = nil
	delete(res.state.resolutions, res.key)
	if len(res.state.resolutions) == 0 {
		delete(r.policies, id)
	}
	r.note(res.state)
}
