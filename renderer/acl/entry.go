package acl

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/netip"

	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// verdict is what an entry does, in VPP's numbers.
type verdict uint8

const (
	deny    verdict = verdict(acl_types.ACL_ACTION_API_DENY)
	permit  verdict = verdict(acl_types.ACL_ACTION_API_PERMIT)
	reflect verdict = verdict(acl_types.ACL_ACTION_API_PERMIT_REFLECT)
)

// ports is an inclusive range of ports, or of ICMP types or codes.
type ports struct{ first, last uint16 }

var anyPorts = ports{0, 65535}

// entry is one rule of a VPP ACL. Both prefixes are of one family. It is comparable.
type entry struct {
	verdict  verdict
	src, dst netip.Prefix
	protocol api.Protocol
	sport    ports // the type, for ICMP
	dport    ports // the code, for ICMP
	flags    uint8 // TCP flags of which mask says which count
	mask     uint8
}

// digest identifies the content of an ACL.
type digest [16]byte

func (d digest) String() string { return hex.EncodeToString(d[:]) }

func digestOf(entries []entry) digest {
	h := sha256.New()
	buf := make([]byte, 0, 64)
	for i := range entries {
		buf = entries[i].append(buf[:0])
		h.Write(buf)
	}
	var d digest
	copy(d[:], h.Sum(buf[:0]))
	return d
}

// append writes the entry in a canonical form.
func (e *entry) append(b []byte) []byte {
	b = append(b, byte(e.verdict), byte(e.protocol), e.flags, e.mask)
	for _, p := range [2]netip.Prefix{e.src, e.dst} {
		a := p.Addr().As16()
		b = append(append(b, byte(p.Bits()), byte(p.Addr().BitLen())), a[:]...)
	}
	for _, p := range [2]ports{e.sport, e.dport} {
		b = binary.BigEndian.AppendUint16(b, p.first)
		b = binary.BigEndian.AppendUint16(b, p.last)
	}
	return b
}

// rule returns the entry as GoVPP sends it.
func (e *entry) rule() acl_types.ACLRule {
	return acl_types.ACLRule{
		IsPermit: acl_types.ACLAction(e.verdict), SrcPrefix: vpp.ToPrefix(e.src), DstPrefix: vpp.ToPrefix(e.dst),
		Proto:                  ip_types.IPProto(e.protocol),
		SrcportOrIcmptypeFirst: e.sport.first, SrcportOrIcmptypeLast: e.sport.last,
		DstportOrIcmpcodeFirst: e.dport.first, DstportOrIcmpcodeLast: e.dport.last,
		TCPFlagsMask: e.mask, TCPFlagsValue: e.flags,
	}
}

func toRules(entries []entry) []acl_types.ACLRule {
	out := make([]acl_types.ACLRule, len(entries))
	for i := range entries {
		out[i] = entries[i].rule()
	}
	return out
}

// fromRules reads what a dump says. A prefix that VPP could not have accepted
// becomes an invalid one, which no entry of ours has.
func fromRules(rules []acl_types.ACLRule) []entry {
	out := make([]entry, len(rules))
	for i, r := range rules {
		out[i] = entry{
			verdict: verdict(r.IsPermit), src: vpp.FromPrefix(r.SrcPrefix), dst: vpp.FromPrefix(r.DstPrefix),
			protocol: api.Protocol(r.Proto),
			sport:    ports{r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast},
			dport:    ports{r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast},
			flags:    r.TCPFlagsValue, mask: r.TCPFlagsMask,
		}
	}
	return out
}

var (
	anyIPv4  = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	anyIPv6  = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	families = [2]netip.Prefix{anyIPv4, anyIPv6}
)

// anyOf returns all addresses of the family of one.
func anyOf(a netip.Addr) netip.Prefix {
	if a.Is6() {
		return anyIPv6
	}
	return anyIPv4
}
