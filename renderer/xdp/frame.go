package xdp

import (
	"encoding/binary"

	"github.com/sluice-net/sluice/api"
)

// Frame returns an Ethernet frame with the first packet of a flow. With reply it returns the answer
// to that packet instead, with addresses and ports swapped.
func Frame(f api.Flow, reply bool) []byte {
	if reply {
		f = f.Reverse()
	}
	body := transport(f, reply)
	eth := make([]byte, 12, 14+40+len(body))
	if f.Src.Unmap().Is4() && f.Dst.Unmap().Is4() {
		eth = binary.BigEndian.AppendUint16(eth, 0x0800)
		ip := make([]byte, 20)
		ip[0], ip[8], ip[9] = 0x45, 64, byte(f.Protocol)
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(body)))
		src, dst := f.Src.Unmap().As4(), f.Dst.Unmap().As4()
		copy(ip[12:], src[:])
		copy(ip[16:], dst[:])
		return append(append(eth, ip...), body...)
	}
	eth = binary.BigEndian.AppendUint16(eth, 0x86dd)
	ip := make([]byte, 40)
	ip[0], ip[6], ip[7] = 0x60, byte(f.Protocol), 64
	binary.BigEndian.PutUint16(ip[4:], uint16(len(body)))
	src, dst := f.Src.As16(), f.Dst.As16()
	copy(ip[8:], src[:])
	copy(ip[24:], dst[:])
	return append(append(eth, ip...), body...)
}

// transport returns the payload of the IP header. For ICMP that is an echo with identifier 1.
func transport(f api.Flow, reply bool) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, f.SrcPort)
	binary.BigEndian.PutUint16(b[2:], f.DstPort)
	switch f.Protocol {
	case api.TCP:
		b[12], b[13] = 5<<4, 0x02 // SYN
		if reply {
			b[13] = 0x12 // SYN, ACK
		}
	case api.UDP:
		b = b[:8]
		binary.BigEndian.PutUint16(b[4:], 8)
	case api.SCTP:
		b[12] = 1 // INIT
		if reply {
			b[12] = 2 // INIT ACK
		}
	case api.ICMP, api.ICMPv6:
		b = []byte{8, 0, 0, 0, 0, 1, 0, 1}
		switch {
		case f.Protocol == api.ICMPv6 && reply:
			b[0] = 129
		case f.Protocol == api.ICMPv6:
			b[0] = 128
		case reply:
			b[0] = 0
		}
	default: // the program reads nothing of other protocols
	}
	return b
}
