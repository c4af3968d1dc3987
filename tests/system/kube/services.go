package main

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// vip is an address of a service, with a port.
type vip struct {
	netip.AddrPort
	protocol corev1.Protocol
	node     bool // the address is the node's: what is no service goes there
}

// translations returns where packets of pods to services go, in the form for VPP: for addresses of
// a cluster, and node ports at the own node's addresses. Services without a ready endpoint have
// none.
func translations(services []*corev1.Service, endpoints []*discoveryv1.EndpointSlice, node []netip.Addr) map[vip][]netip.AddrPort {
	out := map[vip][]netip.AddrPort{}
	byService := map[[2]string][]*discoveryv1.EndpointSlice{}
	for _, e := range endpoints {
		key := [2]string{e.Namespace, e.Labels[discoveryv1.LabelServiceName]}
		byService[key] = append(byService[key], e)
	}
	for _, s := range services {
		for _, p := range s.Spec.Ports {
			backends := backendsOf(p, byService[[2]string{s.Namespace, s.Name}])
			add := func(a netip.Addr, port int32, own bool) {
				to := slices.DeleteFunc(slices.Clone(backends), func(b netip.AddrPort) bool { return b.Addr().Is6() != a.Is6() })
				if len(to) > 0 && port != 0 {
					out[vip{netip.AddrPortFrom(a, uint16(port)), cmp.Or(p.Protocol, corev1.ProtocolTCP), own}] = to
				}
			}
			for _, text := range s.Spec.ClusterIPs {
				if a, err := netip.ParseAddr(text); err == nil { // "None" is no address
					add(a, p.Port, false)
				}
			}
			for _, a := range node {
				add(a, p.NodePort, true)
			}
		}
	}
	return out
}

// backendsOf returns the ready endpoints of a port, sorted.
func backendsOf(p corev1.ServicePort, of []*discoveryv1.EndpointSlice) (out []netip.AddrPort) {
	for _, e := range of {
		for _, port := range e.Ports {
			if port.Port == nil || port.Name == nil || *port.Name != p.Name || port.Protocol == nil || *port.Protocol != cmp.Or(p.Protocol, corev1.ProtocolTCP) {
				continue
			}
			for _, one := range e.Endpoints {
				if ready := one.Conditions.Ready; ready != nil && !*ready || len(one.Addresses) == 0 {
					continue
				}
				if a, err := netip.ParseAddr(one.Addresses[0]); err == nil {
					out = append(out, netip.AddrPortFrom(a, uint16(*port.Port)))
				}
			}
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}
