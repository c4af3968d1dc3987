package cluster

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
)

// Space is the flows of a state on which evaluations could differ: between the
// addresses of pods, and between those and nodes, the edges of all blocks and
// the world, on the edges of all ports, with every protocol that matters.
type Space struct {
	Pods   []netip.Addr // of pods in their own network, sorted
	Others []netip.Addr // sorted
	Ports  []uint16     // sorted
}

// FlowSpace returns the space of a state.
func FlowSpace(s State) Space {
	pods, others := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for a := range addressesOf(s.Pods) {
		pods[a] = true
	}
	for _, text := range otherAddresses(s) {
		if a, err := netip.ParseAddr(text); err == nil && !a.IsUnspecified() && !pods[a.Unmap()] {
			others[a.Unmap()] = true
		}
	}
	for _, text := range slices.Concat(prefixes(s.Policies), networks(s)) {
		for _, a := range edges(text) {
			if !pods[a] {
				others[a] = true
			}
		}
	}
	return Space{Pods: sorted(pods), Others: sorted(others), Ports: ports(s)}
}

// Flows returns all flows of the space of a state, in a fixed order. Their
// number grows with the square of the pods: for larger states draw some.
func Flows(s State) []api.Flow { return slices.Collect(FlowSpace(s).All()) }

// All yields every flow of the space. One end at least is a pod.
func (s Space) All() iter.Seq[api.Flow] {
	return func(yield func(api.Flow) bool) {
		for src, dst := range s.pairs() {
			for i := range flowsBetween(s.Ports) {
				if !yield(flowOf(src, dst, s.Ports, i)) {
					return
				}
			}
		}
	}
}

// Random draws n flows.
func (s Space) Random(r Rand, n int) []api.Flow {
	var out []api.Flow
	for len(s.Pods) > 0 && len(out) < n {
		src := s.Pods[r.Below(len(s.Pods), "pod")]
		dst := s.peer(src, r.Below(len(s.Pods)+len(s.Others), "peer"))
		if r.Below(2, "direction") == 1 {
			src, dst = dst, src
		}
		out = append(out, flowOf(src, dst, s.Ports, r.Below(flowsBetween(s.Ports), "port")))
	}
	return out
}

// peer returns an address of the family of a, at or after an index; a itself has
// it, so there is one.
func (s Space) peer(a netip.Addr, i int) netip.Addr {
	n := len(s.Pods) + len(s.Others)
	for ; ; i++ {
		b := netip.Addr{}
		if j := i % n; j < len(s.Pods) {
			b = s.Pods[j]
		} else {
			b = s.Others[j-len(s.Pods)]
		}
		if a.Is4() == b.Is4() {
			return b
		}
	}
}

func (s Space) pairs() iter.Seq2[netip.Addr, netip.Addr] {
	return func(yield func(src, dst netip.Addr) bool) {
		for _, p := range s.Pods {
			for _, q := range s.Pods {
				if p.Is4() == q.Is4() && !yield(p, q) {
					return
				}
			}
			for _, o := range s.Others {
				if p.Is4() == o.Is4() && (!yield(p, o) || !yield(o, p)) {
					return
				}
			}
		}
	}
}

// portProtocols are the protocols that have ports.
var portProtocols = []api.Protocol{api.TCP, api.UDP, api.SCTP}

// flowsBetween returns how many flows there are between two addresses.
func flowsBetween(ports []uint16) int { return 1 + len(portProtocols)*len(ports) }

// flowOf returns the i-th flow between two addresses: the first is ICMP.
func flowOf(src, dst netip.Addr, ports []uint16, i int) api.Flow {
	if i == 0 && dst.Is6() {
		return api.Flow{Src: src, Dst: dst, Protocol: api.ICMPv6}
	}
	if i == 0 {
		return api.Flow{Src: src, Dst: dst, Protocol: api.ICMP}
	}
	i--
	return api.Flow{Src: src, Dst: dst, Protocol: portProtocols[i/len(ports)], SrcPort: 40000, DstPort: ports[i%len(ports)]}
}

// Size returns how many flows the space has.
func (s Space) Size() int {
	pods, others := families(s.Pods), families(s.Others)
	pairs := 0
	for f := range pods {
		pairs += len(pods[f]) * (len(pods[f]) + 2*len(others[f]))
	}
	return pairs * flowsBetween(s.Ports)
}

// otherAddresses returns the addresses of nodes, of pods that do not hold
// theirs, and two of the world.
func otherAddresses(s State) []string {
	out := []string{"198.51.100.7", "2001:db8:ffff::7"}
	for _, p := range s.Pods {
		for _, ip := range p.Status.PodIPs {
			out = append(out, ip.IP)
		}
	}
	for _, n := range s.Nodes {
		for _, a := range n.Status.Addresses {
			out = append(out, a.Address)
		}
	}
	return out
}

// prefixes returns the texts of all blocks and excepts.
func prefixes(policies []*networkingv1.NetworkPolicy) []string {
	var out []string
	collect := func(peers []networkingv1.NetworkPolicyPeer) {
		for _, p := range peers {
			if p.IPBlock != nil {
				out = append(append(out, p.IPBlock.CIDR), p.IPBlock.Except...)
			}
		}
	}
	for _, np := range policies {
		for _, r := range np.Spec.Ingress {
			collect(r.From)
		}
		for _, r := range np.Spec.Egress {
			collect(r.To)
		}
	}
	return out
}

// edges returns the first and last address of a prefix and their neighbours outside of it, without
// the unspecified address, which no flow has.
func edges(text string) []netip.Addr {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return nil
	}
	first := p.Masked().Addr()
	bytes := first.AsSlice()
	for i := p.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	var out []netip.Addr
	for _, a := range []netip.Addr{first.Prev(), first, last, last.Next()} {
		if a = a.Unmap(); a.IsValid() && !a.IsUnspecified() {
			out = append(out, a)
		}
	}
	return out
}

// ports returns every port that a policy or a container mentions and its
// neighbours.
func ports(s State) []uint16 {
	out := map[uint16]bool{}
	add := func(n int32) {
		for _, p := range []int32{n - 1, n, n + 1} {
			if p >= 1 && p <= 65535 {
				out[uint16(p)] = true
			}
		}
	}
	add(1)
	for _, p := range s.Pods {
		for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
			addContainerPorts(c, add)
		}
	}
	for _, np := range s.Policies {
		for _, r := range np.Spec.Ingress {
			addPolicyPorts(r.Ports, add)
		}
		for _, r := range np.Spec.Egress {
			addPolicyPorts(r.Ports, add)
		}
	}
	adminPorts(s, add)
	return slices.Sorted(maps.Keys(out))
}

func addContainerPorts(c corev1.Container, add func(int32)) {
	for _, p := range c.Ports {
		add(p.ContainerPort)
	}
}

func addPolicyPorts(ports []networkingv1.NetworkPolicyPort, add func(int32)) {
	for _, p := range ports {
		if p.Port != nil && p.Port.Type == intstr.Int {
			add(p.Port.IntVal)
		}
		if p.EndPort != nil {
			add(*p.EndPort)
		}
	}
}

func sorted(set map[netip.Addr]bool) []netip.Addr {
	return slices.SortedFunc(maps.Keys(set), netip.Addr.Compare)
}
