package session

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// place is what a session rule matches within a section: the addresses of the peer, and one
// port of the side that is connected to; port 0 is any. VPP has no ranges.
type place struct {
	peer netip.Prefix
	port uint16
}

// rules are the rules of a section: of one table, one transport, one family and, in a table
// that several pods share, one address of a pod. At most one of them has the place top; where
// none has, VPP permits what no rule is about.
type rules map[place]api.Action

// tops are the places of the rules that match everything, by family.
var tops = [2]place{
	{peer: netip.PrefixFrom(netip.IPv4Unspecified(), 0)},
	{peer: netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
}

func (p place) isTop() bool { return p.port == 0 && p.peer.Bits() == 0 }

// halves divides the addresses of a place that has more than one.
func (p place) halves() (low, high place) {
	bits := p.peer.Bits() + 1
	low = place{netip.PrefixFrom(p.peer.Addr(), bits), p.port}
	b := p.peer.Addr().AsSlice()
	b[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	a, _ := netip.AddrFromSlice(b)
	return low, place{netip.PrefixFrom(a, bits), p.port}
}

// hides reports whether VPP, looking for the place of a rule, would take one that is there for
// one that holds it although it does not. It looks with the first address alone: so a
// narrower rule hides a wider one that has the same first address, and is no other port's.
func (p place) hides(wide place) bool {
	return p.peer.Addr() == wide.peer.Addr() && p.peer.Bits() > wide.peer.Bits() && (p.port == 0 || p.port == wide.port)
}

// compare orders wide places before narrow ones, and then by address and port.
func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.peer.Bits(), o.peer.Bits()), p.peer.Addr().Compare(o.peer.Addr()), cmp.Compare(p.port, o.port))
}

// sorted returns places in the order in which they can be added.
func (r rules) sorted() []place { return slices.SortedFunc(maps.Keys(r), place.compare) }

// otherwise returns what becomes of what no rule but top is about.
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

// decide returns what rules of ours say of an attempt. Those for a port that hold the address say
// the same; where there are none those for any port do, and then the rest.
func (r rules) decide(peer netip.Addr, port uint16) api.Action {
	for _, of := range [2]uint16{port, 0} {
		for bits := peer.BitLen(); bits > 0; bits-- {
			p, err := peer.Prefix(bits)
			if err != nil {
				continue // no prefix of an address has more bits than it
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
