package session

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// place is what a session rule matches within a section: the addresses of the peer, and one port of
// the side that accepts the connection; port 0 means any. VPP has no port ranges.
type place struct {
	peer netip.Prefix
	port uint16
}

// rules are the rules of a section: of one table, one transport, one family and, in a table that
// several pods share, one address of a pod. At most one of them has the place top; without it VPP
// permits everything that no rule matches.
type rules map[place]api.Action

// tops are the places of the rules that match everything, by family.
var tops = [2]place{
	{peer: netip.PrefixFrom(netip.IPv4Unspecified(), 0)},
	{peer: netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
}

func (p place) isTop() bool { return p.port == 0 && p.peer.Bits() == 0 }

// halves splits the addresses of a place that has more than one.
func (p place) halves() (low, high place) {
	bits := p.peer.Bits() + 1
	low = place{netip.PrefixFrom(p.peer.Addr(), bits), p.port}
	b := p.peer.Addr().AsSlice()
	b[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	a, _ := netip.AddrFromSlice(b)
	return low, place{netip.PrefixFrom(a, bits), p.port}
}

// hides reports whether VPP, when it looks for the parent of a new rule wide, would mistake p for
// it although p does not contain it. VPP looks up only the first address. So a narrower rule hides
// a wider one with the same first address, unless it is for another port.
func (p place) hides(wide place) bool {
	return p.peer.Addr() == wide.peer.Addr() && p.peer.Bits() > wide.peer.Bits() && (p.port == 0 || p.port == wide.port)
}

// compare orders wide places before narrow ones, then by address and port.
func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.peer.Bits(), o.peer.Bits()), p.peer.Addr().Compare(o.peer.Addr()), cmp.Compare(p.port, o.port))
}

// sorted returns the places in an order in which they can be added.
func (r rules) sorted() []place { return slices.SortedFunc(maps.Keys(r), place.compare) }

// otherwise returns the action for everything that only top matches.
func (r rules) otherwise(family int) api.Action {
	if a, ok := r[tops[family]]; ok {
		return a
	}
	return api.Permit
}

// opposite returns the other action.
func opposite(a api.Action) api.Action {
	if a == api.Permit {
		return api.Deny
	}
	return api.Permit
}

// decide returns the decision of our rules for an attempt. All rules for a port that contain the
// address have the same action. Without one, the rules for any port decide, and then the rest.
func (r rules) decide(peer netip.Addr, port uint16) api.Action {
	for _, of := range [2]uint16{port, 0} {
		for bits := peer.BitLen(); bits > 0; bits-- {
			p, err := peer.Prefix(bits)
			if err != nil {
				continue // a prefix cannot be longer than an address
			}
			if a, ok := r[place{p, of}]; ok {
				return a
			}
		}
	}
	family := familyOf(peer)
	if a, ok := r[place{tops[family].peer, port}]; ok && port != 0 {
		return a
	}
	return r.otherwise(family)
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
