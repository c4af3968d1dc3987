package conformance

import (
	"fmt"
	"net/netip"
)

// Network returns a network of an administrator's policy in a family. Suites that are
// recorded in IPv4 name ::/0 beside 0.0.0.0/0, for clusters of the other family: the
// two change places, so that each still matches what it matched.
func (f Family) Network(p netip.Prefix) (netip.Prefix, error) {
	switch {
	case !p.Addr().Is6() || p.Bits() > 0:
		return f.Prefix(p)
	case f == IPv4:
		return p, nil
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0), nil
}

// network is one of an administrator's policy, which can be changed.
type network struct {
	text string
	set  func(string)
}

// admin copies the admin policies of a step, moves their networks, and counts these.
func (a Addressing) admin(s *Step) (networks int, err error) {
	s.AdminPolicies = copies(s.AdminPolicies)
	s.BaselinePolicies = copies(s.BaselinePolicies)
	s.ClusterPolicies = copies(s.ClusterPolicies)
	list := networksOf(*s)
	for _, n := range list {
		p, err := netip.ParsePrefix(n.text)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if p, err = a.Blocks.Network(p); err != nil {
			return 0, err
		}
		n.set(p.String())
	}
	return len(list), nil
}

func copies[T interface{ DeepCopy() T }](list []T) []T {
	out := make([]T, len(list))
	for i, o := range list {
		out[i] = o.DeepCopy()
	}
	return out
}

// networksOf returns every network of the admin policies. Only egress has some.
func networksOf(s Step) []network {
	var out []network
	for _, p := range s.AdminPolicies {
		for _, r := range p.Spec.Egress {
			for _, peer := range r.To {
				out = append(out, networks(peer.Networks)...)
			}
		}
	}
	for _, p := range s.BaselinePolicies {
		for _, r := range p.Spec.Egress {
			for _, peer := range r.To {
				out = append(out, networks(peer.Networks)...)
			}
		}
	}
	for _, p := range s.ClusterPolicies {
		for _, r := range p.Spec.Egress {
			for _, peer := range r.To {
				out = append(out, networks(peer.Networks)...)
			}
		}
	}
	return out
}

func networks[T ~string](list []T) []network {
	out := make([]network, len(list))
	for i := range list {
		out[i] = network{string(list[i]), func(text string) { list[i] = T(text) }}
	}
	return out
}
