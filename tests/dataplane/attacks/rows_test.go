package attacks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// from changes the source of a frame of the pod; hardware addresses stay.
func (w *world) from(e end, f func() []byte) []byte {
	pod, peer := w.pod, w.peer
	w.pod, w.peer = e, pod
	defer func() { w.pod, w.peer = pod, peer }()
	w.mark++
	return f()
}

func (g *rig) want(w *world, reason xdp.Reason, what string, dir compile.Direction, frame []byte) {
	g.t.Helper()
	if ok, why := g.probe(labID, dir, frame); why != reason || ok != (why == "") {
		g.t.Errorf("%s, IPv%d: passes %t, dropped for %q, want %q", what, w.family, ok, why, reason)
	}
}

// TestNeighbourDiscoveryIsNoBypass lets a pod that may send nothing answer neighbour solicitations
// from the link, and only those.
func TestNeighbourDiscoveryIsNoBypass(t *testing.T) {
	g, w := newLab(t, xdp.KernelOptions{})
	w.family = 6
	toPod, fromPod := lists(1, w.peer)
	g.apply("a", toPod, fromPod)
	far := end{mac: w.gateway, v6: netip.MustParseAddr("2001:db8::66")}
	answer := func(to end) []byte {
		w.mark++
		return w.nd(discovery{kind: 136, dst: to.v6, target: w.pod.v6})
	}
	ask := func(by end, hops byte) []byte {
		return w.from(by, func() []byte { return w.nd(discovery{kind: 135, dst: w.peer.v6, target: w.peer.v6, hops: hops}) })
	}
	g.want(w, xdp.ReasonNeighbour, "an answer that nobody asked for", compile.FromPod, answer(w.peer))
	g.want(w, "", "a question from the link", compile.ToPod, ask(w.peer, 255))
	g.want(w, "", "its answer", compile.FromPod, answer(w.peer))
	g.want(w, "", "a question to one who was on the link", compile.FromPod, w.nd(discovery{kind: 135, dst: w.peer.v6, target: w.peer.v6}))
	g.want(w, xdp.ReasonNeighbour, "a question to another one", compile.ToPod, w.from(w.peer, func() []byte { return w.nd(discovery{kind: 135, dst: far.v6, target: far.v6}) }))
	g.want(w, xdp.ReasonNeighbour, "a question that a router forwarded", compile.ToPod, ask(far, 254))
	g.want(w, xdp.ReasonNeighbour, "its answer", compile.FromPod, answer(far))
	echo := w.ip(packet{protocol: 58, body: w.icmp(w.pod.v6, w.peer.v6, 129, 0, make([]byte, 12)...)})
	g.want(w, xdp.ReasonPolicy, "an echo to one who was on the link", compile.FromPod, echo)
}

// TestICMPErrorsBelongToConnections, in both directions, and are limited.
func TestICMPErrorsBelongToConnections(t *testing.T) {
	g, w := newLab(t, xdp.KernelOptions{})
	list := func(rules ...api.ContivRule) *renderer.RuleList {
		return renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
	}
	udp := api.ContivRule{Action: api.Permit, Protocol: api.UDP, DstPort: api.Port(53)}
	failure := func(inner []byte) []byte {
		return w.ip(packet{protocol: w.icmpProtocol(), body: w.icmp(w.addr(w.pod), w.addr(w.peer), map[int]byte{4: 3, 6: 1}[w.family], 3, append(make([]byte, 4), inner[14:]...)...)})
	}
	for _, w.family = range []int{4, 6} {
		g.apply("a", list(udp), list(udp))
		out := w.ip(packet{protocol: 17, body: w.udp(53)})
		in := w.from(w.peer, func() []byte { return w.ip(packet{protocol: 17, body: w.udp(53)}) })
		g.want(w, xdp.ReasonError, "from the pod, about a packet that was not sent to it", compile.FromPod, failure(in))
		g.want(w, xdp.ReasonError, "to the pod, about a packet that it did not send", compile.ToPod, w.from(w.peer, func() []byte { return failure(out) }))
		g.want(w, "", "a packet of the pod", compile.FromPod, out)
		g.want(w, "", "a packet to the pod", compile.ToPod, in)
		g.want(w, "", "from the pod, about a packet that was sent to it", compile.FromPod, failure(in))
		g.want(w, "", "to the pod, about a packet that it sent", compile.ToPod, w.from(w.peer, func() []byte { return failure(out) }))
		g.apply("a", list(), list(udp))
		g.want(w, xdp.ReasonError, "about a connection that policy forbids now", compile.FromPod, failure(in))
		all := api.ContivRule{Action: api.Permit}
		g.apply("a", list(all), list(all))
		never := w.from(w.peer, func() []byte { return w.ip(packet{protocol: 17, body: w.udp(5353)}) })
		g.want(w, "", "both lists permit the packet", compile.FromPod, failure(never))
	}
	passed, limited := 0, 0
	g.apply("a", list(udp), list(udp))
	in := w.from(w.peer, func() []byte { return w.ip(packet{protocol: 17, body: w.udp(53)}) })
	g.want(w, "", "a packet to the pod", compile.ToPod, in)
	for range 400 {
		switch ok, why := g.probe(labID, compile.FromPod, failure(in)); {
		case ok:
			passed++
		case why == xdp.ReasonErrors:
			limited++
		default:
			t.Fatalf("an ICMP error of a connection is dropped for %q", why)
		}
	}
	if limited == 0 || passed < 80 {
		t.Errorf("of 400 ICMP errors at once %d pass and %d are too many", passed, limited)
	}
	out := w.ip(packet{protocol: 17, body: w.udp(53)})
	g.want(w, "", "a packet of the pod", compile.FromPod, out)
	g.want(w, "", "to the pod, behind too many from it", compile.ToPod, w.from(w.peer, func() []byte { return failure(out) }))
}

// TestFramesToIsolatedPods sends frames that no sender with an interface produces.
func TestFramesToIsolatedPods(t *testing.T) {
	g, w := newLab(t, xdp.KernelOptions{})
	w.family = 6
	for situation := range situations {
		toPod, fromPod := lists(situation, w.peer)
		g.apply("a", toPod, fromPod)
		nonIP, policy := xdp.ReasonNonIP, xdp.ReasonPolicy
		if situation == 0 {
			nonIP, policy = "", ""
		}
		g.want(w, nonIP, "a frame that is not IP", compile.ToPod, w.from(w.peer, func() []byte { return w.eth(0x88b5, w.payload()) }))
		g.want(w, nonIP, "a tag", compile.ToPod, w.from(w.peer, func() []byte { return tag(w.ip(packet{protocol: 17, body: w.udp(53)}), 0x8100, 0) }))
		g.want(w, policy, "multicast", compile.ToPod, w.from(w.peer, func() []byte { return w.ip(packet{dst: allNodes, protocol: 17, body: w.udp(53)}) }))
		g.want(w, "", "ARP", compile.ToPod, w.from(w.peer, func() []byte { return w.arp(1, w.pod.mac, w.pod.v4, w.peer.v4) }))
		g.want(w, "", "a router advertisement of the node", compile.ToPod, w.from(w.peer, func() []byte { return w.nd(discovery{kind: 134, src: linkLocal(w.pod.mac)}) }))
		g.want(w, xdp.ReasonNeighbour, "a router advertisement from afar", compile.ToPod, w.from(w.peer, func() []byte { return w.nd(discovery{kind: 134, src: linkLocal(w.pod.mac), hops: 254}) }))
	}
}

// TestSettingsLoosen what is dropped, and nothing else.
func TestSettingsLoosen(t *testing.T) {
	for name, c := range map[string]struct {
		options                         xdp.KernelOptions
		nonIP, tunnel, port, arp, hopto xdp.Reason
	}{
		"nothing":    {xdp.KernelOptions{}, xdp.ReasonNonIP, xdp.ReasonTunnel, xdp.ReasonPolicy, xdp.ReasonARP, xdp.ReasonNeighbour},
		"non-IP":     {xdp.KernelOptions{NonIP: true}, "", xdp.ReasonTunnel, xdp.ReasonPolicy, xdp.ReasonARP, xdp.ReasonNeighbour},
		"tunnels":    {xdp.KernelOptions{PodTunnels: true}, xdp.ReasonNonIP, xdp.ReasonPolicy, xdp.ReasonPolicy, xdp.ReasonARP, xdp.ReasonNeighbour},
		"ports":      {xdp.KernelOptions{TunnelPorts: []uint16{1, 2, 3, 4, 5, 6, 7, 7777}}, xdp.ReasonNonIP, xdp.ReasonPolicy, xdp.ReasonTunnel, xdp.ReasonARP, xdp.ReasonNeighbour},
		"no ports":   {xdp.KernelOptions{TunnelPorts: []uint16{}}, xdp.ReasonNonIP, xdp.ReasonPolicy, xdp.ReasonPolicy, xdp.ReasonARP, xdp.ReasonNeighbour},
		"any source": {xdp.KernelOptions{AnySource: true}, xdp.ReasonNonIP, xdp.ReasonTunnel, xdp.ReasonPolicy, "", xdp.ReasonNeighbour},
	} {
		t.Run(name, func(t *testing.T) {
			g, w := newLab(t, c.options)
			toPod, fromPod := lists(1, w.peer)
			g.apply("a", toPod, fromPod)
			w.family = 4
			g.want(w, c.nonIP, "a frame that is not IP", compile.FromPod, w.eth(0x88b5, w.payload()))
			g.want(w, c.tunnel, "VXLAN", compile.FromPod, w.ip(packet{protocol: 17, body: w.udp(4789)}))
			g.want(w, c.port, "another port", compile.FromPod, w.ip(packet{protocol: 17, body: w.udp(7777)}))
			g.want(w, c.arp, "ARP of another", compile.FromPod, w.arp(2, w.pod.mac, w.peer.v4, w.pod.v4))
			w.family = 6
			g.want(w, c.hopto, "a router advertisement", compile.FromPod, w.nd(discovery{kind: 134}))
			g.want(w, c.hopto, "neighbour discovery that a router forwarded", compile.FromPod, w.nd(discovery{kind: 135, target: w.peer.v6, hops: 254}))
			if c.nonIP == "" {
				g.want(w, xdp.ReasonPolicy, "IP behind a tag", compile.FromPod, tag(w.ip(packet{protocol: 17, body: w.udp(53)}), 0x8100, 0))
				g.want(w, xdp.ReasonSource, "IP of another behind two tags", compile.FromPod, tag(tag(w.ip(packet{src: w.peer.v6, protocol: 17, body: w.udp(53)}), 0x8100, 0), 0x8100, 0))
			}
		})
	}
	if _, err := xdp.NewKernel(xdp.KernelOptions{Mode: xdp.ModeNone, TunnelPorts: make([]uint16, xdp.MaxTunnelPorts+1)}); err == nil {
		t.Error("more ports of tunnels than a program knows are taken")
	}
}

// TestAddressReusedHasNoConnections: the next pod with an address, or with the number of
// an interface, gets no answers to what the one before asked.
func TestAddressReusedHasNoConnections(t *testing.T) {
	g, w := newLab(t, xdp.KernelOptions{})
	toPod, fromPod := lists(2, w.peer)
	for _, w.family = range []int{4, 6} {
		g.apply("a", toPod, fromPod)
		w.mark++
		ask := w.ip(packet{protocol: 17, body: w.udp(53)})
		reply := w.ip(packet{src: w.addr(w.peer), dst: w.addr(w.pod), protocol: 17, body: slices.Concat(be16(53), be16(w.port()), be16(8+14), []byte{0, 0}, w.payload())})
		g.want(w, "", "a question", compile.FromPod, ask)
		g.want(w, "", "its answer", compile.ToPod, reply)
		ips := g.pods["a"]
		g.pods["b"], g.pods["a"] = ips, []netip.Addr{netip.MustParseAddr("10.99.0.77")}
		g.apply("b", toPod, fromPod)
		if ok, why := g.probe(otherID, compile.ToPod, reply); ok || why != xdp.ReasonPolicy {
			t.Errorf("an answer to the pod that had the address before, IPv%d: passes %t, dropped for %q", w.family, ok, why)
		}
		g.pods["a"], g.pods["b"] = ips, []netip.Addr{w.peer.v4, w.peer.v6}
	}
}

// TestTunnelsBehindService have a service lead to a port of the node.
func TestTunnelsBehindService(t *testing.T) {
	for _, bridged := range []bool{false, true} {
		s := newStreet(t, xdp.ModeAuto, bridged)
		program, err := exec.LookPath("iptables")
		if err != nil {
			t.Skipf("no packets are translated here: %v", err)
		}
		service, node := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.99.9.9")
		s.must(wires.Inside(s.cable.Node, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return errors.Join(netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(node.AsSlice())}),
				exec.Command(program, "-w", "-t", "nat", "-A", "PREROUTING", "-d", service.String(), "-p", "udp", "-j", "DNAT", "--to-destination", node.String()+":8472").Run())
		}))
		s.family = 4
		for situation := range situations {
			toPod, fromPod := lists(situation, s.peer)
			if situation == 2 {
				fromPod = renderer.NewRuleList([]api.ContivRule{{Action: api.Permit}}, nil)
			}
			s.apply("a", toPod, fromPod)
			s.settle()
			before := s.drops()
			s.mark++
			s.send(s.ip(packet{dst: service, protocol: 17, body: s.udp(53)}))
			s.settle()
			if got := s.drops()[xdp.ReasonTunnel] - before[xdp.ReasonTunnel]; got != 1 {
				t.Errorf("bridged %t, %s: %d packets to a service that leads to a tunnel of the node are dropped, want 1", bridged, situations[situation], got)
			}
		}
	}
}

// TestLargePackets sends segments that the kernel is to cut (GSO), larger than any frame.
func TestLargePackets(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeXDP, xdp.ModeGeneric} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel() // they wait at times
			s := newStreet(t, mode, false)
			toPod, fromPod := lists(2, s.peer)
			s.apply("a", toPod, fromPod)
			s.must(unix.SetsockoptInt(s.out, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1))
			plain := make([]byte, 10)
			for _, s.family = range []int{4, 6} {
				segments := func(port uint16) []byte {
					s.mark++
					frame := s.ip(packet{protocol: 6, body: append(make([]byte, 0), slices.Concat(s.tcp(port, 0x10)[:20], make([]byte, 30000), s.payload())...)})
					network := 20
					header := []byte{1, 1, 0, 0, 0, 0, 0, 0, 0, 0} // a checksum is needed; TCP of IPv4
					if s.family == 6 {
						network, header[1] = 40, 4
					}
					binary.NativeEndian.PutUint16(header[2:], uint16(14+network+20))
					binary.NativeEndian.PutUint16(header[4:], 1400)
					binary.NativeEndian.PutUint16(header[6:], uint16(14+network))
					binary.NativeEndian.PutUint16(header[8:], 16)
					return append(header, frame...)
				}
				for port, want := range map[uint16]bool{80: true, 22: false} {
					frame := segments(port)
					mark := s.mark
					s.send(frame)
					if got := s.heardPlain(plain)[mark] > 0; got != want {
						t.Errorf("segments to port %d, IPv%d: they arrive %t, want %t", port, s.family, got, want)
					}
				}
			}
		})
	}
}

// TestJumboFrames has interfaces that carry frames of more than a page, before programs are
// attached and after.
func TestJumboFrames(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeXDP, xdp.ModeGeneric} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, MTU is raised late %t", mode, late), func(t *testing.T) {
				t.Parallel() // they wait at times
				s := newStreetOf(t, mode, false, func(c *wires.Cable) {
					if !late {
						jumbo(c)
					}
				})
				if late {
					jumbo(s.cable)
				}
				toPod, fromPod := lists(2, s.peer)
				s.apply("a", toPod, fromPod)
				for _, s.family = range []int{4, 6} {
					for port, want := range map[uint16]bool{80: true, 22: false} {
						s.mark++
						mark := s.mark
						s.send(s.ip(packet{protocol: 6, body: slices.Concat(s.tcp(port, 2)[:20], make([]byte, 8700), s.payload())}))
						if got := s.heard()[mark] > 0; got != want {
							t.Errorf("a frame to port %d, IPv%d: it arrives %t, want %t", port, s.family, got, want)
						}
					}
				}
			})
		}
	}
}

// jumbo sets the MTU of all interfaces of pods to 9 000 bytes, at both ends.
func jumbo(c *wires.Cable) {
	const mtu = 9000
	for name, h := range c.Pods {
		c.Must(wires.Inside(c.Node, func() error { return setMTU("h-"+name, mtu) }))
		c.Must(wires.Inside(h.NS, func() error { return setMTU("eth0", mtu) }))
	}
}

func setMTU(name string, mtu int) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetMTU(l, mtu)
}

// heardPlain does what heard does while frames are sent behind a header.
func (s *street) heardPlain(header []byte) map[uint64]int {
	s.header = header
	defer func() { s.header = nil }()
	return s.heard()
}
