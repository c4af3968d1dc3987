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

// hidden explains in words why policies do not apply to the pod; it returns "" if they do. They
// apply to a pod that is being deleted until it has finished.
func (p *pod) hidden() string {
	switch {
	case p.obj.Spec.HostNetwork:
		return "runs in the host network"
	case p.obj.Status.Phase == corev1.PodSucceeded, p.obj.Status.Phase == corev1.PodFailed:
		return "has finished"
	}
	return ""
}

// named returns the numbers of a non-empty port name on this pod. Sidecars (init containers that
// always restart) count like containers; other init containers end before the pod serves.
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

// podAddresses returns the addresses in a pod's status. It drops invalid addresses and those that
// no pod can have.
func podAddresses(p *corev1.Pod) []netip.Addr {
	var texts []string
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	addrs := parseAddrs(append(texts, p.Status.PodIP))
	if p.Spec.HostNetwork {
		return addrs // they are those of its node
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

// notOfPods are addresses whose meaning differs from host to host: loopback (RFC 1122, RFC 4291),
// link-local (RFC 3927, RFC 4291) and limited broadcast (RFC 919). parseAddrs drops the unspecified
// address and multicast.
var notOfPods = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10"),
}

// isOwnNode reports whether the address belongs to the pod's node.
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

// parseAddrs parses the possible addresses of a pod or node, without duplicates, in order.
func parseAddrs(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		if a, err := parseAddr(t); err == nil && !a.IsUnspecified() && !a.IsMulticast() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
