package vswitch

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
)

// cmpAddr lets go-cmp compare addresses.
var cmpAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// ipv4 builds a packet; fragment is the field with flags and offset.
func ipv4(proto api.Protocol, fragment uint16, options int, payload []byte) []byte {
	b := make([]byte, 20+options)
	b[0] = 0x40 | byte(5+options/4)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(payload)))
	binary.BigEndian.PutUint16(b[6:], fragment)
	b[8], b[9] = 64, byte(proto)
	copy(b[12:], netip.MustParseAddr(worldV4).AsSlice())
	copy(b[16:], netip.MustParseAddr(podV4).AsSlice())
	return append(b, payload...)
}

func ipv6(next uint8, payload []byte) []byte {
	b := make([]byte, 40)
	b[0] = 0x60
	binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
	b[6], b[7] = next, 64
	copy(b[8:], netip.MustParseAddr(worldV6).AsSlice())
	copy(b[24:], netip.MustParseAddr(podV6).AsSlice())
	return append(b, payload...)
}

func tcpHeader(sport, dport uint16, flags uint8) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, sport)
	binary.BigEndian.PutUint16(b[2:], dport)
	b[12], b[13] = 5<<4, flags
	return b
}

func udpHeader(sport, dport uint16, n int) []byte {
	b := make([]byte, n)
	binary.BigEndian.PutUint16(b, sport)
	binary.BigEndian.PutUint16(b[2:], dport)
	return b
}

func join(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func TestParsePacket(t *testing.T) {
	web := withFlags(toPod(api.TCP, 4000, 80), flagSYN|flagACK)
	dns := toPod(api.UDP, 4000, 53)
	tcp, udp := tcpHeader(4000, 80, flagSYN|flagACK), udpHeader(4000, 53, 8)
	ah := func(next uint8) []byte { return append([]byte{next, 1}, make([]byte, 10)...) }
	for name, c := range map[string]struct {
		bytes []byte
		want  Packet
	}{
		"TCP":                               {ipv4(api.TCP, 0, 0, tcp), web},
		"TCP with IP options":               {ipv4(api.TCP, 0, 12, tcp), web},
		"padding behind the packet":         {append(ipv4(api.UDP, 0, 0, udp), make([]byte, 18)...), dns},
		"UDP without payload":               {ipv4(api.UDP, 0, 0, udp), dns},
		"SCTP":                              {ipv4(api.SCTP, 0, 0, udpHeader(1, 2, 12)), toPod(api.SCTP, 1, 2)},
		"ICMP":                              {ipv4(api.ICMP, 0, 0, []byte{8, 0, 0, 0}), toPod(api.ICMP, 0, 0)},
		"GRE with a short payload":          {ipv4(47, 0, 0, []byte{1, 2}), toPod(47, 0, 0)},
		"first fragment":                    {ipv4(api.UDP, 0x2000, 0, udp), dns},
		"later fragment":                    {ipv4(api.UDP, 0x2001, 0, udp), fragment(toPod(api.UDP, 0, 0))},
		"last fragment":                     {ipv4(api.UDP, 5, 0, []byte{1}), fragment(toPod(api.UDP, 0, 0))},
		"IPv6 TCP":                          {ipv6(6, tcp), v6(web)},
		"IPv6 UDP without payload":          {ipv6(17, udp), v6(dns)},
		"ICMPv6":                            {ipv6(58, []byte{128, 0, 0, 0}), v6(toPod(api.ICMP, 0, 0))},
		"IPv6 hop-by-hop and destination":   {ipv6(0, join([]byte{60, 0, 0, 0, 0, 0, 0, 0}, append([]byte{6, 1}, make([]byte, 14)...), tcp)), v6(web)},
		"IPv6 routing and authentication":   {ipv6(43, join([]byte{51, 0, 0, 0, 0, 0, 0, 0}, ah(17), udp)), v6(dns)},
		"IPv6 first fragment":               {ipv6(44, join([]byte{17, 0, 0, 1, 0, 0, 0, 9}, udp)), v6(dns)},
		"IPv6 later fragment":               {ipv6(44, join([]byte{17, 0, 0, 9, 0, 0, 0, 9}, []byte{1})), v6(fragment(toPod(api.UDP, 0, 0)))},
		"IPv6 fragment behind an extension": {ipv6(0, join([]byte{44, 0, 0, 0, 0, 0, 0, 0}, []byte{6, 0, 0, 9, 0, 0, 0, 9})), v6(fragment(withFlags(toPod(api.TCP, 0, 0), 0)))},
		"IPv6 without a next header":        {ipv6(59, nil), v6(toPod(59, 0, 0))},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePacket(c.bytes)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, cmpAddr); diff != "" {
				t.Errorf("packet (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParsePacketRefusesMalformed(t *testing.T) {
	change := func(b []byte, i int, v byte) []byte { b[i] = v; return b }
	tcp := tcpHeader(4000, 80, flagSYN)
	extensions := make([]byte, 8*(maxExtensions+1))
	for i := range maxExtensions {
		extensions[8*i] = extDestination
	}
	sw := New(Options{})
	for name, b := range map[string][]byte{
		"empty":                             {},
		"another version":                   {0x50, 0, 0, 0},
		"IPv4 header cut":                   ipv4(api.TCP, 0, 0, tcp)[:19],
		"IPv4 header length 16":             change(ipv4(api.TCP, 0, 0, tcp), 0, 0x44),
		"IPv4 total length below header":    change(ipv4(api.TCP, 0, 0, nil), 3, 19),
		"IPv4 total length beyond packet":   change(ipv4(api.TCP, 0, 0, tcp), 3, 41),
		"TCP header cut":                    ipv4(api.TCP, 0, 0, tcp[:19]),
		"TCP header cut in first fragment":  ipv4(api.TCP, 0x2000, 0, tcp[:8]),
		"TCP header length 16":              ipv4(api.TCP, 0, 0, change(tcpHeader(1, 2, 0), 12, 4<<4)),
		"TCP header length beyond packet":   ipv4(api.TCP, 0, 0, change(tcpHeader(1, 2, 0), 12, 6<<4)),
		"UDP header cut":                    ipv4(api.UDP, 0, 0, make([]byte, 7)),
		"SCTP header cut":                   ipv4(api.SCTP, 0, 0, make([]byte, 11)),
		"ICMP header cut":                   ipv4(api.ICMP, 0, 0, make([]byte, 3)),
		"IPv6 header cut":                   ipv6(6, nil)[:39],
		"IPv6 payload cut":                  ipv6(6, tcp)[:59],
		"IPv6 extension cut":                ipv6(0, []byte{6, 3, 0, 0, 0, 0, 0, 0}),
		"IPv6 extension of one byte":        ipv6(0, []byte{6}),
		"IPv6 authentication cut":           ipv6(51, []byte{6, 1, 0, 0, 0, 0, 0, 0}),
		"IPv6 fragment header cut":          ipv6(44, []byte{6, 0, 0}),
		"more extension headers than sane":  ipv6(extDestination, extensions),
		"IPv6 TCP header cut after options": ipv6(0, join([]byte{6, 0, 0, 0, 0, 0, 0, 0}, tcp[:10])),
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := ParsePacket(b); !errors.Is(err, ErrMalformed) || p != (Packet{}) {
				t.Errorf("%+v, %v", p, err)
			}
			if trace, err := sw.InjectBytes(0, b); err == nil || trace.Verdict != api.Deny {
				t.Errorf("%+v, %v", trace, err)
			}
		})
	}
}

func TestInjectBytes(t *testing.T) {
	l := newLab(t, Options{})
	l.apply(nil, []Rule{rule(RulePermit, anyV4, anyV4, 6, Range{}, Range{First: 80, Last: 80})})
	for port, want := range map[uint16]api.Action{80: api.Permit, 81: api.Deny} {
		got, err := l.sw.InjectBytes(l.world, ipv4(api.TCP, 0, 0, tcpHeader(4000, port, flagSYN)))
		if err != nil || got.Verdict != want || len(got.Hops) != 2 {
			t.Errorf("port %d: %v\n%s", port, err, got)
		}
	}
}

func BenchmarkParsePacket(b *testing.B) {
	p := ipv4(api.TCP, 0, 0, tcpHeader(4000, 80, flagSYN))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParsePacket(p); err != nil {
			b.Fatal(err)
		}
	}
}
