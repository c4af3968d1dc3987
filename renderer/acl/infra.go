package acl

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// ErrInfra is returned by New for infrastructure that would permit everything, or
// is no prefix.
var ErrInfra = errors.New("infrastructure is not valid")

// Infra is what passes whatever policy says. Its rules stand ahead of the tables, on
// the output of pods and uplinks, and make no sessions: what a pod answers passes its
// own input anyway. The zero value permits neighbour discovery and ICMP errors.
//
// A node's own addresses need no rule here: tables name them, as far as policy lets
// pods talk to their node.
type Infra struct {
	// NoNeighbours leaves ICMPv6 133 to 137 to policy. Only where VPP does not route
	// IPv6 to pods: without neighbour discovery a pod with a table is not found.
	NoNeighbours bool

	// NoErrors leaves ICMP errors to policy: type 3, 11 and 12, of ICMPv6 1 to 4. Path
	// MTU discovery of permitted flows ends with it, because they belong to no session.
	NoErrors bool

	// Addresses talk with every pod, both ways: the address that NAT gives to traffic
	// from a pod to itself through a service, or the sources of health checks.
	Addresses []netip.Prefix
}

// check returns the addresses as entries can have them.
func (i Infra) check() (Infra, error) {
	var out []netip.Prefix
	for _, p := range i.Addresses {
		if p.IsValid() && p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if !p.IsValid() || p.Bits() == 0 || p.Addr().Zone() != "" {
			return i, fmt.Errorf("%w: address %s", ErrInfra, p)
		}
		out = append(out, p.Masked())
	}
	i.Addresses = out
	return i, nil
}

// entries of the infra ACL. Without any it matches nothing.
func (i Infra) entries() []entry {
	var out []entry
	icmp := func(all netip.Prefix, protocol api.Protocol, types ...ports) {
		for _, t := range types {
			out = append(out, entry{verdict: permit, src: all, dst: all, protocol: protocol, sport: t, dport: anyPorts})
		}
	}
	if !i.NoNeighbours {
		icmp(anyIPv6, api.ICMPv6, ports{133, 137})
	}
	if !i.NoErrors {
		icmp(anyIPv6, api.ICMPv6, ports{1, 4})
		icmp(anyIPv4, api.ICMP, ports{3, 3}, ports{11, 12})
	}
	for _, p := range i.Addresses {
		all := anyIPv4
		if p.Addr().Is6() {
			all = anyIPv6
		}
		out = append(out,
			entry{verdict: permit, src: p, dst: all, sport: anyPorts, dport: anyPorts},
			entry{verdict: permit, src: all, dst: p, sport: anyPorts, dport: anyPorts})
	}
	return out
}
