package attacks

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer/xdp"
)

// fate is why a packet is dropped, empty if it passes: without policy, where nothing is permitted,
// and where TCP to port 80 and UDP to port 53 of the peer are.
type fate [3]xdp.Reason

func always(r xdp.Reason) fate   { return fate{r, r, r} }
func isolated(r xdp.Reason) fate { return fate{"", r, r} }

var (
	judged  = isolated(xdp.ReasonPolicy)
	allowed = fate{"", xdp.ReasonPolicy, ""}
	passes  = fate{}
)

// kind is a kind of packet that a pod sends.
type kind struct {
	name    string
	family  int // 0: both
	fate    fate
	frame   func(w *world) []byte
	arrives bool // at the peer, if it passes; else it goes elsewhere, or hosts drop it
	bridged bool // it arrives on a bridge only
	wired   bool // needs an interface
}

// kinds are all kinds, of attacks and of what attacks are made of.
func kinds() []kind {
	return slices.Concat(tcpFlags(), sources(), protocols(), extensions(), options(), lengths(), fragments(), tags(), others(), arps(), discoveries(), routes(), icmpErrors(), tunnels(), broadcasts())
}

// tcpFlags are all sets of flags, to a port that may be permitted and to one that is not.
func tcpFlags() (out []kind) {
	for flags := range 64 {
		out = append(out, kind{name: fmt.Sprintf("TCP flags %#02x to port 80", flags), fate: allowed, arrives: true, frame: func(w *world) []byte {
			return w.ip(packet{protocol: 6, body: w.tcp(80, byte(flags))})
		}}, kind{name: fmt.Sprintf("TCP flags %#02x to port 22", flags), fate: judged, arrives: true, frame: func(w *world) []byte {
			return w.ip(packet{protocol: 6, body: w.tcp(22, byte(flags))})
		}})
	}
	return out
}

// sources are those that are not the pod's.
func sources() (out []kind) {
	spoofed := always(xdp.ReasonSource)
	for _, a := range []string{
		"10.99.0.9", "10.99.0.1", "10.99.0.255", "0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255", "8.8.8.8",
		"fd00::9", "::", "::1", "fe80::1", "ff02::1", "2001:db8::1", "::ffff:10.99.0.2", "64:ff9b::a63:2",
	} {
		src := netip.MustParseAddr(a)
		family := 4
		if src.Is6() {
			family = 6
		}
		for _, port := range []uint16{53, 9} {
			out = append(out, kind{name: fmt.Sprintf("UDP to port %d from %s", port, src), family: family, fate: spoofed, frame: func(w *world) []byte {
				return w.ip(packet{src: src, protocol: 17, body: w.udp(port)})
			}})
		}
	}
	return append(out, kind{name: "from the peer", fate: spoofed, frame: func(w *world) []byte {
		return w.ip(packet{src: w.addr(w.peer), protocol: 17, body: w.udp(53)})
	}}, kind{name: "a fragment from the peer", fate: spoofed, frame: func(w *world) []byte {
		return w.ip(packet{src: w.addr(w.peer), protocol: 17, id: 77, fragment: 9, body: w.udp(53)})
	}})
}

func protocols() (out []kind) {
	for _, p := range []byte{2, 3, 5, 8, 9, 16, 33, 46, 50, 88, 89, 94, 97, 98, 103, 108, 112, 115, 133, 136, 137, 200, 253, 254, 255} {
		out = append(out, kind{name: fmt.Sprintf("protocol %d", p), fate: judged, arrives: true, frame: func(w *world) []byte {
			return w.ip(packet{protocol: p, body: w.udp(53)})
		}})
	}
	for _, port := range []uint16{53, 54, 0, 65535} {
		want := judged
		if port == 53 {
			want = allowed
		}
		out = append(out, kind{name: fmt.Sprintf("UDP to port %d", port), fate: want, arrives: true, frame: func(w *world) []byte {
			return w.ip(packet{protocol: 17, body: w.udp(port)})
		}})
	}
	return append(out, kind{name: "SCTP", fate: judged, arrives: true, frame: func(w *world) []byte {
		return w.ip(packet{protocol: 132, body: slices.Concat(be16(w.port()), be16(53), make([]byte, 8), []byte{1, 0, 0, 20}, make([]byte, 16), w.payload())})
	}}, kind{name: "echo", fate: judged, arrives: true, frame: func(w *world) []byte {
		request := map[int]byte{4: 8, 6: 128}[w.family]
		return w.ip(packet{protocol: w.icmpProtocol(), body: w.icmp(w.addr(w.pod), w.addr(w.peer), request, 0, append(be16(w.port()), append([]byte{0, 1}, w.payload()...)...)...)})
	}}, kind{name: "ICMP of the other family", fate: judged, frame: func(w *world) []byte {
		return w.ip(packet{protocol: map[int]byte{4: 58, 6: 1}[w.family], body: append([]byte{8, 0, 0, 0, 0, 0, 0, 0}, w.payload()...)})
	}})
}

// extensions are headers of IPv6 before the ports.
func extensions() (out []kind) {
	malformed := always(xdp.ReasonMalformed)
	for _, types := range [][]byte{
		{hopByHop}, {destination}, {authentication}, {mobility}, {hip}, {shim6}, {fragment}, {destination, destination}, {hopByHop, destination, fragment, authentication, destination},
		slices.Repeat([]byte{destination}, 8), slices.Repeat([]byte{authentication}, 8),
	} {
		for port, want := range map[uint16]fate{53: allowed, 54: judged} {
			out = append(out, kind{name: fmt.Sprintf("UDP to port %d behind headers %v", port, types), family: 6, fate: want, frame: func(w *world) []byte {
				return w.ip(packet{protocol: 17, extensions: types, body: w.udp(port)})
			}})
		}
	}
	for _, types := range [][]byte{slices.Repeat([]byte{destination}, 9), slices.Repeat([]byte{destination}, 30), append(slices.Repeat([]byte{hopByHop}, 8), fragment)} {
		out = append(out, kind{name: fmt.Sprintf("%d extension headers", len(types)), family: 6, fate: malformed, frame: func(w *world) []byte {
			return w.ip(packet{protocol: 17, extensions: types, body: w.udp(53)})
		}})
	}
	return append(out, kind{name: "no next header", family: 6, fate: judged, frame: func(w *world) []byte {
		return w.ip(packet{protocol: 59, body: w.payload()})
	}}, kind{name: "an extension header that is longer than the packet", family: 6, fate: malformed, frame: func(w *world) []byte {
		f := w.ip(packet{protocol: 17, extensions: []byte{destination}, body: w.udp(53)})
		f[55] = 200
		return f
	}}, kind{name: "an extension header and nothing behind it", family: 6, fate: malformed, frame: func(w *world) []byte {
		return w.ip(packet{protocol: 17, extensions: []byte{destination}})
	}}, kind{name: "encrypted", family: 6, fate: judged, frame: func(w *world) []byte {
		return w.ip(packet{protocol: encrypted, body: w.udp(53)})
	}})
}

// options are those of IPv4 before the ports.
func options() (out []kind) {
	for name, o := range map[string][]byte{
		"nothing": {1, 1, 1, 1}, "end": {0, 0, 0, 0}, "record route": {7, 7, 4, 0, 0, 0, 0}, "timestamps": {68, 8, 5, 0, 0, 0, 0, 0}, "security": {130, 4, 0, 0},
		"router alert": {148, 4, 0, 0}, "what looks like ports": {0x5e, 4, 0, 53}, "40 bytes": slices.Repeat([]byte{1}, 40), "stream": {136, 4, 0, 0},
		"behind the end what looks like a source route": {0, 131, 3, 4},
	} {
		for port, want := range map[uint16]fate{53: allowed, 54: judged} {
			out = append(out, kind{name: fmt.Sprintf("UDP to port %d behind options: %s", port, name), family: 4, fate: want, frame: func(w *world) []byte {
				return w.ip(packet{protocol: 17, options: slices.Clone(o), body: w.udp(port)})
			}})
		}
	}
	return out
}

// routes are source routes.
func routes() (out []kind) {
	hop := []byte{10, 99, 0, 9}
	for name, o := range map[string][]byte{
		"loose": append([]byte{131, 7, 4}, hop...), "strict": append([]byte{137, 7, 4}, hop...), "behind nothing": append([]byte{1, 1, 131, 7, 4}, hop...),
		"behind a record": append([]byte{7, 7, 4, 0, 0, 0, 0, 137, 7, 4}, hop...), "behind 30 of nothing": append(append(slices.Repeat([]byte{1}, 30), 131, 7, 4), hop...),
		"an option without length": {7, 0, 0, 0}, "an option of length 1": {7, 1, 0, 0}, "an option that is longer than the header": {7, 40, 4, 0},
		"an option that ends with the header": {1, 1, 1, 7},
	} {
		out = append(out, kind{name: "options: " + name, family: 4, fate: always(xdp.ReasonRoute), frame: func(w *world) []byte {
			return w.ip(packet{protocol: 17, options: slices.Clone(o), body: w.udp(53)})
		}}, kind{name: "a later fragment with options: " + name, family: 4, fate: always(xdp.ReasonRoute), frame: func(w *world) []byte {
			return w.ip(packet{protocol: 17, options: slices.Clone(o), id: 5, fragment: 20, body: w.udp(53)})
		}})
	}
	for _, kindOf := range []byte{0, 1, 2, 3, 4, 253} {
		for _, before := range [][]byte{{routing}, {hopByHop, destination, routing}, {fragment, routing}} {
			out = append(out, kind{name: fmt.Sprintf("routing header of type %d, headers %v", kindOf, before), family: 6, fate: always(xdp.ReasonRoute), frame: func(w *world) []byte {
				return w.ip(packet{protocol: 17, extensions: before, routing: kindOf, body: w.udp(53)})
			}})
		}
	}
	return out
}

// lengths are such that contradict each other.
func lengths() (out []kind) {
	malformed := always(xdp.ReasonMalformed)
	for name, change := range map[string]func(f []byte) []byte{
		"a header of 16 bytes":                 func(f []byte) []byte { f[14] = 0x44; return f },
		"a total length before the ports":      func(f []byte) []byte { binary.BigEndian.PutUint16(f[16:], 22); return f },
		"a total length of less than a header": func(f []byte) []byte { binary.BigEndian.PutUint16(f[16:], 19); return f },
		"no total length":                      func(f []byte) []byte { binary.BigEndian.PutUint16(f[16:], 0); return f },
		"another version":                      func(f []byte) []byte { f[14] = 0x65; return f },
		"a header that ends behind the packet": func(f []byte) []byte { f[14] = 0x4f; return f[:50] },
	} {
		out = append(out, kind{name: name, family: 4, fate: malformed, frame: func(w *world) []byte {
			return change(w.ip(packet{protocol: 17, body: w.udp(53)}))
		}})
	}
	for name, change := range map[string]func(f []byte) []byte{
		"a payload length before the ports": func(f []byte) []byte { binary.BigEndian.PutUint16(f[18:], 4); return f },
		"no payload length":                 func(f []byte) []byte { binary.BigEndian.PutUint16(f[18:], 0); return f },
		"another version of IPv6":           func(f []byte) []byte { f[14] = 0x45; return f },
	} {
		out = append(out, kind{name: name, family: 6, fate: malformed, frame: func(w *world) []byte {
			return change(w.ip(packet{protocol: 17, body: w.udp(53)}))
		}})
	}
	for n := range 8 {
		out = append(out, kind{name: fmt.Sprintf("UDP of %d bytes", n), fate: malformed, frame: func(w *world) []byte {
			return w.ip(packet{protocol: 17, body: w.udp(53)[:n]})
		}})
	}
	for _, n := range []int{8, 12, 13} {
		out = append(out, kind{name: fmt.Sprintf("TCP of %d bytes", n), fate: malformed, frame: func(w *world) []byte {
			return w.ip(packet{protocol: 6, body: w.tcp(80, 2)[:n]})
		}})
	}
	return append(out, kind{name: "an empty datagram", fate: allowed, frame: func(w *world) []byte {
		return w.ip(packet{protocol: 17, body: w.udp(53)[:8]})
	}}, kind{name: "bytes behind the packet that look like more", fate: judged, frame: func(w *world) []byte {
		return append(w.ip(packet{protocol: 17, body: w.udp(54)}), w.ip(packet{protocol: 17, body: w.udp(53)})[14:]...)
	}}, kind{name: "an offset of TCP's data that is too short", fate: judged, frame: func(w *world) []byte {
		b := w.tcp(22, 2)
		b[12] = 1 << 4
		return w.ip(packet{protocol: 6, body: b})
	}})
}

// fragments are first ones, later ones of nothing, and such that overlap.
func fragments() []kind {
	unmatched := isolated(xdp.ReasonFragment)
	f := func(name string, want fate, id uint16, field uint16, protocol byte, body func(w *world) []byte) kind {
		return kind{name: name, fate: want, frame: func(w *world) []byte {
			return w.ip(packet{protocol: protocol, id: id, fragment: field, body: body(w)})
		}}
	}
	port := func(n uint16) func(w *world) []byte { return func(w *world) []byte { return w.udp(n) } }
	return []kind{
		f("an unmatched later fragment", unmatched, 100, 4, 17, port(53)),
		f("a first fragment that is denied", judged, 101, more, 17, port(54)),
		f("a later fragment of what was denied, which looks like a permitted packet", unmatched, 101, 3|more, 17, port(53)),
		f("a first fragment that is permitted", allowed, 102, more, 17, port(53)),
		f("its later fragment", fate{"", xdp.ReasonFragment, ""}, 102, 3, 17, port(54)),
		f("a later fragment that overlaps it", fate{"", xdp.ReasonFragment, ""}, 102, 1, 17, port(54)),
		f("a first fragment again, to another port", judged, 102, more, 17, port(54)),
		f("a later fragment with another number", unmatched, 103, 3, 17, port(53)),
		f("a later fragment of another protocol", unmatched, 102, 3, 132, port(53)),
		f("a later fragment of TCP", unmatched, 102, 3, 6, port(53)),
		f("a first fragment of TCP that ends before the flags", always(xdp.ReasonMalformed), 104, more, 6, func(w *world) []byte { return w.tcp(80, 2)[:8] }),
		f("a first fragment of UDP that ends in the ports", always(xdp.ReasonMalformed), 105, more, 17, func(w *world) []byte { return w.udp(53)[:2] }),
		{name: "a fragment of TCP that would write over flags", family: 4, fate: always(xdp.ReasonMalformed), frame: func(w *world) []byte {
			return w.ip(packet{protocol: 6, id: 106, fragment: 1, body: w.tcp(80, 2)})
		}},
		f("a fragment that ends beyond 65535", unmatched, 107, 0x1fff, 17, port(53)),
		f("a later fragment of ICMP, whose protocol is denied", judged, 108, 3, 2, port(53)),
	}
}

// tags are those of VLANs.
func tags() (out []kind) {
	nonIP := isolated(xdp.ReasonNonIP)
	for _, c := range []struct {
		name string
		tags []uint16
		want fate
	}{
		{"a tag", []uint16{0x8100}, nonIP}, {"a tag of a provider", []uint16{0x88a8}, nonIP}, {"two tags", []uint16{0x8100, 0x8100}, nonIP},
		{"two tags, one of a provider", []uint16{0x8100, 0x88a8}, nonIP}, {"an old tag of a provider", []uint16{0x9100}, nonIP},
	} {
		for _, vlan := range []uint16{0, 5, 4095} {
			for _, port := range []uint16{53, 54} {
				out = append(out, kind{name: fmt.Sprintf("%s, VLAN %d, UDP to port %d", c.name, vlan, port), fate: c.want, frame: func(w *world) []byte {
					f := w.ip(packet{protocol: 17, body: w.udp(port)})
					for _, t := range c.tags {
						f = tag(f, t, vlan)
					}
					return f
				}})
			}
		}
	}
	return append(out, kind{name: "a tag, from the peer", fate: fate{xdp.ReasonSource, xdp.ReasonNonIP, xdp.ReasonNonIP}, frame: func(w *world) []byte {
		return tag(w.ip(packet{src: w.addr(w.peer), protocol: 17, body: w.udp(53)}), 0x8100, 0)
	}}, kind{name: "a tag, ARP of the peer", family: 4, fate: fate{xdp.ReasonARP, xdp.ReasonNonIP, xdp.ReasonNonIP}, frame: func(w *world) []byte {
		return tag(w.arp(2, w.pod.mac, w.peer.v4, w.pod.v4), 0x8100, 0)
	}})
}

// others are frames that are not IP.
func others() (out []kind) {
	for _, t := range []uint16{0x0000, 0x0040, 0x0200, 0x0801, 0x0842, 0x2000, 0x22f3, 0x6003, 0x8035, 0x809b, 0x8137, 0x8847, 0x8848, 0x8863, 0x8864, 0x886d, 0x888e, 0x8892, 0x88b5, 0x88b6, 0x88cc, 0x88e5, 0x88f7, 0x8906, 0x8914, 0x9000, 0xffff} {
		out = append(out, kind{name: fmt.Sprintf("frame of type %#04x", t), family: 4, fate: isolated(xdp.ReasonNonIP), arrives: t > 0x0600, bridged: true, frame: func(w *world) []byte {
			return w.eth(t, []byte{0xaa, 0xaa, 3, 0, 0, 0, 8, 0}, w.payload(), make([]byte, 46))
		}})
	}
	return append(out, kind{name: "LLC with SNAP that holds IP", family: 4, fate: isolated(xdp.ReasonNonIP), frame: func(w *world) []byte {
		ip := w.ip(packet{protocol: 17, body: w.udp(53)})[14:]
		return w.eth(uint16(8+len(ip)), []byte{0xaa, 0xaa, 3, 0, 0, 0, 8, 0}, ip)
	}})
}

func arps() []kind {
	a := func(name string, want fate, frame func(w *world) []byte) kind {
		return kind{name: "ARP: " + name, family: 4, fate: want, frame: frame, arrives: true, bridged: true}
	}
	forged := always(xdp.ReasonARP)
	change := func(name string, at int, value byte) kind {
		return a(name, forged, func(w *world) []byte {
			f := w.arp(1, w.pod.mac, w.pod.v4, w.peer.v4)
			f[at] = value
			return f
		})
	}
	return []kind{
		a("who has the peer", passes, func(w *world) []byte { return w.arp(1, w.pod.mac, w.pod.v4, w.peer.v4) }),
		a("an answer", passes, func(w *world) []byte { return w.arp(2, w.pod.mac, w.pod.v4, w.peer.v4) }),
		a("gratuitous", passes, func(w *world) []byte { return w.arp(1, w.pod.mac, w.pod.v4, w.pod.v4) }),
		a("a probe for the own address", passes, func(w *world) []byte { return w.arp(1, w.pod.mac, netip.IPv4Unspecified(), w.pod.v4) }),
		a("a probe for the peer's address", forged, func(w *world) []byte { return w.arp(1, w.pod.mac, netip.IPv4Unspecified(), w.peer.v4) }),
		a("an answer from nobody", forged, func(w *world) []byte { return w.arp(2, w.pod.mac, netip.IPv4Unspecified(), w.pod.v4) }),
		a("the peer's address", forged, func(w *world) []byte { return w.arp(2, w.pod.mac, w.peer.v4, w.pod.v4) }),
		a("a question with the peer's address", forged, func(w *world) []byte { return w.arp(1, w.pod.mac, w.peer.v4, w.peer.v4) }),
		a("the gateway's address", forged, func(w *world) []byte { return w.arp(2, w.pod.mac, netip.MustParseAddr("10.99.0.1"), w.peer.v4) }),
		a("another hardware address", forged, func(w *world) []byte { return w.arp(2, w.peer.mac, w.pod.v4, w.peer.v4) }),
		a("a reverse question", forged, func(w *world) []byte { return w.arp(3, w.pod.mac, w.pod.v4, w.peer.v4) }),
		a("no operation", forged, func(w *world) []byte { return w.arp(0, w.pod.mac, w.pod.v4, w.peer.v4) }),
		change("another hardware", 15, 6), change("another protocol", 16, 9), change("hardware addresses of 8 bytes", 18, 8), change("addresses of 16 bytes", 19, 16),
		a("that ends in the middle", forged, func(w *world) []byte { return w.arp(1, w.pod.mac, w.pod.v4, w.peer.v4)[:40] }),
	}
}

// discoveries are messages of neighbour discovery.
func discoveries() []kind {
	forged, away := always(xdp.ReasonNeighbour), isolated(xdp.ReasonNeighbour)
	d := func(name string, want fate, of func(w *world) discovery) kind {
		return kind{name: "neighbour discovery: " + name, family: 6, fate: want, arrives: true, bridged: true, frame: func(w *world) []byte { return w.nd(of(w)) }}
	}
	wired := func(k kind) kind { k.wired = true; return k }
	beyond := func(k kind) kind { k.arrives = false; return k } // it is not for the peer
	asks := func(w *world) discovery { return discovery{kind: 135, dst: solicited(w.peer.v6), target: w.peer.v6} }
	tells := func(w *world) discovery { return discovery{kind: 136, target: w.pod.v6} }
	with := func(of func(w *world) discovery, change func(w *world, d *discovery)) func(w *world) discovery {
		return func(w *world) discovery {
			m := of(w)
			change(w, &m)
			return m
		}
	}
	offLink := netip.MustParseAddr("2001:db8::66")
	return []kind{
		d("who has the peer", passes, asks),
		d("the own address", passes, tells),
		d("a router solicitation", passes, func(*world) discovery { return discovery{kind: 133, dst: allRouters} }),
		d("a router solicitation from nobody", passes, func(*world) discovery { return discovery{kind: 133, dst: allRouters, src: unspecified6} }),
		d("whether somebody has the own address", passes, func(w *world) discovery {
			return discovery{kind: 135, src: unspecified6, dst: solicited(w.pod.v6), target: w.pod.v6}
		}),
		wired(d("from the own address of the link", passes, with(asks, func(w *world, m *discovery) { m.src = linkLocal(w.pod.mac) }))),
		wired(d("the own address of the link", passes, with(tells, func(w *world, m *discovery) { m.src = linkLocal(w.pod.mac); m.target = m.src }))),
		d("from another address of the link", forged, with(asks, func(w *world, m *discovery) { m.src = linkLocal(w.peer.mac) })),
		d("from the gateway's address of the link", forged, with(asks, func(w *world, m *discovery) { m.src = linkLocal(w.gateway) })),
		d("another address of the link", forged, with(tells, func(w *world, m *discovery) { m.target = linkLocal(w.gateway) })),
		d("whether somebody has the peer's address", forged, func(w *world) discovery {
			return discovery{kind: 135, src: unspecified6, dst: solicited(w.peer.v6), target: w.peer.v6}
		}),
		d("from nobody to one address", forged, func(w *world) discovery {
			return discovery{kind: 135, src: unspecified6, dst: w.peer.v6, target: w.pod.v6}
		}),
		d("from the peer", forged, with(asks, func(w *world, m *discovery) { m.src = w.peer.v6 })),
		d("about the peer", forged, with(tells, func(w *world, m *discovery) { m.target = w.peer.v6 })),
		d("about the own address from the peer", forged, with(tells, func(w *world, m *discovery) { m.src = w.peer.v6 })),
		d("an advertisement from nobody", forged, with(tells, func(_ *world, m *discovery) { m.src = unspecified6 })),
		d("hop limit 254", forged, with(asks, func(_ *world, m *discovery) { m.hops = 254 })),
		d("hop limit 64 off the link", forged, with(asks, func(_ *world, m *discovery) { m.hops, m.dst = 64, offLink })),
		d("a code", forged, with(tells, func(_ *world, m *discovery) { m.code = 1 })),
		d("a multicast target", forged, with(asks, func(_ *world, m *discovery) { m.target = allNodes })),
		d("to a multicast address of the site", forged, with(asks, func(_ *world, m *discovery) { m.dst = netip.MustParseAddr("ff05::1") })),
		d("behind an extension header", forged, with(asks, func(_ *world, m *discovery) { m.extensions = []byte{destination} })),
		d("in a fragment", forged, with(asks, func(_ *world, m *discovery) { m.fragment = more })),
		d("a router advertisement", forged, func(*world) discovery { return discovery{kind: 134} }),
		d("a router advertisement from the gateway's address", forged, func(w *world) discovery { return discovery{kind: 134, src: linkLocal(w.gateway)} }),
		d("a router advertisement to the peer", forged, func(w *world) discovery { return discovery{kind: 134, dst: w.peer.v6} }),
		d("a redirect", forged, func(w *world) discovery { return discovery{kind: 137, dst: w.peer.v6, target: w.pod.v6} }),
		beyond(d("a solicitation off the link", away, with(asks, func(_ *world, m *discovery) { m.dst, m.target = offLink, offLink }))),
		beyond(d("an advertisement off the link", away, with(tells, func(_ *world, m *discovery) { m.dst = offLink }))),
		d("a router solicitation off the link", forged, func(*world) discovery { return discovery{kind: 133, dst: offLink} }),
		{name: "neighbour discovery: too short", family: 6, fate: always(xdp.ReasonMalformed), frame: func(w *world) []byte {
			return w.ip(packet{dst: allNodes, protocol: 58, hops: 255, body: w.icmp(w.pod.v6, allNodes, 135, 0, make([]byte, 12)...)})
		}},
	}
}

// icmpErrors are about packets that were never sent.
func icmpErrors() (out []kind) {
	for family, types := range map[int][]byte{4: {3, 11, 12}, 6: {1, 2, 3, 4}} {
		for _, t := range types {
			for name, about := range map[string]func(w *world) []byte{
				"UDP":           func(w *world) []byte { return w.udp(w.port()) },
				"TCP":           func(w *world) []byte { return w.tcp(80, 0x10) },
				"another's UDP": func(w *world) []byte { return w.udp(53) },
			} {
				out = append(out, kind{name: fmt.Sprintf("ICMP error %d about %s", t, name), family: family, fate: isolated(xdp.ReasonError), frame: func(w *world) []byte {
					inner := packet{src: w.addr(w.peer), dst: w.addr(w.pod), protocol: 17, body: about(w)}
					if name == "TCP" {
						inner.protocol = 6
					}
					if name == "another's UDP" {
						inner.dst = w.addr(w.peer)
					}
					quoted := w.ip(inner)[14:]
					return w.ip(packet{protocol: w.icmpProtocol(), body: w.icmp(w.addr(w.pod), w.addr(w.peer), t, 0, append(make([]byte, 4), quoted...)...)})
				}})
			}
		}
		out = append(out, kind{name: "an unrelated ICMP error", family: family, fate: isolated(xdp.ReasonError), frame: func(w *world) []byte {
			return w.ip(packet{protocol: w.icmpProtocol(), body: w.icmp(w.addr(w.pod), w.addr(w.peer), types[0], 0, make([]byte, 4)...)})
		}})
	}
	return out
}

// tunnels are packets in packets, to the peer, and off the node.
func tunnels() (out []kind) {
	want := always(xdp.ReasonTunnel)
	inner := func(w *world) []byte {
		return w.ip(packet{src: w.addr(w.peer), dst: w.addr(w.pod), protocol: 17, body: w.udp(53)})
	}
	for _, family := range []int{4, 6} {
		far := map[int]netip.Addr{4: netip.MustParseAddr("192.0.2.7"), 6: netip.MustParseAddr("2001:db8::7")}[family]
		for _, to := range []netip.Addr{{}, far} {
			for _, port := range xdp.DefaultTunnelPorts {
				out = append(out, kind{name: fmt.Sprintf("a tunnel by UDP, port %d, to %v", port, to), family: family, fate: want, frame: func(w *world) []byte {
					return w.ip(packet{dst: to, protocol: 17, body: slices.Concat(w.udp(port)[:8], []byte{8, 0, 0, 0, 0, 0, 1, 0}, inner(w))})
				}}, kind{name: fmt.Sprintf("the first fragment of a tunnel, port %d, to %v", port, to), family: family, fate: want, frame: func(w *world) []byte {
					return w.ip(packet{dst: to, protocol: 17, id: port, fragment: more, body: slices.Concat(w.udp(port)[:8], []byte{8, 0, 0, 0, 0, 0, 1, 0}, inner(w))})
				}})
			}
			for _, p := range []byte{4, 41, 47} {
				out = append(out, kind{name: fmt.Sprintf("a tunnel of protocol %d to %v", p, to), family: family, fate: want, frame: func(w *world) []byte {
					return w.ip(packet{dst: to, protocol: p, body: inner(w)[14:]})
				}}, kind{name: fmt.Sprintf("a fragment of a tunnel of protocol %d to %v", p, to), family: family, fate: want, frame: func(w *world) []byte {
					return w.ip(packet{dst: to, protocol: p, id: 9, fragment: 4, body: inner(w)[14:]})
				}})
			}
		}
	}
	return append(out, kind{name: "a tunnel behind extension headers", family: 6, fate: want, frame: func(w *world) []byte {
		return w.ip(packet{protocol: 17, extensions: []byte{destination, destination}, body: w.udp(8472)})
	}}, kind{name: "a tunnel behind more extension headers than are read", family: 6, fate: always(xdp.ReasonMalformed), frame: func(w *world) []byte {
		return w.ip(packet{protocol: 41, extensions: slices.Repeat([]byte{destination}, 9), body: inner(w)[14:]})
	}}, kind{name: "a tunnel behind options", family: 4, fate: want, frame: func(w *world) []byte {
		return w.ip(packet{protocol: 47, options: []byte{1, 1, 1, 1}, body: inner(w)[14:]})
	}})
}

// broadcasts go to many.
func broadcasts() (out []kind) {
	for _, a := range []string{"255.255.255.255", "10.99.0.255", "10.255.255.255", "224.0.0.1", "224.0.0.251", "239.1.1.1", "0.0.0.0", "127.0.0.1", "169.254.1.1", "ff02::1", "ff02::2", "ff02::fb", "ff05::1", "ff0e::1", "ff01::1", "::", "::1", "fe80::1", "fe80::99"} {
		dst := netip.MustParseAddr(a)
		family := 4
		if dst.Is6() {
			family = 6
		}
		for name, to := range map[string][]byte{"as it is": nil, "by a broadcast": {255, 255, 255, 255, 255, 255}, "by a multicast": {1, 0, 0x5e, 0, 0, 1}} {
			out = append(out, kind{name: fmt.Sprintf("UDP to port 53 of %s, %s", dst, name), family: family, fate: judged, frame: func(w *world) []byte {
				f := w.ip(packet{dst: dst, protocol: 17, body: w.udp(53)})
				copy(f, to)
				return f
			}})
		}
	}
	return out
}
