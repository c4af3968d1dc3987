package vswitch

import (
	"fmt"
	"net/netip"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/sluice-net/sluice/api"
)

// RuleAction is what an ACL rule does with a packet.
type RuleAction uint8

// The actions have the numbers that they have on the wire.
const (
	RuleDeny          RuleAction = RuleAction(acl_types.ACL_ACTION_API_DENY)
	RulePermit        RuleAction = RuleAction(acl_types.ACL_ACTION_API_PERMIT)
	RulePermitReflect RuleAction = RuleAction(acl_types.ACL_ACTION_API_PERMIT_REFLECT) // permit and remember the flow
)

// String returns "deny", "permit" or "permit+reflect".
func (a RuleAction) String() string {
	switch a {
	case RuleDeny:
		return "deny"
	case RulePermitReflect:
		return "permit+reflect"
	default: // what VPP does not know permits, too
		return "permit"
	}
}

// MarshalText renders the action as String does.
func (a RuleAction) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Range is an inclusive range of ports, ICMP types or ICMP codes. Unlike
// api.PortRange its zero value is the single value 0, as on the wire.
type Range struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

func (r Range) contains(v uint16) bool { return r.First <= v && v <= r.Last }

func (r Range) isAny() bool { return r == Range{0, 65535} }

// Rule is one rule of an ACL. Both prefixes are masked and of one family; the
// rule matches that family only. For protocol AnyProtocol ranges and flags are
// ignored; for ICMP and ICMPv6 SrcPorts is the type and DstPorts the code;
// protocols without ports count as port 0. Flags are looked at for TCP only.
type Rule struct {
	Action     RuleAction   `json:"action"`
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

// rulesFromWire checks and converts the rules of a message. VPP accepts actions
// that it does not know and permits then, which is a quirk; otherwise they are
// refused, because an unknown action must not open anything.
func rulesFromWire(wire []acl_types.ACLRule, quirks bool) ([]Rule, govpp.VPPApiError) {
	rules := make([]Rule, len(wire))
	for i := range wire {
		var rv govpp.VPPApiError
		if rules[i], rv = ruleFromWire(&wire[i]); rv != 0 {
			return nil, rv
		}
		if rules[i].Action > RulePermitReflect && !quirks {
			return nil, govpp.INVALID_VALUE
		}
	}
	return rules, 0
}

func ruleFromWire(w *acl_types.ACLRule) (Rule, govpp.VPPApiError) {
	r := Rule{
		Action:     RuleAction(w.IsPermit),
		Protocol:   api.Protocol(w.Proto),
		SrcPorts:   Range{w.SrcportOrIcmptypeFirst, w.SrcportOrIcmptypeLast},
		DstPorts:   Range{w.DstportOrIcmpcodeFirst, w.DstportOrIcmpcodeLast},
		FlagsMask:  w.TCPFlagsMask,
		FlagsValue: w.TCPFlagsValue,
	}
	var ok bool
	if r.Src, ok = prefixFromWire(w.SrcPrefix); !ok {
		return Rule{}, govpp.INVALID_SRC_ADDRESS
	}
	if r.Dst, ok = prefixFromWire(w.DstPrefix); !ok {
		return Rule{}, govpp.INVALID_DST_ADDRESS
	}
	if w.SrcPrefix.Address.Af != w.DstPrefix.Address.Af {
		return Rule{}, govpp.INVALID_SRC_ADDRESS
	}
	if r.SrcPorts.First > r.SrcPorts.Last || r.DstPorts.First > r.DstPorts.Last {
		return Rule{}, govpp.INVALID_VALUE_2
	}
	return r, 0
}

// prefixFromWire is false for an unknown family, a length that the family does
// not have, and for host bits that are not zero.
func prefixFromWire(w ip_types.Prefix) (netip.Prefix, bool) {
	var addr netip.Addr
	switch w.Address.Af {
	case ip_types.ADDRESS_IP4:
		addr = netip.AddrFrom4(w.Address.Un.GetIP4())
	case ip_types.ADDRESS_IP6:
		addr = netip.AddrFrom16(w.Address.Un.GetIP6())
	default:
		return netip.Prefix{}, false
	}
	p := netip.PrefixFrom(addr, int(w.Len))
	return p, p.IsValid() && p.Masked() == p
}

func rulesToWire(rules []Rule) []acl_types.ACLRule {
	wire := make([]acl_types.ACLRule, len(rules))
	for i := range rules {
		r := &rules[i]
		wire[i] = acl_types.ACLRule{
			IsPermit:               acl_types.ACLAction(r.Action),
			SrcPrefix:              prefixToWire(r.Src),
			DstPrefix:              prefixToWire(r.Dst),
			Proto:                  ip_types.IPProto(r.Protocol),
			SrcportOrIcmptypeFirst: r.SrcPorts.First,
			SrcportOrIcmptypeLast:  r.SrcPorts.Last,
			DstportOrIcmpcodeFirst: r.DstPorts.First,
			DstportOrIcmpcodeLast:  r.DstPorts.Last,
			TCPFlagsMask:           r.FlagsMask,
			TCPFlagsValue:          r.FlagsValue,
		}
	}
	return wire
}

func prefixToWire(p netip.Prefix) ip_types.Prefix {
	w := ip_types.Prefix{Len: uint8(p.Bits())}
	if p.Addr().Is4() {
		w.Address.Af = ip_types.ADDRESS_IP4
		w.Address.Un.SetIP4(p.Addr().As4())
	} else {
		w.Address.Af = ip_types.ADDRESS_IP6
		w.Address.Un.SetIP6(p.Addr().As16())
	}
	return w
}
