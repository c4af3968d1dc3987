package api

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Action is what a rule does with the traffic it matches. Below the
// configurator there are only these two; Pass does not exist there.
type Action uint8

// The zero value is closed.
const (
	Deny Action = iota
	Permit
)

// String returns "deny" or "permit".
func (a Action) String() string {
	if a == Permit {
		return "permit"
	}
	return "deny"
}

// MarshalText renders the action as String does.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads the form that MarshalText writes.
func (a *Action) UnmarshalText(b []byte) error {
	switch string(b) {
	case "deny":
		*a = Deny
	case "permit":
		*a = Permit
	default:
		return fmt.Errorf("%.80q is not an action: want permit or deny", b)
	}
	return nil
}

// Protocol is an IANA protocol number, with zero (which IANA gives to IPv6
// hop-by-hop options, never a transport) standing for any protocol.
type Protocol uint8

// Protocols with a name. Kubernetes policies can name TCP, UDP and SCTP.
const (
	AnyProtocol Protocol = 0
	ICMP        Protocol = 1
	TCP         Protocol = 6
	UDP         Protocol = 17
	ICMPv6      Protocol = 58
	SCTP        Protocol = 132
)

// HasPorts reports whether the protocol carries port numbers.
func (p Protocol) HasPorts() bool { return p == TCP || p == UDP || p == SCTP }

// String returns the lower-case name, or the number of a protocol without one.
func (p Protocol) String() string {
	switch p {
	case AnyProtocol:
		return "any"
	case ICMP:
		return "icmp"
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case ICMPv6:
		return "icmpv6"
	case SCTP:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}

// ParseProtocol reads a protocol name in any case, or its number.
func ParseProtocol(s string) (Protocol, error) {
	for _, p := range []Protocol{AnyProtocol, ICMP, TCP, UDP, ICMPv6, SCTP} {
		if strings.EqualFold(s, p.String()) {
			return p, nil
		}
	}
	if n, err := strconv.ParseUint(s, 10, 8); err == nil {
		return Protocol(n), nil
	}
	return 0, fmt.Errorf("%.80q is not a protocol: want tcp, udp, sctp, icmp, icmpv6 or a number", s)
}

// MarshalText renders the protocol as String does.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what ParseProtocol reads.
func (p *Protocol) UnmarshalText(b []byte) (err error) {
	*p, err = ParseProtocol(string(b))
	return err
}

// PortRange is an inclusive range of ports; the zero value is any port. It is
// canonical: "any" is only ever the zero value (build ranges with Ports).
type PortRange struct{ First, Last uint16 }

// AnyPort is the range of every port.
var AnyPort PortRange

// Ports returns the range first..last; 0..65535 becomes AnyPort.
func Ports(first, last uint16) PortRange {
	if first == 0 && last == 65535 {
		return AnyPort
	}
	return PortRange{First: first, Last: last}
}

// Port returns the range of one port, 1 to 65535.
func Port(p uint16) PortRange { return PortRange{First: p, Last: p} }

// IsAny reports whether the range holds every port.
func (r PortRange) IsAny() bool { return r == AnyPort }

// Bounds returns the first and the last port, 0 and 65535 for any.
func (r PortRange) Bounds() (first, last uint16) {
	if r.IsAny() {
		return 0, 65535
	}
	return r.First, r.Last
}

// Contains reports whether the port is in the range.
func (r PortRange) Contains(port uint16) bool {
	first, last := r.Bounds()
	return first <= port && port <= last
}

// Compare orders narrow ranges before wide ones, then by first port, so that a
// range sorts before every other range that contains it.
func (r PortRange) Compare(o PortRange) int {
	rf, rl := r.Bounds()
	of, ol := o.Bounds()
	return cmp.Or(cmp.Compare(rl-rf, ol-of), cmp.Compare(rf, of))
}

// String returns "any", "80" or "8000-8010".
func (r PortRange) String() string {
	switch {
	case r.IsAny():
		return "any"
	case r.First == r.Last:
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// MarshalText renders the range as String does.
func (r PortRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the form that MarshalText writes.
func (r *PortRange) UnmarshalText(b []byte) error {
	if string(b) == "any" {
		*r = AnyPort
		return nil
	}
	lo, hi, isRange := strings.Cut(string(b), "-")
	if !isRange {
		hi = lo
	}
	first, err1 := strconv.ParseUint(lo, 10, 16)
	last, err2 := strconv.ParseUint(hi, 10, 16)
	if err1 != nil || err2 != nil || first > last {
		return fmt.Errorf("%.80q is not a port range: want any, 80 or 8000-8010", b)
	}
	*r = Ports(uint16(first), uint16(last))
	return nil
}

// SetID names an address set. It is derived from what the set means (see
// NewSetID), never from the order of events, so that rules that name sets are
// the same whatever history led to them. Members of sets are told to renderers
// by Txn.UpdateSet.
type SetID uint64

// NodeSet is the well-known set of all addresses of the agent's own node.
const NodeSet SetID = 1

// String returns the ID in hexadecimal, "node" for the node set.
func (s SetID) String() string {
	if s == NodeSet {
		return "node"
	}
	return fmt.Sprintf("%016x", uint64(s))
}

// MarshalText renders the ID as String does.
func (s SetID) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the form that MarshalText writes.
func (s *SetID) UnmarshalText(b []byte) error {
	if string(b) == "node" {
		*s = NodeSet
		return nil
	}
	n, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil {
		return fmt.Errorf("%.80q is not a set: want 16 hexadecimal digits or node", b)
	}
	*s = SetID(n)
	return nil
}

// Net is one side of a rule: any address of either family (the zero value), one
// prefix, or the members of one address set. At most one field is set. A prefix
// is masked; 0.0.0.0/0 is any IPv4 address only, ::/0 any IPv6 address only.
type Net struct {
	Prefix netip.Prefix `json:"prefix,omitzero"`
	Set    SetID        `json:"set,omitzero"`
}

// PrefixNet returns the net of one prefix, masked.
func PrefixNet(p netip.Prefix) Net { return Net{Prefix: p.Masked()} }

// AddrNet returns the net of one address.
func AddrNet(a netip.Addr) Net { return Net{Prefix: netip.PrefixFrom(a, a.BitLen())} }

// SetNet returns the net of an address set.
func SetNet(s SetID) Net { return Net{Set: s} }

// IsAny reports whether the net holds every address of both families.
func (n Net) IsAny() bool { return n == Net{} }

// Contains reports whether the address is in the net. inSet answers for sets.
func (n Net) Contains(a netip.Addr, inSet func(SetID, netip.Addr) bool) bool {
	switch {
	case n.Set != 0:
		return inSet(n.Set, a)
	case n.Prefix.IsValid():
		return n.Prefix.Contains(a)
	}
	return true
}

// Compare orders sets first (by ID), then prefixes (long before short, IPv4
// before IPv6, then by address), then any. A net sorts before every net that is
// known to contain it; a set is only known to be contained in any.
func (n Net) Compare(o Net) int {
	return cmp.Or(cmp.Compare(n.rank(), o.rank()), cmp.Compare(n.Set, o.Set),
		cmp.Compare(o.Prefix.Bits(), n.Prefix.Bits()), n.Prefix.Addr().Compare(o.Prefix.Addr()))
}

func (n Net) rank() int {
	switch {
	case n.Set != 0:
		return 0
	case n.Prefix.IsValid():
		return 1
	}
	return 2
}

// String returns "any", the prefix, or "set:" and the ID.
func (n Net) String() string {
	switch {
	case n.Set != 0:
		return "set:" + n.Set.String()
	case n.Prefix.IsValid():
		return n.Prefix.String()
	}
	return "any"
}

// Flow is the first packet of a flow, after service translation. Ports are zero
// for protocols without ports.
type Flow struct {
	Src      netip.Addr `json:"src"`
	Dst      netip.Addr `json:"dst"`
	Protocol Protocol   `json:"protocol"`
	SrcPort  uint16     `json:"srcPort,omitzero"`
	DstPort  uint16     `json:"dstPort,omitzero"`
}

// Reverse returns the flow of the replies.
func (f Flow) Reverse() Flow {
	return Flow{Src: f.Dst, Dst: f.Src, Protocol: f.Protocol, SrcPort: f.DstPort, DstPort: f.SrcPort}
}

// String returns "src:port -> dst:port/protocol", without ports where there are none.
func (f Flow) String() string {
	if !f.Protocol.HasPorts() {
		return fmt.Sprintf("%s -> %s/%s", f.Src, f.Dst, f.Protocol)
	}
	return fmt.Sprintf("%s -> %s/%s", netip.AddrPortFrom(f.Src, f.SrcPort), netip.AddrPortFrom(f.Dst, f.DstPort), f.Protocol)
}
