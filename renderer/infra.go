package renderer

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// ErrInfra is returned for infrastructure that would permit everything, or is no prefix.
var ErrInfra = errors.New("infrastructure is not valid")

// Infra is what passes whatever policy says. A renderer puts it ahead of the tables of
// pods and uplinks, and lets it make no sessions: what a pod answers passes its own
// input anyway. The zero value permits neighbour discovery and ICMP errors.
//
// A node's own addresses need no rule here: tables name them, as far as policy lets
// pods talk to their node.
type Infra struct {
	// NoNeighbours leaves ICMPv6 133 to 137 to policy. Only where IPv6 is not routed to
	// pods: without neighbour discovery a pod with a table is not found.
	NoNeighbours bool

	// NoErrors leaves ICMP errors to policy: type 3, 11 and 12, of ICMPv6 1 to 4. Path
	// MTU discovery of permitted flows ends with it, because they belong to no session.
	NoErrors bool

	// Addresses talk with every pod, both ways: the address that NAT gives to traffic
	// from a pod to itself through a service, or the sources of health checks.
	Addresses []netip.Prefix
}

// Check returns the infrastructure with its addresses masked, and IPv4 written as IPv4.
// It fails with ErrInfra when one of them is none, or holds every address of a family.
func (i Infra) Check() (Infra, error) {
	var out []netip.Prefix
	for _, p := range i.Addresses {
		switch {
		case !p.IsValid() || p.Addr().Zone() != "":
			return i, fmt.Errorf("%w: address %s", ErrInfra, p)
		case Unmapped(p).Bits() == 0:
			return i, fmt.Errorf("%w: %s would let everything pass", ErrInfra, p)
		}
		out = append(out, Unmapped(p))
	}
	i.Addresses = out
	return i, nil
}

// ICMPTypes is a range of ICMP types, with every code.
type ICMPTypes struct {
	Protocol    api.Protocol // ICMP or ICMPv6
	First, Last uint16
}

// Messages returns the ICMP messages that pass between all addresses, in order.
func (i Infra) Messages() (out []ICMPTypes) {
	if !i.NoNeighbours {
		out = append(out, ICMPTypes{api.ICMPv6, 133, 137})
	}
	if !i.NoErrors {
		out = append(out, ICMPTypes{api.ICMPv6, 1, 4}, ICMPTypes{api.ICMP, 3, 3}, ICMPTypes{api.ICMP, 11, 12})
	}
	return out
}

// Unmapped returns a prefix masked, and IPv4 in IPv6 notation as IPv4.
func Unmapped(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked()
}
