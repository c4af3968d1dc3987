package vswitch

import (
	"fmt"
	"net/netip"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/wire"
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
func rulesFromWire(list []acl_types.ACLRule, quirks bool) ([]Rule, govpp.VPPApiError) {
	rules := make([]Rule, len(list))
	for i := range list {
		var rv govpp.VPPApiError
		if rules[i], rv = ruleFromWire(&list[i]); rv != 0 {
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
	if r.Src, ok = wire.ReadPrefix(w.SrcPrefix); !ok {
		return Rule{}, govpp.INVALID_SRC_ADDRESS
	}
	if r.Dst, ok = wire.ReadPrefix(w.DstPrefix); !ok {
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

func rulesToWire(rules []Rule) []acl_types.ACLRule {
	out := make([]acl_types.ACLRule, len(rules))
	for i := range rules {
		r := &rules[i]
		out[i] = acl_types.ACLRule{
			IsPermit:               acl_types.ACLAction(r.Action),
			SrcPrefix:              wire.Prefix(r.Src),
			DstPrefix:              wire.Prefix(r.Dst),
			Proto:                  ip_types.IPProto(r.Protocol),
			SrcportOrIcmptypeFirst: r.SrcPorts.First,
			SrcportOrIcmptypeLast:  r.SrcPorts.Last,
			DstportOrIcmpcodeFirst: r.DstPorts.First,
			DstportOrIcmpcodeLast:  r.DstPorts.Last,
			TCPFlagsMask:           r.FlagsMask,
			TCPFlagsValue:          r.FlagsValue,
		}
	}
	return out
}
