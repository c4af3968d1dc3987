package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"
)

// Edit is the new state of one object, independent of the earlier one. Edits can be left out or put
// into another order, which makes sequences of them easy to shrink.
type Edit struct {
	Kind            string // of the object, as manifests call it
	Namespace, Name string
	Object          metav1.Object // from now on; nil: there is none
}

// String names the object: "Pod shop/web".
func (e Edit) String() string {
	if e.Namespace == "" {
		return e.Kind + " " + e.Name
	}
	return e.Kind + " " + e.Namespace + "/" + e.Name
}

// Manifest prints the edit of a state for readers: what becomes of the object, and its manifest.
func (e Edit) Manifest(before State) string {
	verb := "is new"
	switch {
	case e.Object == nil:
		return fmt.Sprintf("--- # %s is gone\n", e)
	case e.Has(before):
		verb = "is changed"
	}
	text, err := yaml.Marshal(e.Object)
	if err != nil {
		text = []byte(err.Error())
	}
	return fmt.Sprintf("--- # %s %s\n%s", e, verb, text)
}

func (e Edit) compare(o Edit) int {
	return cmp.Or(cmp.Compare(e.Kind, o.Kind), cmp.Compare(e.Namespace, o.Namespace), cmp.Compare(e.Name, o.Name))
}

// Between returns what leads from one state to another. Objects that are the same
// pointer have not changed; others have.
func Between(before, after State) []Edit {
	return slices.Concat(
		changed("Node", before.Nodes, after.Nodes),
		changed("Namespace", before.Namespaces, after.Namespaces),
		changed("Pod", before.Pods, after.Pods),
		changed("NetworkPolicy", before.Policies, after.Policies),
		changed(adminKind, before.AdminPolicies, after.AdminPolicies),
		changed(baselineKind, before.BaselinePolicies, after.BaselinePolicies),
		changed(clusterKind, before.ClusterPolicies, after.ClusterPolicies),
	)
}

// object is a pointer to an object of Kubernetes.
type object interface {
	comparable
	metav1.Object
}

// changed returns the edits of objects of one kind, sorted by name.
func changed[T object](kind string, before, after []T) []Edit {
	var out []Edit
	for _, o := range after {
		if !slices.Contains(before, o) {
			out = append(out, Edit{kind, o.GetNamespace(), o.GetName(), o})
		}
	}
	for _, o := range before {
		same := func(a T) bool { return a.GetNamespace() == o.GetNamespace() && a.GetName() == o.GetName() }
		if !slices.ContainsFunc(after, same) {
			out = append(out, Edit{kind, o.GetNamespace(), o.GetName(), nil})
		}
	}
	slices.SortFunc(out, Edit.compare)
	return out
}

// Edited returns a state after some edits, in their order. The state before stays as
// it is.
func Edited(s State, edits []Edit) State {
	for _, e := range edits {
		switch e.Kind {
		case "Node":
			s.Nodes = edited[*corev1.Node](s.Nodes, e)
		case "Namespace":
			s.Namespaces = edited[*corev1.Namespace](s.Namespaces, e)
		case "Pod":
			s.Pods = edited[*corev1.Pod](s.Pods, e)
		case "NetworkPolicy":
			s.Policies = edited[*networkingv1.NetworkPolicy](s.Policies, e)
		case adminKind:
			s.AdminPolicies = edited[*v1alpha1.AdminNetworkPolicy](s.AdminPolicies, e)
		case baselineKind:
			s.BaselinePolicies = edited[*v1alpha1.BaselineAdminNetworkPolicy](s.BaselinePolicies, e)
		case clusterKind:
			s.ClusterPolicies = edited[*v1alpha2.ClusterNetworkPolicy](s.ClusterPolicies, e)
		}
	}
	return s
}

func edited[T object](list []T, e Edit) []T {
	out := slices.DeleteFunc(slices.Clone(list), func(o T) bool { return o.GetNamespace() == e.Namespace && o.GetName() == e.Name })
	if o, ok := e.Object.(T); ok {
		out = append(out, o)
	}
	return out
}

// Has reports whether a state has the object of an edit.
func (e Edit) Has(s State) bool {
	same := func(o metav1.Object) bool { return o.GetNamespace() == e.Namespace && o.GetName() == e.Name }
	for _, o := range Objects(s) {
		if o.Kind == e.Kind && same(o.Object) {
			return true
		}
	}
	return false
}

// Objects lists all objects of a state, as the edits that make it from nothing.
func Objects(s State) []Edit { return Between(State{}, s) }

// Copy returns a state that shares nothing with another one.
func Copy(s State) State {
	return State{
		Namespaces: copied(s.Namespaces), Pods: copied(s.Pods), Policies: copied(s.Policies), Nodes: copied(s.Nodes),
		AdminPolicies: copied(s.AdminPolicies), BaselinePolicies: copied(s.BaselinePolicies), ClusterPolicies: copied(s.ClusterPolicies),
	}
}

func copied[T interface{ DeepCopy() T }](list []T) []T {
	var out []T
	for _, o := range list {
		out = append(out, o.DeepCopy())
	}
	return out
}

// Moves returns the addresses that are not of the same pod on the same node in two
// states, or of no pod in both.
func Moves(before, after State) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	old, now := placesOf(before), placesOf(after)
	for a, place := range old {
		out[a] = now[a] != place
	}
	for a, place := range now {
		out[a] = old[a] != place
	}
	return out
}

// placesOf says where the addresses of pods are.
func placesOf(s State) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, i := range holders(s.Pods) {
		p := s.Pods[i]
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				out[a.Unmap()] += p.Namespace + "/" + p.Name + " on " + p.Spec.NodeName + " "
			}
		}
	}
	return out
}
