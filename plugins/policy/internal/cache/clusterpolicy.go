package cache

import (
	"iter"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// policyKinds are the kinds of cluster-scoped policies, by what keys call them.
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
	if spec == nil { // where it stands is not known: the last good one is kept
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

// subjects finds cluster-scoped policies by whom they are for: first by the
// selector of namespaces, of which there are few, then by that of pods.
type subjects struct {
	scopes map[*intent.Selector]*subjectScope
	index  intent.SelectorIndex[*subjectScope] // of scopes, by the same selector
}

type subjectScope struct {
	policies intent.SelectorIndex[*intent.Policy]
}

func newSubjects() subjects { return subjects{scopes: map[*intent.Selector]*subjectScope{}} }

// add files a policy. One without a subject selects nothing and is not filed.
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

// remove takes a policy out; nil is none.
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

// of returns the scopes that a namespace is in; nil labels are those of one that is
// not known, which is in none.
func (s *subjects) of(namespace intent.Labels) iter.Seq[*subjectScope] {
	if namespace == nil {
		return func(func(*subjectScope) bool) {}
	}
	return s.index.Matching(namespace)
}

// append appends the policies that select pods with some labels.
func (s *subjects) append(dst []*intent.Policy, namespace, pods intent.Labels) []*intent.Policy {
	for sc := range s.of(namespace) {
		for spec := range sc.policies.Matching(pods) {
			dst = append(dst, spec)
		}
	}
	return dst
}

// SubjectsDiffer reports whether the subjects of cluster-scoped policies tell a
// namespace with some labels from one with others; nil labels are those of a
// namespace that is not known.
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
