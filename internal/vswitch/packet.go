package vswitch

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// Packet holds the fields of an IP packet that the vswitch uses. Fields that the protocol lacks are
// ignored.
type Packet struct {
	Src              netip.Addr   `json:"src"` // of the same family as Dst; zones are ignored
	Dst              netip.Addr   `json:"dst"`
	Protocol         api.Protocol `json:"protocol"`
	SrcPort          uint16       `json:"srcPort,omitzero"` // TCP, UDP, SCTP
	DstPort          uint16       `json:"dstPort,omitzero"`
	TCPFlags         uint8        `json:"tcpFlags,omitzero"` // as in the TCP header: 1 FIN, 2 SYN, 4 RST, 16 ACK
	ICMPType         uint8        `json:"icmpType,omitzero"` // ICMP, ICMPv6
	ICMPCode         uint8        `json:"icmpCode,omitzero"`
	NonFirstFragment bool         `json:"nonFirstFragment,omitzero"` // ports, flags, type and code are unknown
}

// FlowPacket returns the first packet of a flow: a SYN for TCP, an echo request
// for ICMP and ICMPv6.
func FlowPacket(f api.Flow) Packet {
	p := Packet{Src: f.Src, Dst: f.Dst, Protocol: f.Protocol}
	switch f.Protocol {
	case api.TCP:
		p.TCPFlags = flagSYN
	case api.ICMP:
		p.ICMPType = 8
	case api.ICMPv6:
		p.ICMPType = 128
	default:
	}
	if f.Protocol.HasPorts() {
		p.SrcPort, p.DstPort = f.SrcPort, f.DstPort
	}
	return p
}

// Reply returns a packet that answers p: SYN and ACK for a SYN, an ACK for other TCP, the answer to
// an ICMP query, the same type for other ICMP.
func (p Packet) Reply() Packet {
	r := p
	r.Src, r.Dst = p.Dst, p.Src
	r.SrcPort, r.DstPort = p.DstPort, p.SrcPort
	switch p.Protocol {
	case api.TCP:
		r.TCPFlags = flagACK
		if p.TCPFlags&(flagSYN|flagACK) == flagSYN {
			r.TCPFlags |= flagSYN
		}
	case api.ICMP, api.ICMPv6:
		if partner, _, ok := icmpPartner(p.Protocol, uint16(p.ICMPType)); ok {
			r.ICMPType = uint8(partner)
		}
	default:
	}
	return r
}

// tuple returns the fields that rules match; ok is false unless the addresses are of one family.
func (p *Packet) tuple() (t tuple, ok bool) {
	t = tuple{Src: p.Src.WithZone(""), Dst: p.Dst.WithZone(""), Protocol: p.Protocol, Fragment: p.NonFirstFragment}
	if !t.Src.IsValid() || t.Src.BitLen() != t.Dst.BitLen() {
		return t, false
	}
	if t.Fragment {
		return t, true
	}
	switch {
	case p.Protocol.HasPorts():
		t.SrcPort, t.DstPort = p.SrcPort, p.DstPort
		if p.Protocol == api.TCP {
			t.Flags = p.TCPFlags
		}
	case p.Protocol == api.ICMP || p.Protocol == api.ICMPv6:
		t.SrcPort, t.DstPort = uint16(p.ICMPType), uint16(p.ICMPCode)
	}
	return t, true
}
