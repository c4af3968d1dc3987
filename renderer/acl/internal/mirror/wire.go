package mirror

import (
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// This fails to compile unless the verdicts equal VPP's constants.
var _ = [1]bool{}[entries.Deny-entries.Verdict(acl_types.ACL_ACTION_API_DENY)|entries.Permit-entries.Verdict(acl_types.ACL_ACTION_API_PERMIT)|entries.Reflect-entries.Verdict(acl_types.ACL_ACTION_API_PERMIT_REFLECT)]

// ruleOf returns an entry in the form of the VPP API.
func ruleOf(e *entries.Entry) acl_types.ACLRule {
	return acl_types.ACLRule{
		IsPermit: acl_types.ACLAction(e.Verdict), SrcPrefix: toPrefix(&e.Src), DstPrefix: toPrefix(&e.Dst),
		Proto:                  ip_types.IPProto(e.Protocol),
		SrcportOrIcmptypeFirst: e.SrcPort.First, SrcportOrIcmptypeLast: e.SrcPort.Last,
		DstportOrIcmpcodeFirst: e.DstPort.First, DstportOrIcmpcodeLast: e.DstPort.Last,
		TCPFlagsMask: e.Mask, TCPFlagsValue: e.Flags,
	}
}

// toPrefix does what vpp.ToPrefix does.
func toPrefix(n *entries.Net) ip_types.Prefix {
	out, a := ip_types.Prefix{Len: uint8(n.Bits())}, n.As16()
	if n.Is6() {
		out.Address.Af = ip_types.ADDRESS_IP6
		out.Address.Un.SetIP6(a)
	} else {
		out.Address.Un.SetIP4([4]byte(a[12:]))
	}
	return out
}

func toRules(entries []entries.Entry) []acl_types.ACLRule {
	out := make([]acl_types.ACLRule, len(entries))
	for i := range entries {
		out[i] = ruleOf(&entries[i])
	}
	return out
}

// FromRules converts dumped rules to entries. A prefix that VPP could not have accepted becomes an
// invalid one, which no entry of ours has.
func FromRules(rules []acl_types.ACLRule) []entries.Entry {
	out := make([]entries.Entry, len(rules))
	for i, r := range rules {
		out[i] = entries.Entry{
			Verdict: entries.Verdict(r.IsPermit), Src: entries.NetOf(vpp.FromPrefix(r.SrcPrefix)), Dst: entries.NetOf(vpp.FromPrefix(r.DstPrefix)),
			Protocol: api.Protocol(r.Proto),
			SrcPort:  entries.Ports{First: r.SrcportOrIcmptypeFirst, Last: r.SrcportOrIcmptypeLast},
			DstPort:  entries.Ports{First: r.DstportOrIcmpcodeFirst, Last: r.DstportOrIcmpcodeLast},
			Flags:    r.TCPFlagsValue, Mask: r.TCPFlagsMask,
		}
	}
	return out
}
