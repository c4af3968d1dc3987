package oracle

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
)

// pod is a pod of the state with its addresses parsed.
type pod struct {
	id    api.PodID
	obj   *corev1.Pod
	addrs []netip.Addr // in the order of the status
}

// hidden says why policies do not see the pod, in words, or "" when they do. A
// pod that is being deleted is seen until it has finished.
func (p *pod) hidden() string {
	switch {
	case p.obj.Spec.HostNetwork:
		return "runs in the host network"
	case p.obj.Status.Phase == corev1.PodSucceeded, p.obj.Status.Phase == corev1.PodFailed:
		return "has finished"
	}
	return ""
}

// named returns the numbers that a port name, which is not empty, stands for on
// this pod. Sidecars
// (init containers that restart always) count like containers; other init
// containers are gone before the pod serves.
func (p *pod) named(name string, protocol api.Protocol) []uint16 {
	var numbers []uint16
	collect := func(c corev1.Container) {
		for _, port := range c.Ports {
			number, ok := portNumber(port.ContainerPort)
			proto, known := protocolOf(port.Protocol, true)
			if ok && known && port.Name == name && proto == protocol {
				numbers = append(numbers, number)
			}
		}
	}
	for _, c := range p.obj.Spec.Containers {
		collect(c)
	}
	for _, c := range p.obj.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			collect(c)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// podAddresses returns the addresses of a pod's status. What is not an address
// is left out, and what no pod can have.
func podAddresses(p *corev1.Pod) []netip.Addr {
	var texts []string
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	addrs := parseAddrs(append(texts, p.Status.PodIP))
	if p.Spec.HostNetwork {
		return addrs // they are its node's
	}
	hosts := []string{p.Status.HostIP}
	for _, ip := range p.Status.HostIPs {
		hosts = append(hosts, ip.IP)
	}
	ofNode := parseAddrs(hosts)
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		special := slices.ContainsFunc(notOfPods, func(block netip.Prefix) bool { return block.Contains(a) })
		return special || slices.Contains(ofNode, a)
	})
}

// notOfPods are addresses that are another host's on each host, or of none: loopback (RFC 1122, RFC
// 4291), link-local (RFC 3927, RFC 4291) and limited broadcast (RFC 919). parseAddrs leaves out the
// unspecified address and multicast.
var notOfPods = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10"),
}

// isOwnNode reports whether the address is one of the node that the pod runs on.
func (o *Oracle) isOwnNode(p *pod, addr netip.Addr) bool {
	texts := []string{p.obj.Status.HostIP}
	for _, ip := range p.obj.Status.HostIPs {
		texts = append(texts, ip.IP)
	}
	if n := o.nodes[p.obj.Spec.NodeName]; n != nil && p.obj.Spec.NodeName != "" {
		for _, a := range n.Status.Addresses {
			texts = append(texts, a.Address)
		}
	}
	return slices.Contains(parseAddrs(texts), addr)
}

// parseAddrs parses what can be the address of a pod or node, without
// repetition, in order.
func parseAddrs(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		if a, err := parseAddr(t); err == nil && !a.IsUnspecified() && !a.IsMulticast() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
