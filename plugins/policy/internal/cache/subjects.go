package cache

import (
	"iter"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"
)

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

// scopesOf returns the scopes of a namespace. nil labels mean an unknown namespace, which is in no scope.
func (s *subjects) scopesOf(namespace intent.Labels) iter.Seq[*subjectScope] {
	if namespace == nil {
		return func(func(*subjectScope) bool) {}
	}
	return s.index.Matching(namespace)
}

// append appends the policies that select pods with the given labels.
func (s *subjects) append(dst []*intent.Policy, namespace, pods intent.Labels) []*intent.Policy {
	for sc := range s.scopesOf(namespace) {
		for spec := range sc.policies.Matching(pods) {
			dst = append(dst, spec)
		}
	}
	return dst
}
