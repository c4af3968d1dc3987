package cache

import (
	"iter"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// policyKinds maps the kinds of cluster-scoped policies in keys to policy kinds.
var policyKinds = map[model.Kind]api.PolicyKind{
	model.KindAdminNetworkPolicy:         api.AdminNetworkPolicy,
	model.KindBaselineAdminNetworkPolicy: api.BaselineAdminNetworkPolicy,
	model.KindClusterNetworkPolicy:       api.ClusterNetworkPolicy,
}

func clusterPolicyID(id model.ID) api.PolicyID {
	return api.PolicyID{Kind: policyKinds[id.Kind], Name: id.Name}
}

func (x *policies) applyCluster(id model.ID, m *model.ClusterPolicy, w update) []api.Problem {
	policyID := clusterPolicyID(id)
	if m == nil {
		x.dropCluster(policyID, w)
		return nil
	}
	spec, problems := x.selectors.parseClusterPolicy(id, m)
	if spec == nil { // its place in the order of evaluation is unknown: keep the last valid version
		if p := x.cluster[policyID]; p != nil {
			p.epoch = w.epoch
		}
		return problems
	}
	p := x.cluster[policyID]
	if p == nil {
		p = &policy{}
		x.cluster[policyID] = p
	}
	p.epoch = w.epoch
	old := p.spec
	if old != nil && equalSpecs(old, spec) {
		x.selectors.releasePolicy(spec)
		return problems
	}
	p.spec = spec
	x.subjects.add(spec)
	x.subjects.remove(old)
	w.PolicyChanged(old, spec)
	x.selectors.releasePolicy(old)
	return problems
}

func (x *policies) dropCluster(id api.PolicyID, w update) {
	p := x.cluster[id]
	if p == nil {
		return
	}
	delete(x.cluster, id)
	x.subjects.remove(p.spec)
	w.PolicyChanged(p.spec, nil)
	x.selectors.releasePolicy(p.spec)
}

// subjects indexes cluster-scoped policies by subject: first by namespace selector, of which there
// are few, then by pod selector.
type subjects struct {
	scopes map[*intent.Selector]*subjectScope
	index  intent.SelectorIndex[*subjectScope] // scopes by namespace selector
}

type subjectScope struct {
	policies intent.SelectorIndex[*intent.Policy]
}

func newSubjects() subjects { return subjects{scopes: map[*intent.Selector]*subjectScope{}} }

// add indexes a policy. A policy without a subject selects nothing and is not indexed.
func (s *subjects) add(spec *intent.Policy) {
	if spec.Subject == nil {
		return
	}
	sc := s.scopes[spec.SubjectNamespaces]
	if sc == nil {
		sc = &subjectScope{}
		s.scopes[spec.SubjectNamespaces] = sc
		s.index.Add(spec.SubjectNamespaces, sc)
	}
	sc.policies.Add(spec.Subject, spec)
}

// remove removes a policy from the index; nil is ignored.
func (s *subjects) remove(spec *intent.Policy) {
	if spec == nil || spec.Subject == nil {
		return
	}
	sc := s.scopes[spec.SubjectNamespaces]
	sc.policies.Remove(spec.Subject, spec)
	if sc.policies.Len() == 0 {
		delete(s.scopes, spec.SubjectNamespaces)
		s.index.Remove(spec.SubjectNamespaces, sc)
	}
}

// of returns the scopes of a namespace. nil labels mean an unknown namespace, which is in no scope.
func (s *subjects) of(namespace intent.Labels) iter.Seq[*subjectScope] {
	if namespace == nil {
		return func(func(*subjectScope) bool) {}
	}
	return s.index.Matching(namespace)
}

// append appends the policies that select pods with the given labels.
func (s *subjects) append(dst []*intent.Policy, namespace, pods intent.Labels) []*intent.Policy {
	for sc := range s.of(namespace) {
		for spec := range sc.policies.Matching(pods) {
			dst = append(dst, spec)
		}
	}
	return dst
}

// SubjectsDiffer reports whether the subjects of cluster-scoped policies distinguish a namespace
// with labels a from one with labels b; nil labels mean an unknown namespace.
func (c *Cache) SubjectsDiffer(a, b intent.Labels) bool {
	in := map[*subjectScope]bool{}
	for sc := range c.policies.subjects.of(a) {
		in[sc] = true
	}
	n := 0
	for sc := range c.policies.subjects.of(b) {
		if !in[sc] {
			return true
		}
		n++
	}
	return n != len(in)
}
