package classify

import (
	"fmt"
	"net/netip"

	"go.fd.io/govpp/binapi/acl_types"

	"github.com/sluice-net/sluice/api"
)

// Action is what an ACL rule does with a packet.
type Action uint8

// The actions have the numbers of the wire format.
const (
	Deny          Action = Action(acl_types.ACL_ACTION_API_DENY)
	Permit        Action = Action(acl_types.ACL_ACTION_API_PERMIT)
	PermitReflect Action = Action(acl_types.ACL_ACTION_API_PERMIT_REFLECT) // permit and remember the flow
)

// String returns "deny", "permit" or "permit+reflect".
func (a Action) String() string {
	switch a {
	case Deny:
		return "deny"
	case PermitReflect:
		return "permit+reflect"
	default: // what VPP does not know permits, too
		return "permit"
	}
}

// MarshalText renders the action as String does.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Range is an inclusive range of ports, ICMP types or ICMP codes. Unlike api.PortRange its zero
// value is the single value 0, as on the wire.
type Range struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

func (r Range) contains(v uint16) bool { return r.First <= v && v <= r.Last }

func (r Range) isAny() bool { return r == Range{0, 65535} }

// Rule is one rule of an ACL. Both prefixes are masked and of one family; the rule matches that
// family only. For protocol AnyProtocol ranges and flags are ignored; for ICMP and ICMPv6 SrcPorts
// is the type and DstPorts the code; protocols without ports count as port 0. Flags are used for
// TCP only.
type Rule struct {
	Action     Action       `json:"action"`
	Src        netip.Prefix `json:"src"`
	Dst        netip.Prefix `json:"dst"`
	Protocol   api.Protocol `json:"protocol"`
	SrcPorts   Range        `json:"srcPorts"`
	DstPorts   Range        `json:"dstPorts"`
	FlagsMask  uint8        `json:"flagsMask,omitzero"`
	FlagsValue uint8        `json:"flagsValue,omitzero"`
}

// String returns for example "ipv4 permit+reflect src 10.0.0.0/8 dst 0.0.0.0/0 proto tcp sport
// 0-65535 dport 80-80 tcpflags 2 mask 18".
func (r Rule) String() string {
	family := "ipv4"
	if r.Src.Addr().Is6() {
		family = "ipv6"
	}
	s := fmt.Sprintf("%s %s src %s dst %s proto %s sport %d-%d dport %d-%d", family, r.Action, r.Src, r.Dst,
		r.Protocol, r.SrcPorts.First, r.SrcPorts.Last, r.DstPorts.First, r.DstPorts.Last)
	if r.FlagsMask|r.FlagsValue != 0 {
		s += fmt.Sprintf(" tcpflags %d mask %d", r.FlagsValue, r.FlagsMask)
	}
	return s
}
