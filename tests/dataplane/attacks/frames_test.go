package attacks

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// end is a sender or a receiver.
type end struct {
	mac    []byte
	v4, v6 netip.Addr
}

// world is where a frame is sent: pod is the hostile one, and peer another one, which the frame
// reaches by the hardware address of via.
type world struct {
	pod, peer end
	gateway   []byte // of the node, as the pod reaches it
	via       []byte
	family    int
	mark      uint64 // of the frame, in its payload
}

func (w *world) addr(e end) netip.Addr {
	if w.family == 6 {
		return e.v6
	}
	return e.v4
}

// payload is found again wherever a frame arrives.
func (w *world) payload() []byte { return binary.BigEndian.AppendUint64([]byte("sluice"), w.mark) }

// port is one that no other frame has.
func (w *world) port() uint16 { return uint16(20000 + w.mark%40000) }

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

// eth returns a frame.
func (w *world) eth(kind uint16, body ...[]byte) []byte {
	return slices.Concat(w.via, w.pod.mac, be16(kind), slices.Concat(body...))
}

// tag puts a tag of a VLAN into a frame.
func tag(frame []byte, kind, vlan uint16) []byte {
	return slices.Concat(frame[:12], be16(kind), be16(vlan), frame[12:])
}

// packet is one of IP; what is zero is as it should be.
type packet struct {
	src, dst   netip.Addr
	protocol   byte
	options    []byte // of IPv4
	extensions []byte // of IPv6, by type
	routing    byte   // the type of routing headers
	hops       byte
	id         uint16
	fragment   uint16 // as in the header: flags, and the offset in units of 8 bytes
	body       []byte
}

const more = 0x2000

// ip returns a frame with a packet of IP, from the pod to the peer unless it says otherwise.
func (w *world) ip(p packet) []byte {
	if !p.src.IsValid() {
		p.src = w.addr(w.pod)
	}
	if !p.dst.IsValid() {
		p.dst = w.addr(w.peer)
	}
	if p.hops == 0 {
		p.hops = 64
	}
	if p.dst.Is4() {
		return w.ip4(p)
	}
	return w.ip6(p)
}

func (w *world) ip4(p packet) []byte {
	for len(p.options)%4 != 0 {
		p.options = append(p.options, 0)
	}
	h := slices.Concat(make([]byte, 20), p.options)
	h[0], h[8], h[9] = 0x40|byte(len(h)/4), p.hops, p.protocol
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(p.body)))
	binary.BigEndian.PutUint16(h[4:], p.id)
	binary.BigEndian.PutUint16(h[6:], p.fragment)
	copy(h[12:], p.src.AsSlice())
	copy(h[16:], p.dst.AsSlice())
	binary.BigEndian.PutUint16(h[10:], ^sum(0, h))
	return w.eth(0x0800, h, p.body)
}

const (
	hopByHop, routing, fragment, encrypted, authentication, destination = 0, 43, 44, 50, 51, 60
	mobility, hip, shim6                                                = 135, 139, 140
)

func (w *world) ip6(p packet) []byte {
	next, body := p.protocol, p.body
	if p.fragment != 0 {
		field := p.fragment&0x1fff<<3 | p.fragment&more>>13
		body = slices.Concat([]byte{next, 0}, be16(field), []byte{0, 0}, be16(p.id), body)
		next = fragment
	}
	for _, kind := range slices.Backward(p.extensions) {
		h := []byte{next, 0, 1, 4, 0, 0, 0, 0}
		switch kind {
		case routing:
			h[2], h[3] = p.routing, 1
		case fragment:
			h[2], h[3] = 0, 0
		case authentication:
			h = append(h, 0, 0, 0, 0)
			h[1] = 1
		}
		body, next = slices.Concat(h, body), kind
	}
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, next, p.hops
	binary.BigEndian.PutUint16(h[4:], uint16(len(body)))
	copy(h[8:], p.src.AsSlice())
	copy(h[24:], p.dst.AsSlice())
	return w.eth(0x86dd, h, body)
}

// sum adds up words, as checksums do.
func sum(start uint32, b []byte) uint16 {
	for i := 0; i < len(b); i += 2 {
		word := uint32(b[i]) << 8
		if i+1 < len(b) {
			word |= uint32(b[i+1])
		}
		start += word
	}
	for start > 0xffff {
		start = start>>16 + start&0xffff
	}
	return uint16(start)
}

func (w *world) tcp(port uint16, flags byte) []byte {
	h := make([]byte, 20)
	binary.BigEndian.PutUint16(h, w.port())
	binary.BigEndian.PutUint16(h[2:], port)
	h[12], h[13] = 5<<4, flags
	return append(h, w.payload()...)
}

func (w *world) udp(port uint16) []byte {
	return slices.Concat(be16(w.port()), be16(port), be16(uint16(8+len(w.payload()))), []byte{0, 0}, w.payload())
}

// icmp returns a message with its checksum, from src to dst where it is ICMPv6.
func (w *world) icmp(src, dst netip.Addr, kind, code byte, rest ...byte) []byte {
	b := append([]byte{kind, code, 0, 0}, rest...)
	var start uint32
	if dst.Is6() {
		start = uint32(sum(uint32(len(b))+uint32(api.ICMPv6), slices.Concat(src.AsSlice(), dst.AsSlice())))
	}
	binary.BigEndian.PutUint16(b[2:], ^sum(start, b))
	return b
}

// protocol of ICMP in the family.
func (w *world) icmpProtocol() byte {
	if w.family == 6 {
		return byte(api.ICMPv6)
	}
	return byte(api.ICMP)
}

// arp returns a frame of ARP.
func (w *world) arp(operation uint16, hardware []byte, from, to netip.Addr) []byte {
	return w.eth(0x0806, be16(1), be16(0x0800), []byte{6, 4}, be16(operation), hardware, from.AsSlice(), make([]byte, 6), to.AsSlice(), w.payload())
}

// discovery is a message of neighbour discovery; what is zero is as it should be.
type discovery struct {
	kind, code byte
	src, dst   netip.Addr
	hops       byte
	target     netip.Addr
	extensions []byte
	fragment   uint16
}

func (w *world) nd(d discovery) []byte {
	if !d.src.IsValid() {
		d.src = w.pod.v6
	}
	if !d.dst.IsValid() {
		d.dst = allNodes
	}
	if d.hops == 0 {
		d.hops = 255
	}
	rest := make([]byte, 4)
	if d.target.IsValid() {
		rest = append(rest, d.target.AsSlice()...)
	}
	if d.kind == 134 {
		rest = append(rest, make([]byte, 8)...)
	}
	if d.kind == 137 {
		rest = append(rest, w.peer.v6.AsSlice()...)
	}
	rest = append(rest, w.payload()...)
	rest = append(rest, make([]byte, -len(rest)&7)...)
	return w.ip(packet{src: d.src, dst: d.dst, protocol: byte(api.ICMPv6), hops: d.hops, extensions: d.extensions, fragment: d.fragment, body: w.icmp(d.src, d.dst, d.kind, d.code, rest...)})
}

var (
	allNodes     = netip.MustParseAddr("ff02::1")
	allRouters   = netip.MustParseAddr("ff02::2")
	unspecified6 = netip.IPv6Unspecified()
)

// solicited returns the solicited-node multicast address of an address.
func solicited(a netip.Addr) netip.Addr {
	b := netip.MustParseAddr("ff02::1:ff00:0").As16()
	last := a.As16()
	copy(b[13:], last[13:])
	return netip.AddrFrom16(b)
}

// linkLocal is the address of the link that a host makes of its hardware address.
func linkLocal(mac []byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}
