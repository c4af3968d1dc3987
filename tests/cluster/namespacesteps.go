package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

func (b builder) relabelNamespace(s *State) string {
	if len(s.Namespaces) == 0 {
		return b.addNamespace(s)
	}
	i := b.Below(len(s.Namespaces), "namespace")
	s.Namespaces[i] = b.namespace(s.Namespaces[i].Name)
	return "relabel namespace " + s.Namespaces[i].Name
}

// deleteNamespace deletes a namespace with everything in it.
func (b builder) deleteNamespace(s *State) string {
	name := b.anyNamespace()
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name })
	s.Pods = slices.DeleteFunc(s.Pods, func(p *corev1.Pod) bool { return p.Namespace == name })
	s.Policies = slices.DeleteFunc(s.Policies, func(p *networkingv1.NetworkPolicy) bool { return p.Namespace == name })
	return "delete namespace " + name
}

// forgetNamespace takes away the object of a namespace only, as an agent sees it
// that hears of it first.
func (b builder) forgetNamespace(s *State) string {
	name := b.anyNamespace()
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name })
	return "forget namespace " + name
}

// addNamespace adds a namespace that is missing, or else a pod to one.
func (b builder) addNamespace(s *State) string {
	for i := range b.cfg.Namespaces {
		name := namespaceName(i)
		if !slices.ContainsFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name }) {
			s.Namespaces = append(s.Namespaces, b.namespace(name))
			return "add namespace " + name
		}
	}
	return b.addPod(s)
}
