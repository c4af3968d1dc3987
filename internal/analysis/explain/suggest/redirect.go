package suggest

import (
	"cmp"
	"slices"
)

// Selector finds pods of a namespace by their labels, for a service or a controller.
type Selector struct {
	Namespace string
	Labels    map[string]string
}

// smallestFirst sorts changes of the state; of those that get round no administrator, the ones last
// that redirect something.
func (t trials) smallestFirst(list []Change) []Change {
	list = smallestFirst(t.oracle, list)
	rank := func(c Change) int {
		if c.any(t.redirects) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.evasion(), b.evasion()), cmp.Compare(rank(a), rank(b)))
	})
	return list
}

// redirects reports whether a change of a pod's labels may move what is no policy: traffic of a
// service, or the pod from one controller to another. A pod may belong to its controller by every
// label that it has.
func (t trials) redirects(c Change) bool {
	if c.Kind != LabelPod {
		return false
	}
	pod := t.oracle.Pod(c.Pod)
	if pod == nil || len(c.Unset) > 0 {
		return true
	}
	for key, value := range c.Set {
		if _, has := pod.Labels[key]; has {
			return true
		}
		if slices.ContainsFunc(t.selectors, func(s Selector) bool { return s.Namespace == c.Pod.Namespace && s.Labels[key] == value }) {
			return true
		}
	}
	return false
}
