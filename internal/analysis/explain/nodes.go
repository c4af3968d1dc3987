package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// OnNodes returns the pods with all addresses of their nodes as host addresses: those that
// any pod of the node names and that policies see, and those in more. A pod's own node is exempt at
// each of them (SEMANTICS D2); agents receive the same addresses. A pod for which nodeOf returns
// false keeps its own. The pods are not changed.
func OnNodes(pods []*corev1.Pod, nodeOf func(*corev1.Pod) (string, bool), more map[string][]string) []*corev1.Pod {
	known := map[string][]string{}
	for _, p := range pods {
		name, ok := nodeOf(p)
		if !ok || p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, ip := range hostAddresses(p) {
			if !slices.Contains(known[name], ip) {
				known[name] = append(known[name], ip)
			}
		}
	}
	for name, addrs := range more {
		known[name] = append(known[name], addrs...)
	}
	out := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		out[i] = p
		if name, ok := nodeOf(p); ok {
			out[i] = withHost(p, known[name])
		}
	}
	return out
}

// HostAddresses returns what the objects of nodes say of the nodes of pods that policies see.
func (c Cluster) HostAddresses() (out []string) {
	used := map[string]bool{}
	for _, p := range c.Pods {
		if IsLive(p) {
			used[p.GetNodeName()] = true
		}
	}
	for _, n := range c.Nodes {
		if used[n.GetName()] {
			out = append(out, n.GetAddresses()...)
		}
	}
	return out
}

func hostAddresses(p *corev1.Pod) []string {
	var out []string
	if p.Status.HostIP != "" {
		out = append(out, p.Status.HostIP)
	}
	for _, ip := range p.Status.HostIPs {
		out = append(out, ip.IP)
	}
	return out
}

// withHost returns the pod, or one that has the addresses that it lacks.
func withHost(p *corev1.Pod, addrs []string) *corev1.Pod {
	has, hosts := hostAddresses(p), slices.Clip(p.Status.HostIPs)
	for _, a := range addrs {
		if !slices.Contains(has, a) {
			hosts = append(hosts, corev1.HostIP{IP: a})
		}
	}
	if len(hosts) == len(p.Status.HostIPs) {
		return p
	}
	out := *p
	out.Status.HostIPs = hosts
	return &out
}
