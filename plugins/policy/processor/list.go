package processor

import (
	"encoding/binary"

	"github.com/sluice-net/sluice/api"
)

// policyState is a policy that applies to local pods.
type policyState struct {
	spec        *api.PolicySpec
	stale       bool   // a family that it uses has other numbers
	version     uint64 // of what resolutions are made from
	names       *names // nil: the policy has no named ports
	resolutions map[string]*resolution
}

// resolution is a policy as it applies to groups whose named ports mean the same.
// It stays the same object, and so does its policy while the content is equal.
type resolution struct {
	state   *policyState
	key     string
	version uint64
	id      uint64            // of the content: another policy, another id
	policy  *api.ContivPolicy // immutable
	uses    []*selector
	lists   int // that hold it
}

// policyList is a sequence of policies; there is one for every sequence.
type policyList struct {
	key         string
	policies    []*api.ContivPolicy // immutable, sorted by ID
	resolutions []*resolution
	groups      int // that have it
}

func (l *policyList) contivPolicies() []*api.ContivPolicy {
	if l == nil {
		return nil
	}
	return l.policies
}

// listOf returns the list of the policies that apply to a group, nil for none.
func (p *Processor) listOf(g *localGroup) *policyList {
	specs := p.state.Policies(g.id)
	if len(specs) == 0 {
		return nil
	}
	resolutions := make([]*resolution, len(specs))
	key := make([]byte, 0, 8*len(specs))
	for i, spec := range specs {
		resolutions[i] = p.resolutionOf(spec, g.def)
		key = binary.LittleEndian.AppendUint64(key, resolutions[i].id)
	}
	if l, ok := p.lists[string(key)]; ok {
		return l
	}
	l := &policyList{key: string(key), resolutions: resolutions, policies: make([]*api.ContivPolicy, len(specs))}
	for i, r := range resolutions {
		l.policies[i] = r.policy
		r.lists++
	}
	p.lists[l.key] = l
	return l
}

// resolutionOf returns how a policy applies to a group, up to date.
func (p *Processor) resolutionOf(spec *api.PolicySpec, g *api.Group) *resolution {
	st := p.policies[spec.ID]
	if st == nil {
		st = &policyState{resolutions: map[string]*resolution{}}
		p.policies[spec.ID] = st
	}
	if st.spec != spec {
		p.releaseProbes(st.names)
		st.names = namesOf(spec)
	}
	if st.spec != spec || st.stale {
		st.spec, st.stale = spec, false
		st.version++
	}
	ingress, key := resolveIngress(spec, g)
	r := st.resolutions[key]
	if r == nil {
		r = &resolution{state: st, key: key}
		st.resolutions[key] = r
	}
	if r.version != st.version {
		r.version = st.version
		p.resolve(r, ingress)
	}
	return r
}

// resolve makes the policy of a resolution anew. When it comes out equal, it
// stays the same object.
func (p *Processor) resolve(r *resolution, ingress [][]api.PolicyPort) {
	b := builder{p: p, spec: r.state.spec}
	policy := b.policy(ingress)
	for _, s := range b.uses {
		s.users[policy.ID]++
	}
	for _, s := range r.uses {
		p.release(s, policy.ID)
	}
	r.uses = b.uses
	p.doubt(r)
	if st := r.state; st.names != nil {
		st.names.families = b.families
	}
	if r.policy != nil && equalPolicies(r.policy, policy) {
		return
	}
	p.lastID++
	r.id, r.policy = p.lastID, policy
}

// unlist counts one group less for a list.
func (p *Processor) unlist(l *policyList) {
	if l == nil {
		return
	}
	if l.groups--; l.groups == 0 {
		p.unlisted = append(p.unlisted, l)
	}
}

// dropUnused forgets the lists that no group has, then the resolutions that no
// list holds, then the selectors that no resolution uses. It runs when all
// groups have their lists, so nothing is dropped that is needed again.
func (p *Processor) dropUnused() {
	for _, l := range p.unlisted {
		if l.groups > 0 || p.lists[l.key] != l {
			continue
		}
		delete(p.lists, l.key)
		for _, r := range l.resolutions {
			if r.lists--; r.lists == 0 {
				p.dropResolution(r)
			}
		}
	}
	p.unlisted = p.unlisted[:0]
	p.dropIdle()
}

func (p *Processor) dropIdle() {
	for _, s := range p.idle {
		if len(s.users) == 0 && p.selectors[s.key] == s {
			p.deactivate(s)
		}
	}
	p.idle = p.idle[:0]
}

func (p *Processor) dropResolution(r *resolution) {
	id := r.state.spec.ID
	for _, s := range r.uses {
		p.release(s, id)
	}
	p.doubt(r)
	r.uses = nil
	delete(r.state.resolutions, r.key)
	if len(r.state.resolutions) == 0 {
		p.releaseProbes(r.state.names)
		delete(p.policies, id)
	}
}
