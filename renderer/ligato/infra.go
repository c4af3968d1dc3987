package ligato

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrInfra is returned by New for infrastructure that would permit everything, or is no
// prefix.
var ErrInfra = errors.New("infrastructure is not valid")

// Infra is what passes whatever policy says. Its rules stand ahead of those of every
// table and make no sessions: what a pod answers passes its own input anyway. The zero
// value permits neighbour discovery and ICMP errors.
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

// check returns the addresses as rules can have them.
func (i Infra) check() (Infra, error) {
	var out []netip.Prefix
	for _, p := range i.Addresses {
		if !p.IsValid() || p.Addr().Zone() != "" || unmapped(p).Bits() == 0 {
			return i, fmt.Errorf("%w: address %s", ErrInfra, p)
		}
		out = append(out, unmapped(p))
	}
	i.Addresses = out
	return i, nil
}

// rules returns what stands ahead of every table.
func (i Infra) rules() (out []wireRule) {
	var messages []*wireICMP
	if !i.NoNeighbours {
		messages = append(messages, icmp(true, 133, 137))
	}
	if !i.NoErrors {
		messages = append(messages, icmp(true, 1, 4), icmp(false, 3, 3), icmp(false, 11, 12))
	}
	for _, m := range messages {
		all := everywhere(m.V6)
		out = append(out, wireRule{Action: permitAction, IPRule: wireIPRule{ICMP: m}}.rule(all, all))
	}
	for _, p := range i.Addresses {
		all := everywhere(p.Addr().Is6())
		out = append(out, wireRule{Action: permitAction}.rule(p, all), wireRule{Action: permitAction}.rule(all, p))
	}
	return out
}

// everywhere is the prefix of all addresses of a family.
func everywhere(v6 bool) netip.Prefix {
	if v6 {
		return anySides[1][0]
	}
	return anySides[0][0]
}
