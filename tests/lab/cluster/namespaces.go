package cluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namespaceDrawer draws namespaces and what happens to them.
type namespaceDrawer struct {
	draws
	pods podDrawer
}

func namespaceName(i int) string { return fmt.Sprintf("ns-%d", i) }

func (d draws) anyNamespace() string { return namespaceName(d.Below(d.cfg.Namespaces, "namespace")) }

func (d namespaceDrawer) namespace(name string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: d.labels(namespaceKeys)}}
	if !d.one(4, "namespace lacks its name label") {
		ns.Labels[corev1.LabelMetadataName] = name
	}
	return ns
}

func (d namespaceDrawer) relabel(s *State) string {
	if len(s.Namespaces) == 0 {
		return d.add(s)
	}
	i := d.Below(len(s.Namespaces), "namespace")
	s.Namespaces[i] = d.namespace(s.Namespaces[i].Name)
	return "relabel namespace " + s.Namespaces[i].Name
}

// delete deletes a namespace with everything in it.
func (d namespaceDrawer) delete(s *State) string {
	name := d.anyNamespace()
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name })
	s.Pods = slices.DeleteFunc(s.Pods, func(p *corev1.Pod) bool { return p.Namespace == name })
	s.Policies = slices.DeleteFunc(s.Policies, func(p *networkingv1.NetworkPolicy) bool { return p.Namespace == name })
	return "delete namespace " + name
}

// forget takes away the object of a namespace only, as for an agent that receives the namespace's
// deletion first.
func (d namespaceDrawer) forget(s *State) string {
	name := d.anyNamespace()
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name })
	return "forget namespace " + name
}

// add adds a namespace that is missing, or else a pod to one.
func (d namespaceDrawer) add(s *State) string {
	for i := range d.cfg.Namespaces {
		name := namespaceName(i)
		if !slices.ContainsFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name }) {
			s.Namespaces = append(s.Namespaces, d.namespace(name))
			return "add namespace " + name
		}
	}
	return d.pods.add(s)
}
