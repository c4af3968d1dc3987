package processor

import (
	"encoding/binary"

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
	unlisted []*policyList  // may have lost their last user
	lastID   uint64         // of a resolution
	resolved []*policyState // see takeResolved

	waiting []*localGroup // oldest first
	drafts  map[draftKey]*draft
	turn    uint64 // number of the current Flush
	left    int    // work
}

func newResolver(state PolicyState, sets *membership.Sets, local *localPods) *resolver {
	return &resolver{state: state, sets: sets, local: local, policies: map[api.PolicyID]*policyState{}, lists: map[string]*policyList{}, drafts: map[draftKey]*draft{}}
}

// renumber records that the numbers of a named port of a policy changed.
func (r *resolver) renumber(id api.PolicyID) {
	if st := r.policies[id]; st != nil {
		st.stale = true
		r.local.markSelected(st.spec)
	}
}

// list gives a group a list.
func (r *resolver) list(g *localGroup, list *policyList) {
	if list == g.list {
		return
	}
	r.hold(list)
	r.unlist(g.list)
	g.list = list
	r.local.markPods(g)
}

// listOf returns the list of the policies of a wait, all of whose selectors are evaluated, or nil
// if there are none. With outdated, some of them may be of earlier versions.
func (r *resolver) listOf(w *wait, outdated bool) *policyList {
	if len(w.parts) == 0 {
		return nil
	}
	resolutions := make([]*resolution, len(w.parts))
	key := make([]byte, 0, 8*len(w.parts))
	for i := range w.parts {
		resolutions[i] = r.resolutionOf(&w.parts[i], outdated)
		key = binary.LittleEndian.AppendUint64(key, resolutions[i].id)
	}
	if l, ok := r.lists[string(key)]; ok {
		return l
	}
	l := &policyList{key: string(key), resolutions: resolutions, policies: make([]*api.ContivPolicy, len(w.parts))}
	for i, res := range resolutions {
		l.policies[i] = res.policy
		res.lists++
	}
	r.lists[l.key] = l
	return l
}

// resolutionOf returns the resolution of a policy for a group.
func (r *resolver) resolutionOf(p *part, outdated bool) *resolution {
	if res := r.current(p); res != nil {
		return res
	}
	if outdated {
		return r.oldResolutionOf(p)
	}
	st := r.policies[p.spec.ID]
	if st == nil {
		st = &policyState{resolutions: map[string]*resolution{}}
		r.policies[p.spec.ID] = st
	}
	if st.spec != p.spec || st.stale {
		st.spec, st.stale = p.spec, false
		st.watched = st.watched || hasNames(p.spec)
		st.version++
	}
	res := r.resolve(st, p)
	st.resolutions[p.key] = res
	st.watched = st.watched || res.usesRefused()
	r.note(st)
	return res
}

// oldResolutionOf returns the resolution of a version of a policy that is outdated. It is no part
// of the policy's state.
func (r *resolver) oldResolutionOf(p *part) *resolution {
	if p.draft.old == nil {
		p.draft.old = r.resolve(&policyState{spec: p.spec}, p)
	}
	return p.draft.old
}

// current returns the resolution of a policy if it is up to date.
func (r *resolver) current(p *part) *resolution {
	st := r.policies[p.spec.ID]
	if st == nil || st.spec != p.spec || st.stale {
		return nil
	}
	if res := st.resolutions[p.key]; res != nil && res.version == st.version {
		return res
	}
	return nil
}

// built returns the complete policy of a part, all of whose selectors are active.
func (r *resolver) built(p *part) (*builder, *api.ContivPolicy) {
	if d := p.draft; d != nil && d.builtIn == r.turn {
		return d.built, d.policy
	}
	b := &builder{sets: r.sets, spec: p.spec, left: noBound}
	return b, b.policy(p.ingress)
}

// resolve builds the policy of a resolution. If it is equal to the one before, that stays.
func (r *resolver) resolve(st *policyState, p *part) *resolution {
	b, policy := r.built(p)
	for _, s := range b.uses {
		s.Retain(policy.ID)
	}
	st.perPort = b.perPort
	before := st.resolutions[p.key]
	if before != nil && equalPolicies(before.policy, policy) {
		r.release(before)
		before.uses, before.version = b.uses, st.version
		return before
	}
	r.lastID++
	return &resolution{state: st, key: p.key, version: st.version, id: r.lastID, policy: policy, uses: b.uses}
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

// hold adds a user to a list, and unlist removes one; nil is ignored.
func (r *resolver) hold(l *policyList) {
	if l != nil {
		l.users++
	}
}

func (r *resolver) unlist(l *policyList) {
	if l == nil {
		return
	}
	if l.users--; l.users == 0 {
		r.unlisted = append(r.unlisted, l)
	}
}

// dropUnused drops the lists without users, then the resolutions without lists, then selectors
// without resolutions, until it has done so much work. It runs when all groups have their lists or
// wait, so it drops nothing that is needed again.
func (r *resolver) dropUnused(work int) {
	for _, l := range r.unlisted {
		if l.users > 0 || r.lists[l.key] != l {
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
	r.sets.DropIdle(work)
}

func (r *resolver) dropResolution(res *resolution) {
	r.release(res)
	st, id := res.state, res.state.spec.ID
	if st.resolutions[res.key] != res {
		return // it was replaced
	}
	delete(st.resolutions, res.key)
	if len(st.resolutions) == 0 {
		delete(r.policies, id)
	}
	r.note(st)
}

// release releases the selectors of a resolution.
func (r *resolver) release(res *resolution) {
	for _, s := range res.uses {
		r.sets.Release(s, res.state.spec.ID)
	}
	res.uses = nil
}
