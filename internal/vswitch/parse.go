package vswitch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// ErrMalformed is the error for bytes that are not a packet.
var ErrMalformed = errors.New("malformed packet")

// Header lengths.
const (
	ipv4Header = 20
	ipv6Header = 40
	// maxExtensions bounds the walk over the extension headers of IPv6.
	maxExtensions = 16
)

// InjectBytes is Inject for the bytes of an IP packet. It denies invalid bytes and returns an
// error.
func (f *forwarder) InjectBytes(in uint32, b []byte) (Trace, error) {
	p, err := ParsePacket(b)
	if err != nil {
		return Trace{Verdict: api.Deny, Reason: err.Error()}, err
	}
	return f.Inject(in, p), nil
}

// ParsePacket parses an IPv4 or IPv6 packet that starts with its IP header. It ignores bytes beyond
// the length in the header. The header of the transport protocol must be complete in the first
// fragment, so that no packet evades a rule by hiding its ports or flags.
func ParsePacket(b []byte) (Packet, error) {
	if len(b) == 0 {
		return Packet{}, fmt.Errorf("%w: no bytes", ErrMalformed)
	}
	switch b[0] >> 4 {
	case 4:
		return parseIPv4(b)
	case 6:
		return parseIPv6(b)
	}
	return Packet{}, fmt.Errorf("%w: IP version %d", ErrMalformed, b[0]>>4)
}

func parseIPv4(b []byte) (Packet, error) {
	if len(b) < ipv4Header {
		return Packet{}, short("IPv4 header", len(b), ipv4Header)
	}
	header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if header < ipv4Header || total < header {
		return Packet{}, fmt.Errorf("%w: IPv4 header of %d bytes in a packet of %d", ErrMalformed, header, total)
	}
	if len(b) < total {
		return Packet{}, short("IPv4 packet", len(b), total)
	}
	p := Packet{
		Src: netip.AddrFrom4([4]byte(b[12:16])), Dst: netip.AddrFrom4([4]byte(b[16:20])),
		Protocol:         api.Protocol(b[9]),
		NonFirstFragment: binary.BigEndian.Uint16(b[6:])&0x1fff != 0,
	}
	if err := p.parseTransport(b[header:total]); err != nil {
		return Packet{}, err
	}
	return p, nil
}

func parseIPv6(b []byte) (Packet, error) {
	if len(b) < ipv6Header {
		return Packet{}, short("IPv6 header", len(b), ipv6Header)
	}
	total := ipv6Header + int(binary.BigEndian.Uint16(b[4:]))
	if len(b) < total {
		return Packet{}, short("IPv6 packet", len(b), total)
	}
	p := Packet{Src: netip.AddrFrom16([16]byte(b[8:24])), Dst: netip.AddrFrom16([16]byte(b[24:40]))}
	rest, err := p.skipExtensions(b[6], b[ipv6Header:total])
	if err != nil {
		return Packet{}, err
	}
	if err := p.parseTransport(rest); err != nil {
		return Packet{}, err
	}
	return p, nil
}

// IPv6 extension headers, by their protocol number.
const (
	extHopByHop    = 0
	extRouting     = 43
	extFragment    = 44
	extAuth        = 51
	extDestination = 60
	extMobility    = 135
	extHIP         = 139
	extShim6       = 140
)

// skipExtensions sets the protocol and returns what follows the extension headers. It stops at the
// header of a fragment that is not the first.
func (p *Packet) skipExtensions(next uint8, b []byte) ([]byte, error) {
	for range maxExtensions {
		size := 8
		switch next {
		case extHopByHop, extRouting, extDestination, extMobility, extHIP, extShim6:
			if len(b) > 1 {
				size = (int(b[1]) + 1) * 8
			}
		case extAuth:
			if len(b) > 1 {
				size = (int(b[1]) + 2) * 4
			}
		case extFragment:
		default:
			p.Protocol = api.Protocol(next)
			return b, nil
		}
		if len(b) < size {
			return nil, short("IPv6 extension header", len(b), size)
		}
		if next == extFragment && binary.BigEndian.Uint16(b[2:])&0xfff8 != 0 {
			p.Protocol, p.NonFirstFragment = api.Protocol(b[0]), true
			return b[size:], nil
		}
		next, b = b[0], b[size:]
	}
	return nil, fmt.Errorf("%w: more than %d IPv6 extension headers", ErrMalformed, maxExtensions)
}

// parseTransport parses the fields of the transport header that rules use.
func (p *Packet) parseTransport(b []byte) error {
	if p.NonFirstFragment {
		return nil
	}
	size := transportHeader(p.Protocol)
	if len(b) < size {
		return short(p.Protocol.String()+" header", len(b), size)
	}
	switch p.Protocol {
	case api.TCP:
		p.TCPFlags = b[13]
		if n := int(b[12]>>4) * 4; n < size || n > len(b) {
			return fmt.Errorf("%w: tcp header of %d bytes in %d", ErrMalformed, n, len(b))
		}
	case api.ICMP, api.ICMPv6:
		p.ICMPType, p.ICMPCode = b[0], b[1]
	default:
	}
	if p.Protocol.HasPorts() {
		p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	}
	return nil
}

// transportHeader is how many bytes of a protocol's header a packet must contain; 0 for protocols
// whose header rules do not use.
func transportHeader(p api.Protocol) int {
	switch p {
	case api.TCP:
		return 20
	case api.UDP:
		return 8
	case api.SCTP:
		return 12
	case api.ICMP, api.ICMPv6:
		return 4
	default:
		return 0
	}
}

func short(what string, have, want int) error {
	return fmt.Errorf("%w: %s has %d bytes of %d", ErrMalformed, what, have, want)
}
