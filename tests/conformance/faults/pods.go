package faults

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
)

var podFaults = []Fault{
	option("a pod's own node is not exempt", "39", oracle.AllowNodeTraffic(false)),
	wrongAnswer("every node is exempt, not only the pod's own", "40", func(o *oracle.Oracle, s cluster.State, f api.Flow) bool {
		return isNode(s, f.Src) || isNode(s, f.Dst) || o.Allowed(f)
	}),
	misread("pods in the host network are selected", "41", pods(func(p *corev1.Pod) {
		if p.Spec.HostNetwork { // a pod that is not has none of its node's addresses
			p.Spec.HostNetwork, p.Status.HostIP, p.Status.HostIPs = false, "", nil
		}
	})),
	misread("finished pods are selected", "42", pods(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })),
	misread("terminating pods are not selected", "43", func(s *cluster.State) {
		s.Pods = slices.DeleteFunc(s.Pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	}),
}

func isNode(s cluster.State, a netip.Addr) bool {
	return slices.ContainsFunc(s.Nodes, func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Status.Addresses, func(na corev1.NodeAddress) bool { return na.Address == a.String() })
	})
}

// histories are faults of what a change leaves behind.
var histories = []Fault{
	late("new labels of a namespace are not followed", "18", func(before, now cluster.State) cluster.State {
		now.Namespaces = keep(before.Namespaces, now.Namespaces, func(ns, old *corev1.Namespace) { old.DeepCopyInto(ns) })
		return now
	}),
	late("new labels of a pod are not followed", "18", func(before, now cluster.State) cluster.State {
		return keepPods(before, now, func(p, old *corev1.Pod) { p.Labels = old.Labels })
	}),
	late("a new address of a pod is not followed", "44, 45", func(before, now cluster.State) cluster.State {
		return keepPods(before, now, func(p, old *corev1.Pod) {
			if len(old.Status.PodIPs) > 0 {
				p.Status.PodIP, p.Status.PodIPs = old.Status.PodIP, old.Status.PodIPs
			}
		})
	}),
	late("a changed policy is not followed", "48", func(before, now cluster.State) cluster.State {
		now.Policies = keep(before.Policies, now.Policies, func(np, old *networkingv1.NetworkPolicy) { old.DeepCopyInto(np) })
		return now
	}),
	late("a deleted policy goes on", "80", func(before, now cluster.State) cluster.State {
		now.Policies = undeleted(before.Policies, now.Policies)
		return now
	}),
	late("policies of a deleted namespace go on", "17", func(before, now cluster.State) cluster.State {
		now.Policies = slices.Clone(now.Policies)
		for _, old := range before.Policies {
			gone := !slices.ContainsFunc(now.Policies, func(np *networkingv1.NetworkPolicy) bool { return np.Namespace == old.Namespace })
			known := slices.ContainsFunc(now.Namespaces, func(ns *corev1.Namespace) bool { return ns.Name == old.Namespace })
			if gone && !known {
				now.Policies = append(now.Policies, old)
			}
		}
		return now
	}),
}

// find returns the object of a list that has the name of another one, or nil.
func find[T interface {
	comparable
	GetNamespace() string
	GetName() string
}](list []T, like T) (found T) {
	for _, o := range list {
		if o.GetNamespace() == like.GetNamespace() && o.GetName() == like.GetName() {
			return o
		}
	}
	return found
}

// keepPods lets every pod keep something of what it was before.
func keepPods(before, now cluster.State, change func(p, old *corev1.Pod)) cluster.State {
	now.Pods = keep(before.Pods, now.Pods, change)
	return now
}
