package vpptest

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
)

// Packet is what is sent: what the vswitch looks at, and a mark to find it again.
type Packet struct {
	vswitch.Packet
	Mark uint32

	Extensions int  // headers of IPv6 in front of the transport: destination options
	Empty      bool // UDP without payload and Extensions; 16 bits of the mark are seen
	Payload    int  // of TCP, in addition to the mark, which is its end
	Answer     bool // SCTP: it answers the first packet of an association

	About *vswitch.Packet // that an ICMP error is about; nil: it does not say

	// To is the Ethernet address that a frame goes to; zero for a packet without a frame,
	// which begins where VPP looks at IP.
	To   MAC
	From MAC    // of a frame; zero for one that nothing has
	Type uint16 // of a frame that says to hold something else than IP
	VLAN uint16 // of a frame with a tag; 0: without
	MPLS uint32 // the label of a frame; 0: without
}

// This sender is for frames whose sender does not matter.
var unknownMAC = MAC{0x02, 0, 0, 0, 0, 0x09}

// MAC is an Ethernet address.
type MAC [6]byte

// input returns where VPP begins with the packet.
func (p Packet) input() string {
	switch {
	case p.To != MAC{}:
		return "ethernet-input"
	case p.Src.Is4():
		return "ip4-input"
	}
	return "ip6-input"
}

// Frame returns what is sent.
func (p Packet) Frame() []byte {
	if p.To == (MAC{}) {
		return p.bytes()
	}
	kind, from := p.Type, p.From
	switch {
	case kind != 0:
	case p.Src.Is4():
		kind = 0x0800
	default:
		kind = 0x86dd
	}
	if from == (MAC{}) {
		from = unknownMAC
	}
	head := slices.Concat(p.To[:], from[:])
	if p.VLAN != 0 {
		head = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(head, tagged), p.VLAN)
	}
	if p.MPLS != 0 { // the last label, with a hop limit
		return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(head, labelled), p.MPLS<<12|1<<8|64), p.bytes()...)
	}
	return append(binary.BigEndian.AppendUint16(head, kind), p.bytes()...)
}

// labelled is the type of a frame with a label of MPLS.
const labelled = 0x8847

// tagged is the type of a frame with a tag of 802.1Q.
const tagged = 0x8100

// First returns the first packet of a flow.
func First(f api.Flow, mark uint32) Packet { return Packet{Packet: vswitch.FlowPacket(f), Mark: mark} }

// bytes returns the IP packet. Its payload is the mark.
func (p Packet) bytes() []byte {
	payload := append(p.transport(), make([]byte, p.Payload)...)
	if !p.Empty {
		payload = binary.BigEndian.AppendUint32(payload, p.Mark)
	}
	if p.Src.Is4() {
		head := []byte{0x45, 0, 0, 0, byte(p.Mark >> 8), byte(p.Mark), 0, 0, 64, byte(p.Protocol), 0, 0}
		if p.NonFirstFragment {
			binary.BigEndian.PutUint16(head[6:], fragmentOffset)
		}
		binary.BigEndian.PutUint16(head[2:], uint16(20+len(payload)))
		head = append(append(head, p.Src.AsSlice()...), p.Dst.AsSlice()...)
		binary.BigEndian.PutUint16(head[10:], checksum(head))
		return append(head, payload...)
	}
	head := []byte{0x60, 0, byte(p.Mark >> 8), byte(p.Mark), 0, 0, byte(p.Protocol), 64}
	for range p.Extensions {
		const destinationOptions, padding = 60, 1
		payload = append([]byte{head[6], 0, padding, 4, 0, 0, 0, 0}, payload...)
		head[6] = destinationOptions
	}
	if p.NonFirstFragment {
		const fragmentHeader = 44
		extension := binary.BigEndian.AppendUint16([]byte{head[6], 0}, fragmentOffset<<3)
		payload = append(binary.BigEndian.AppendUint32(extension, 1), payload...)
		head[6] = fragmentHeader
	}
	binary.BigEndian.PutUint16(head[4:], uint16(len(payload)))
	head = append(append(head, p.Src.AsSlice()...), p.Dst.AsSlice()...)
	return append(head, payload...)
}

// fragmentOffset is where fragments that are not the first begin, in units of 8 bytes.
const fragmentOffset = 185

// transport returns the header of the transport protocol. No node on the way checks its checksum.
func (p Packet) transport() []byte {
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, p.SrcPort), p.DstPort)
	switch p.Protocol {
	case api.TCP:
		return append(ports, 0, 0, 0, 1, 0, 0, 0, 0, 5<<4, p.TCPFlags, 16, 0, 0, 0, 0, 0)
	case api.UDP:
		if p.Empty {
			return append(ports, 0, 8, 0, 0)
		}
		return append(ports, 0, 12, 0, 0)
	case api.SCTP: // verification tag, checksum, and the head of an INIT or INIT ACK chunk
		chunk := byte(1)
		if p.Answer {
			chunk = 2
		}
		return append(ports, 0, 0, 0, 0, 0, 0, 0, 0, chunk, 0, 0, 8)
	default: // ICMP: an echo
		head := []byte{p.ICMPType, p.ICMPCode, 0, 0, 0, 1, 0, 1}
		if p.About != nil {
			head = append(head, Packet{Packet: *p.About}.bytes()...)
		}
		return head
	}
}

// checksum of an IPv4 header whose own checksum is zero.
func checksum(head []byte) uint16 {
	var sum uint32
	for i := 0; i < len(head); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(head[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// marked returns the addresses and the mark of an IP packet of ours.
func marked(b []byte) (src, dst netip.Addr, mark uint32, ok bool) {
	length, empty := lengthOf(b), 0
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		empty = 20 + 8
		mark = uint32(binary.BigEndian.Uint16(b[4:]))
		src, _ = netip.AddrFromSlice(b[12:16])
		dst, _ = netip.AddrFromSlice(b[16:20])
	case len(b) >= 40 && b[0]>>4 == 6:
		empty = 40 + 8
		mark = uint32(binary.BigEndian.Uint16(b[2:]))
		src, _ = netip.AddrFromSlice(b[8:24])
		dst, _ = netip.AddrFromSlice(b[24:40])
	}
	switch {
	case length < 24 || length > len(b):
		return src, dst, 0, false
	case length == empty:
		return src, dst, mark, true
	}
	return src, dst, binary.BigEndian.Uint32(b[length-4:]), true
}

// lengthOf returns the length that an IP packet says it has; 0 of one that is cut.
func lengthOf(b []byte) int {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		return int(binary.BigEndian.Uint16(b[2:]))
	case len(b) >= 40 && b[0]>>4 == 6:
		return 40 + int(binary.BigEndian.Uint16(b[4:]))
	}
	return 0
}

// Kinds of frames in capture files.
const (
	rawIP    = 101
	ethernet = 1
)

// Capture is a file of the pcap format.
func Capture(packets [][]byte) []byte {
	var b []byte
	for _, word := range []uint32{0xa1b2c3d4, 4<<16 | 2, 0, 0, 65535, rawIP} {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	for _, p := range packets {
		for _, word := range []uint32{0, 0, uint32(len(p)), uint32(len(p))} {
			b = binary.LittleEndian.AppendUint32(b, word)
		}
		b = append(b, p...)
	}
	return b
}

// captured returns the IP packets of a file of Ethernet frames.
func captured(tb TB, b []byte) (packets [][]byte) {
	tb.Helper()
	const fileHead, packetHead = 24, 16
	if len(b) < fileHead || binary.LittleEndian.Uint32(b) != 0xa1b2c3d4 || binary.LittleEndian.Uint32(b[20:]) != ethernet {
		tb.Fatal("the capture is none of Ethernet frames")
	}
	for b = b[fileHead:]; len(b) > 0; {
		if len(b) < packetHead || len(b)-packetHead < int(binary.LittleEndian.Uint32(b[8:])) {
			tb.Fatal("the capture is cut")
		}
		n := packetHead + int(binary.LittleEndian.Uint32(b[8:]))
		packets = append(packets, framed(b[packetHead:n])...)
		b = b[n:]
	}
	return packets
}

// framed returns what a frame holds, without a tag; nothing of one that is cut.
func framed(frame []byte) [][]byte {
	const head = 14
	if len(frame) < head {
		return nil
	}
	at := head
	if binary.BigEndian.Uint16(frame[head-2:]) == tagged {
		at += 4
	}
	return [][]byte{frame[min(at, len(frame)):]}
}
