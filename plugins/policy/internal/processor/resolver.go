package processor

import (
	"encoding/binary"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/intent"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// resolver determines the policies of local groups, and keeps one object per policy, per resolution
// and per list: what is equal is identical, so that all below compare pointers.
type resolver struct {
	state PolicyState
	sets  *membership.Sets
	local *localPods
	admission

	policies map[api.PolicyID]*policyState
	lists    map[string]*policyList
	unlisted []*policyList       // may have lost their last group
	shared   map[*policyList]int // how many pods that share an address have the list as well
	lastID   uint64              // of a resolution
	resolved []*policyState      // see takeResolved
}

func newResolver(state PolicyState, sets *membership.Sets, local *localPods) *resolver {
	return &resolver{
		state: state, sets: sets, local: local, admission: newAdmission(sets),
		policies: map[api.PolicyID]*policyState{}, lists: map[string]*policyList{},
	}
}

// renumber records that the numbers of a named port of a policy changed.
func (r *resolver) renumber(id api.PolicyID) {
	if st := r.policies[id]; st != nil {
		st.stale = true
		r.local.markSelected(st.spec)
	}
}

// refresh determines the lists of the marked groups, and marks the pods of groups whose list
// changed. It returns the groups that may have other lists. sharers are the pods that share an address
// with a pod.
func (r *resolver) refresh(sharers map[*localPod][]*localPod) []*localGroup {
	refreshed := slices.Clone(r.local.takeGroups())
	for _, g := range refreshed {
		r.list(g, r.listOf(g))
	}
	r.dropLists()
	r.countShared(sharers)
	for _, t := range r.tenants {
		r.settle(t)
	}
	refreshed = append(refreshed, r.local.takeGroups()...) // of policies that became refused or admitted
	for _, g := range refreshed {
		if g.list != nil {
			g.list.assemble()
		}
		if now := g.list.contivPolicies(); !sameList(g.policies, now) {
			g.policies = now
			r.local.markPods(g)
		}
	}
	return refreshed
}

// list gives a group a list.
func (r *resolver) list(g *localGroup, list *policyList) {
	if list == g.list {
		return
	}
	if list != nil {
		list.groups++
	}
	if g.list != nil {
		g.list.groups--
		r.unlisted = append(r.unlisted, g.list)
	}
	g.list = list
}

// listOf returns the list of the policies that select a group; nil for none, or for a group without
// pods.
func (r *resolver) listOf(g *localGroup) *policyList {
	if len(g.pods) == 0 {
		return nil
	}
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
	l := &policyList{key: string(key), resolutions: resolutions}
	for _, res := range resolutions {
		res.lists++
		r.touch(res.state)
	}
	r.lists[l.key] = l
	r.unlisted = append(r.unlisted, l) // if nothing gets it
	return l
}

// resolutionOf returns the resolution of a policy for a group.
func (r *resolver) resolutionOf(spec *intent.Policy, g *intent.Group) *resolution {
	st := r.policies[spec.ID]
	if st == nil {
		st = &policyState{resolutions: map[string]*resolution{}, tenant: r.tenantOf(spec)}
		st.tenant.policies[st] = struct{}{}
		r.policies[spec.ID] = st
	}
	if st.spec != spec || st.stale {
		st.spec, st.stale = spec, false
		st.size, st.perPort = sizeOf(spec), nil
		st.watched = st.watched || hasNames(spec)
		st.version++
		r.touch(st)
	}
	ingress, key := resolveIngress(spec, g)
	res := st.resolutions[key]
	if res == nil {
		r.lastID++
		res = &resolution{state: st, key: key, id: r.lastID}
		st.resolutions[key] = res
		r.touch(st)
	}
	if res.version != st.version {
		res.ingress, res.pairs = ingress, pairsOf(spec, ingress)
	}
	return res
}

// countShared counts the lists of pods that share an address with another one: each combines those
// of both.
func (r *resolver) countShared(of map[*localPod][]*localPod) {
	if len(of)+len(r.shared) == 0 {
		return
	}
	was := r.shared
	r.shared = map[*policyList]int{}
	for pod, others := range of {
		if l := pod.group.list; l != nil {
			r.shared[l]++
		}
		for _, other := range others {
			if l := other.group.list; l != nil {
				r.shared[l]++
			}
		}
	}
	count := func(l *policyList, d int) {
		for _, res := range l.resolutions {
			if res.shared += d; res.lists > 0 {
				r.touch(res.state)
			}
		}
	}
	for l, n := range was {
		if d := r.shared[l] - n; d != 0 {
			count(l, d)
		}
	}
	for l, n := range r.shared {
		if _, known := was[l]; !known {
			count(l, n)
		}
	}
}

// build builds the resolutions of a policy that are not up to date, and retains the selectors of
// all. It returns false, and stops, when the tenant takes more than its quota.
func (r *resolver) build(st *policyState) bool {
	for _, res := range st.resolutions {
		switch {
		case res.version != st.version:
			r.evaluate(res)
		case !res.retained:
			res.retained = true
			for _, s := range res.uses {
				r.sets.Retain(s, st.spec.ID, &st.tenant.tally)
			}
		}
		if res.version != st.version || !r.fits(st.tenant) {
			return false
		}
	}
	return true
}

// evaluate builds the policy of a resolution. If the tenant then takes more than its quota, it
// stops with the selectors so far, and the policy is not up to date.
func (r *resolver) evaluate(res *resolution) {
	b := &builder{resolver: r, state: res.state, spec: res.state.spec}
	policy := b.policy(res.ingress)
	r.release(res)
	res.uses, res.retained, res.version, res.state.perPort = b.uses, true, 0, b.perPort
	if !b.over {
		res.version = res.state.version
		res.become(policy)
	}
	res.state.watched = res.state.watched || res.usesRefused()
}

// refuse replaces a policy by one that isolates the same pods and permits nothing.
func (r *resolver) refuse(st *policyState) {
	for _, res := range st.resolutions {
		r.release(res)
		res.uses, res.version, st.perPort = nil, 0, nil
		res.become(&api.ContivPolicy{
			ID: st.spec.ID, Tier: st.spec.Tier, Priority: st.spec.Priority, Audit: st.spec.Audit,
			IsolatesIngress: st.spec.IsolatesIngress, IsolatesEgress: st.spec.IsolatesEgress,
		})
	}
}

// become sets the policy of a resolution. If it is equal to the one before, that stays.
func (r *resolution) become(policy *api.ContivPolicy) {
	if r.policy == nil || !equalPolicies(r.policy, policy) {
		r.policy = policy
	}
}

// recordResolved records that a policy was resolved anew, or no longer applies. It does nothing for policies
// that cannot have problems.
func (r *resolver) recordResolved(st *policyState) {
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

// dropLists drops the lists without groups, then the resolutions without lists. Their selectors go
// with Sets.DropIdle, unless they are needed again. It runs when all groups have their lists.
func (r *resolver) dropLists() {
	for _, l := range r.unlisted {
		if l.groups > 0 || r.lists[l.key] != l {
			continue
		}
		delete(r.lists, l.key)
		for _, res := range l.resolutions {
			if res.lists--; res.lists == 0 {
				r.dropResolution(res)
			} else {
				r.touch(res.state)
			}
		}
	}
	clear(r.unlisted)
	r.unlisted = r.unlisted[:0]
}

func (r *resolver) dropResolution(res *resolution) {
	r.release(res)
	st := res.state
	if delete(st.resolutions, res.key); len(st.resolutions) == 0 {
		delete(r.policies, st.spec.ID)
		r.leave(st)
	}
	r.touch(st)
}

// release releases the selectors of a resolution. It keeps what they are.
func (r *resolver) release(res *resolution) {
	if !res.retained {
		return
	}
	res.retained = false
	for _, s := range res.uses {
		r.sets.Release(s, res.state.spec.ID, &res.state.tenant.tally)
	}
}
