package renderer

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// ErrInfra is returned by Infra.Check for an address that is not a prefix or covers a whole family.
var ErrInfra = errors.New("invalid exempt traffic")

// Infra is the exempt traffic: what passes regardless of policy. A renderer permits it before the
// tables of pods and uplinks, and creates no sessions for it: replies of a pod pass the input of
// the pod anyway. The zero value permits neighbour discovery and ICMP errors.
//
// A node's own addresses need no rule here. The tables name them, as far as policy lets pods talk
// to their node.
type Infra struct {
	// NoNeighbours subjects ICMPv6 types 133 to 137 to policy. Set it only where IPv6 is not routed
	// to pods: without neighbour discovery, a pod with a table is unreachable.
	NoNeighbours bool

	// NoErrors subjects ICMP errors to policy: types 3, 11 and 12, and ICMPv6 types 1 to 4. It
	// breaks path MTU discovery of permitted flows, because ICMP errors belong to no session.
	NoErrors bool

	// Addresses may exchange all traffic with every pod, in both directions. Examples are the
	// address to which NAT translates traffic from a pod to itself through a service, and the
	// sources of health checks.
	Addresses []netip.Prefix
}

// Check returns a copy with masked addresses and IPv4-mapped IPv6 addresses unmapped. It returns
// ErrInfra when an address is invalid or covers a whole family.
func (i Infra) Check() (Infra, error) {
	var out []netip.Prefix
	for _, p := range i.Addresses {
		switch {
		case !p.IsValid() || p.Addr().Zone() != "":
			return i, fmt.Errorf("%w: address %s", ErrInfra, p)
		case Unmapped(p).Bits() == 0:
			return i, fmt.Errorf("%w: %s would exempt all traffic of a family", ErrInfra, p)
		}
		out = append(out, Unmapped(p))
	}
	i.Addresses = out
	return i, nil
}

// ICMPTypes is a range of ICMP types; it includes every code.
type ICMPTypes struct {
	Protocol    api.Protocol // ICMP or ICMPv6
	First, Last uint16
}

// Messages returns the ICMP messages to permit between all addresses, in order.
func (i Infra) Messages() (out []ICMPTypes) {
	if !i.NoNeighbours {
		out = append(out, ICMPTypes{api.ICMPv6, 133, 137})
	}
	if !i.NoErrors {
		out = append(out, ICMPTypes{api.ICMPv6, 1, 4}, ICMPTypes{api.ICMP, 3, 3}, ICMPTypes{api.ICMP, 11, 12})
	}
	return out
}

// Unmapped returns the masked prefix, with an IPv4-mapped IPv6 prefix as IPv4.
func Unmapped(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked()
}
