package conformance

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Family is a family of addresses.
type Family uint8

// The families. Suites are recorded in IPv4.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Addressing says which addresses a suite is replayed with: those that it has, their
// images in IPv6, or both.
//
// The image of a.b.c.d is fd00:c0ff::a.b.c.d, and that of a.b.c.d/n has n+96 bits; that
// of 0.0.0.0/0 is ::/0. An address is in a block exactly when its image is in the
// block's image, so the suite's verdicts hold for the images. Where a pod has both, a
// verdict holds for both families as long as no block is in sight: selectors do not see
// addresses, and a block matches its own family only (row 33). The networks of
// administrators are blocks; nodes have addresses as pods have them.
type Addressing struct {
	Name   string
	Pods   []Family // of pods, nodes and externals, the first one first
	Blocks Family   // of the blocks and networks of policies
}

// Addressings lists all that a suite is replayed with.
var Addressings = []Addressing{
	{Name: "IPv4", Pods: []Family{IPv4}, Blocks: IPv4},
	{Name: "IPv6", Pods: []Family{IPv6}, Blocks: IPv6},
	{Name: "both, IPv4 blocks", Pods: []Family{IPv4, IPv6}, Blocks: IPv4},
	{Name: "both, IPv6 blocks", Pods: []Family{IPv6, IPv4}, Blocks: IPv6},
}

// base is the prefix of 96 bits below which the images are.
var base = netip.MustParseAddr("fd00:c0ff::").As16()

const baseBits = 96

// Addr returns the address in a family.
func (f Family) Addr(a netip.Addr) (netip.Addr, error) {
	switch {
	case !a.Is4():
		return a, fmt.Errorf("%w: %s is not an IPv4 address", ErrFormat, a)
	case f == IPv4:
		return a, nil
	}
	image, four := base, a.As4()
	copy(image[12:], four[:])
	return netip.AddrFrom16(image), nil
}

// Prefix returns a block, or a hole of one, in a family.
func (f Family) Prefix(p netip.Prefix) (netip.Prefix, error) {
	a, err := f.Addr(p.Addr())
	switch {
	case err != nil || f == IPv4:
		return p, err
	case p.Bits() == 0:
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0), nil
	}
	return netip.PrefixFrom(a, baseBits+p.Bits()), nil
}

// Step returns a step with these addresses. Every probe becomes one per family, in the
// order of Pods. The step itself stays as it is.
func (a Addressing) Step(s Step) (Step, error) {
	out := s
	var err error
	if out.Cluster, err = a.cluster(s.Cluster); err != nil {
		return s, err
	}
	out.NetworkPolicies = make([]*networkingv1.NetworkPolicy, len(s.NetworkPolicies))
	blocks := 0
	for i, np := range s.NetworkPolicies {
		np = np.DeepCopy()
		n, err := a.policy(np)
		if err != nil {
			return s, fmt.Errorf("NetworkPolicy %s/%s: %w", np.Namespace, np.Name, err)
		}
		blocks += n
		out.NetworkPolicies[i] = np
	}
	n, err := a.admin(&out)
	if err != nil {
		return s, err
	}
	blocks += n
	out.Probes, err = a.probes(s.Probes, blocks > 0)
	return out, err
}

// probes asks every probe in every family.
func (a Addressing) probes(probes []Probe, blocks bool) ([]Probe, error) {
	out := make([]Probe, 0, len(probes)*len(a.Pods))
	for _, p := range probes {
		for _, f := range a.Pods {
			q := p
			var err error
			if q.Flow.Src, err = f.Addr(p.Flow.Src); err != nil {
				return nil, err
			}
			if q.Flow.Dst, err = f.Addr(p.Flow.Dst); err != nil {
				return nil, err
			}
			q.Unstated = blocks && f != a.Blocks
			out = append(out, q)
		}
	}
	return out, nil
}

// policy moves the blocks of a policy, and counts them.
func (a Addressing) policy(np *networkingv1.NetworkPolicy) (blocks int, err error) {
	for _, peer := range peersOf(np) {
		if peer.IPBlock == nil {
			continue
		}
		blocks++
		for _, text := range append([]*string{&peer.IPBlock.CIDR}, pointers(peer.IPBlock.Except)...) {
			p, err := netip.ParsePrefix(*text)
			if err != nil {
				return 0, fmt.Errorf("%w: %w", ErrFormat, err)
			}
			if p, err = a.Blocks.Prefix(p); err != nil {
				return 0, err
			}
			*text = p.String()
		}
	}
	return blocks, nil
}

// peersOf returns every peer of a policy.
func peersOf(np *networkingv1.NetworkPolicy) []*networkingv1.NetworkPolicyPeer {
	var out []*networkingv1.NetworkPolicyPeer
	for _, r := range np.Spec.Ingress {
		out = append(out, pointers(r.From)...)
	}
	for _, r := range np.Spec.Egress {
		out = append(out, pointers(r.To)...)
	}
	return out
}

// pointers returns pointers to the elements of a list.
func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// cluster moves pods, nodes and externals. An External has one address, the first.
// Services stay: probes are of pods.
func (a Addressing) cluster(c *Cluster) (*Cluster, error) {
	out := *c
	out.Pods, out.Nodes, out.Externals = nil, nil, nil
	for _, p := range c.Pods {
		p = p.DeepCopy()
		if err := a.pod(&p.Status); err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		out.Pods = append(out.Pods, p)
	}
	for _, n := range c.Nodes {
		n = n.DeepCopy()
		if err := a.node(&n.Status); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
		out.Nodes = append(out.Nodes, n)
	}
	for _, e := range c.Externals {
		var err error
		if e.Addr, err = a.Pods[0].Addr(e.Addr); err != nil {
			return nil, fmt.Errorf("external %s: %w", e.Name, err)
		}
		out.Externals = append(out.Externals, e)
	}
	return &out, nil
}

func (a Addressing) pod(s *corev1.PodStatus) error {
	if len(s.PodIPs) > 1 || len(s.HostIPs) > 1 {
		return fmt.Errorf("%w: more than one address was recorded", ErrFormat)
	}
	addrs, err := a.texts(s.PodIP)
	if err != nil {
		return err
	}
	hosts, err := a.texts(s.HostIP)
	if err != nil {
		return err
	}
	s.PodIPs, s.HostIPs = nil, nil
	for _, text := range addrs {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: text})
	}
	for _, text := range hosts {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: text})
	}
	if len(addrs) > 0 {
		s.PodIP = addrs[0]
	}
	if len(hosts) > 0 {
		s.HostIP = hosts[0]
	}
	return nil
}

func (a Addressing) node(s *corev1.NodeStatus) error {
	recorded := s.Addresses
	s.Addresses = nil
	for _, n := range recorded {
		texts := []string{n.Address}
		if n.Type == corev1.NodeInternalIP || n.Type == corev1.NodeExternalIP {
			var err error
			if texts, err = a.texts(n.Address); err != nil {
				return err
			}
		}
		for _, text := range texts {
			s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: n.Type, Address: text})
		}
	}
	return nil
}

// texts returns an address in every family; none for none.
func (a Addressing) texts(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	var out []string
	for _, f := range a.Pods {
		moved, err := f.Addr(addr)
		if err != nil {
			return nil, err
		}
		out = append(out, moved.String())
	}
	return out, nil
}
