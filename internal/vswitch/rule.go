package vswitch

import (
	"slices"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/classify"
	"github.com/sluice-net/sluice/internal/vswitch/internal/wire"
)

// RuleAction is what an ACL rule does with a packet.
type RuleAction = classify.Action

// The actions have the numbers of the wire format.
const (
	RuleDeny          = classify.Deny
	RulePermit        = classify.Permit
	RulePermitReflect = classify.PermitReflect // permit and remember the flow
)

// Range is an inclusive range of ports, ICMP types or ICMP codes.
type Range = classify.Range

// Rule is one rule of an ACL.
type Rule = classify.Rule

// tuple is what rules match.
type tuple = classify.Tuple

// rulesFromWire validates and converts the rules of a message; it appends to rules. VPP accepts
// unknown actions and then permits, which is a quirk; otherwise they are rejected, because an
// unknown action must not open anything.
func rulesFromWire(rules []Rule, list []acl_types.ACLRule, quirks bool) ([]Rule, govpp.VPPApiError) {
	rules = slices.Grow(rules, len(list))
	for i := range list {
		r, rv := ruleFromWire(&list[i])
		if rv != 0 {
			return nil, rv
		}
		if r.Action > RulePermitReflect && !quirks {
			return nil, govpp.INVALID_VALUE
		}
		rules = append(rules, r)
	}
	return rules, 0
}

func ruleFromWire(w *acl_types.ACLRule) (Rule, govpp.VPPApiError) {
	r := Rule{
		Action:     RuleAction(w.IsPermit),
		Protocol:   api.Protocol(w.Proto),
		SrcPorts:   Range{First: w.SrcportOrIcmptypeFirst, Last: w.SrcportOrIcmptypeLast},
		DstPorts:   Range{First: w.DstportOrIcmpcodeFirst, Last: w.DstportOrIcmpcodeLast},
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

func ruleToWire(r *Rule) acl_types.ACLRule {
	return acl_types.ACLRule{
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
