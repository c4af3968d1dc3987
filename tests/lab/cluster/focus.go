package cluster

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
)

// Focus returns the part of the flow space that some edits concern: the addresses of
// the pods that they touch, before and after, the edges of the blocks and the ports of
// pods and policies, with the neighbours of both. Edits of a namespace concern all
// pods that have its name.
func Focus(before, after State, edits []Edit) Space {
	var touched State
	for _, s := range []State{before, after} {
		for _, e := range edits {
			touched.Pods = append(touched.Pods, concernedPods(s, e)...)
			touched.Policies = append(touched.Policies, concernedPolicies(s, e)...)
			for _, o := range AdminPolicies(s) {
				if kindOf(o) == e.Kind && o.GetName() == e.Name {
					putAdmin(&touched, o)
				}
			}
		}
	}
	return FlowSpace(touched)
}

func concernedPods(s State, e Edit) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range s.Pods {
		if e.Kind == "Pod" && p.Namespace == e.Namespace && p.Name == e.Name || e.Kind == "Namespace" && p.Namespace == e.Name {
			out = append(out, p)
		}
	}
	return out
}

func concernedPolicies(s State, e Edit) []*networkingv1.NetworkPolicy {
	var out []*networkingv1.NetworkPolicy
	for _, p := range s.Policies {
		if e.Kind == "NetworkPolicy" && p.Namespace == e.Namespace && p.Name == e.Name {
			out = append(out, p)
		}
	}
	return out
}

// Near draws n flows of the space, most of them with an end and a port of a focus.
// It draws fewer only when no pod has an address.
func (s Space) Near(r Rand, n int, focus Space) []api.Flow {
	if len(s.Pods) == 0 {
		return nil
	}
	pods, all := families(s.Pods), families(slices.Concat(s.Pods, s.Others, focus.Pods, focus.Others))
	near := slices.Concat(focus.Pods, focus.Others)
	out := make([]api.Flow, 0, n)
	for len(out) < n {
		one := s.Pods[r.Below(len(s.Pods), "pod")]
		if len(near) > 0 && r.Below(4, "from focus") > 0 {
			one = near[r.Below(len(near), "address of focus")]
		}
		others := all[family(one)]
		if _, isPod := slices.BinarySearchFunc(s.Pods, one, netip.Addr.Compare); !isPod {
			others = pods[family(one)]
		}
		if len(others) == 0 {
			continue // no pod of its family
		}
		src, dst := one, others[r.Below(len(others), "peer")]
		if r.Below(2, "direction") == 1 {
			src, dst = dst, src
		}
		ports := s.Ports
		if len(focus.Ports) > 0 && r.Below(2, "port of focus") == 1 {
			ports = focus.Ports
		}
		out = append(out, flowOf(src, dst, ports, r.Below(flowsBetween(ports), "port")))
	}
	return out
}

// families divides addresses.
func families(addrs []netip.Addr) (out [2][]netip.Addr) {
	for _, a := range addrs {
		out[family(a)] = append(out[family(a)], a)
	}
	return out
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
