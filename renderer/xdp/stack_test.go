package xdp_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// send sends a frame with a packet of IPv4 from a pod to a hardware address.
func (w *wired) send(from *wires.Host, to net.HardwareAddr, frame []byte) {
	w.T.Helper()
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(frame[i:]))
	}
	binary.BigEndian.PutUint16(frame[24:], ^uint16(sum+sum>>16))
	w.Must(wires.Inside(from.NS, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		l, err := netlink.LinkByIndex(from.InPod)
		if err == nil {
			copy(frame, to)
			copy(frame[6:], l.Attrs().HardwareAddr)
			err = wires.Send(fd, frame, &unix.SockaddrLinklayer{Ifindex: from.InPod})
		}
		return errors.Join(err, unix.Close(fd))
	}))
}

// mac returns the hardware address of an interface.
func (w *wired) mac(ns netns.NsHandle, name string) (mac net.HardwareAddr) {
	w.T.Helper()
	w.Must(wires.Inside(ns, func() error {
		l, err := netlink.LinkByName(name)
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	}))
	return mac
}

// hears returns a function that reports whether a datagram arrived at a pod's port before the one
// that last sends, which must arrive.
func (w *wired) hears(pod string, port uint16, last func()) func() bool {
	w.T.Helper()
	return w.hearsAt(w.Pods[pod].NS, netip.AddrPortFrom(w.Pods[pod].V4, port), last)
}

// hearsAt is hears for an address of a namespace.
func (w *wired) hearsAt(ns netns.NsHandle, at netip.AddrPort, last func()) func() bool {
	w.T.Helper()
	var l net.PacketConn
	w.Must(wires.Inside(ns, func() (err error) {
		l, err = net.ListenPacket("udp4", at.String())
		return err
	}))
	return func() bool {
		w.T.Helper()
		defer func() { _ = l.Close() }()
		last()
		heard, b := 0, make([]byte, 64)
		for {
			w.Must(l.SetReadDeadline(time.Now().Add(wires.Patience)))
			n, _, err := l.ReadFrom(b)
			w.Must(err)
			if n > 0 {
				return heard > 0
			}
			heard++ // frames of Frame are empty
		}
	}
}

// says sends a datagram with something in it from pod c.
func (w *wired) says(to netip.AddrPort) {
	w.T.Helper()
	w.Must(wires.Inside(w.Pods["c"].NS, func() error {
		conn, err := net.Dial("udp", to.String())
		if err != nil {
			return err
		}
		_, err = conn.Write([]byte("last"))
		return errors.Join(err, conn.Close())
	}))
}

// TestFrameIsJudgedAtItsDestination lets a pod send to a service by the hardware address of
// another pod. A bridge whose frames are filtered translates it.
func TestFrameIsJudgedAtItsDestination(t *testing.T) {
	t.Parallel()
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{}, "a", "b", "c")
	if _, err := os.Stat("/proc/sys/net/bridge"); err != nil {
		t.Skip("no bridge is filtered here: br_netfilter is not loaded")
	}
	w.Bridge(true)
	b := netip.AddrPortFrom(w.Pods["b"].V4, 9000)
	w.iptables(4, "PREROUTING", "-d", service[4].String(), "-p", "udp", "--dport", "80", "-j", "DNAT", "--to-destination", b.String())
	frame := xdp.Frame(api.Flow{Src: w.Pods["a"].V4, Dst: service[4], Protocol: api.UDP, SrcPort: 1, DstPort: 80}, false)
	for _, c := range []struct {
		what string
		p    map[string]policy
		want bool
	}{
		{"no policy", nil, true},
		{"it may send to everybody but b", map[string]policy{"a": {fromPod: []api.ContivRule{
			{Action: api.Deny, Dst: api.AddrNet(w.Pods["b"].V4)}, {Action: api.Permit},
		}}}, false},
	} {
		w.apply(c.p)
		heard := w.hears("b", 9000, func() { w.says(b) })
		w.send(w.Pods["a"], w.mac(w.Pods["c"].NS, "eth0"), slices.Clone(frame))
		if got := heard(); got != c.want {
			t.Errorf("%s: b has the packet %t, want %t", c.what, got, c.want)
		}
	}
}

// TestFrameToEverybodyIsJudgedAtItsDestination lets a pod send to a service by a broadcast frame,
// which the node receives but does not forward. The service leads to the node.
func TestFrameToEverybodyIsJudgedAtItsDestination(t *testing.T) {
	t.Parallel()
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{}, "a", "c")
	w.addOwn()
	node := netip.AddrPortFrom(own[4], 9000)
	w.iptables(4, "PREROUTING", "-d", service[4].String(), "-p", "udp", "--dport", "80", "-j", "DNAT", "--to-destination", node.String())
	frame := xdp.Frame(api.Flow{Src: w.Pods["a"].V4, Dst: service[4], Protocol: api.UDP, SrcPort: 1, DstPort: 80}, false)
	for _, c := range []struct {
		what string
		from []api.ContivRule
		want bool
	}{
		{"it may send to everybody", []api.ContivRule{{Action: api.Permit}}, true},
		{"it may send to everybody but the node", []api.ContivRule{{Action: api.Deny, Dst: api.AddrNet(own[4])}, {Action: api.Permit}}, false},
	} {
		w.apply(map[string]policy{"a": {fromPod: c.from}})
		heard := w.hearsAt(w.Node, node, func() { w.says(node) })
		w.send(w.Pods["a"], net.HardwareAddr{255, 255, 255, 255, 255, 255}, slices.Clone(frame))
		if got := heard(); got != c.want {
			t.Errorf("%s: the node has the packet %t, want %t", c.what, got, c.want)
		}
	}
}

// TestConnectionsAreNotCreatedFromOutside has a host outside that forges a packet of a pod
// to itself, and answer it.
func TestConnectionsAreNotCreatedFromOutside(t *testing.T) {
	t.Parallel()
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{}, "a", "c", "outside")
	outside, gateway := w.Pods["outside"], w.mac(w.Node, "h-outside")
	delete(w.Pods, "outside") // so that its interface has no pod
	w.apply(map[string]policy{"a": {toPod: closed}})
	heard := w.hears("a", 9000, func() {
		w.apply(nil)
		w.says(netip.AddrPortFrom(w.Pods["a"].V4, 9000))
	})
	forged := api.Flow{Src: w.Pods["a"].V4, Dst: outside.V4, Protocol: api.UDP, SrcPort: 9000, DstPort: 4000}
	w.send(outside, gateway, xdp.Frame(forged, false))
	w.send(outside, gateway, xdp.Frame(forged, true))
	if heard() {
		t.Error("a pod that nobody may send to got an answer to what it never sent")
	}
}

// tagged has an interface of a namespace send all its packets with a tag, as a node does that is a
// container: the tag goes with the packet.
func (w *wired) tagged(ns netns.NsHandle, name string, tag uint16) {
	w.T.Helper()
	const tcIndex, next = 44, -1 // struct __sk_buff, TCX_NEXT of include/uapi/linux/bpf.h
	w.Must(wires.Inside(ns, func() error {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, int32(tag)), asm.StoreMem(asm.R1, tcIndex, asm.R2, asm.Word), asm.Mov.Imm(asm.R0, next), asm.Return(),
		}})
		if err != nil {
			return err
		}
		l, err := netlink.LinkByName(name)
		if err != nil {
			return errors.Join(err, p.Close())
		}
		at, err := link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: p, Attach: ebpf.AttachTCXEgress})
		if err != nil {
			return errors.Join(err, p.Close())
		}
		w.T.Cleanup(func() { _ = errors.Join(at.Close(), p.Close()) }) // the namespace ends
		return nil
	}))
}

// TestFrameTagsOfOtherNodesAreIgnored lets an outside host send packets with every kind of tag of
// this node's pods: they pass only where policy permits them, whatever sender the tag claims.
func TestFrameTagsOfOtherNodesAreIgnored(t *testing.T) {
	t.Parallel()
	const later, judged = 1 << 15, 1 << 14
	for _, kind := range []uint16{later, judged} {
		w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{}, "a", "c", "outside")
		outside, gateway := w.Pods["outside"], w.mac(w.Node, "h-outside")
		w.Serve("a", 80)
		from := w.rules("outside", api.TCP, api.Port(80))
		w.tagged(outside.NS, "eth0", kind|uint16(w.Pods["a"].Index))
		outsiders := map[string]*wires.Host{"outside": outside}
		reaches := func(want bool, what string) {
			w.T.Helper()
			maps.Copy(w.Pods, outsiders)
			w.Can(want, fmt.Sprintf("tag %#x: %s", kind, what), "outside", "a", "tcp", 4, 80)
			delete(w.Pods, "outside") // so that its interface has no pod
		}
		delete(w.Pods, "outside")
		w.apply(map[string]policy{"a": {toPod: from, fromPod: closed}})
		reaches(true, "it is permitted")
		w.apply(map[string]policy{"a": {toPod: closed}})
		reaches(false, "it is not, and is not the pod itself")
		// A packet as of a, which must not open a way back to it.
		heard := w.hears("a", 9000, func() {
			w.apply(nil)
			w.says(netip.AddrPortFrom(w.Pods["a"].V4, 9000))
		})
		forged := api.Flow{Src: w.Pods["a"].V4, Dst: outside.V4, Protocol: api.UDP, SrcPort: 9000, DstPort: 4000}
		w.send(outside, gateway, xdp.Frame(forged, false))
		w.send(outside, gateway, xdp.Frame(forged, true))
		if heard() {
			t.Errorf("tag %#x: a pod that nobody may send to got an answer to what it never sent", kind)
		}
	}
}

// TestFiltersBehindClassifierDoNotOpen has a foreign filter that sets the class of packets, and so
// take away what ours noted.
func TestFiltersBehindClassifierDoNotOpen(t *testing.T) {
	t.Parallel()
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{}, "a", "b")
	w.Serve("b", 80)
	w.addForeign("a", netlink.HANDLE_MIN_INGRESS, 0)
	for _, family := range []int{4, 6} {
		w.apply(map[string]policy{"a": {fromPod: closed}})
		w.Can(false, "it may not send", "a", "b", "tcp", family, 80)
		w.apply(map[string]policy{"a": {toPod: closed}})
		w.Can(true, "answers come", "a", "b", "tcp", family, 80)
	}
}

// asks reports whether a pod gets an answer from an address. It asks no more once something failed,
// as it may wait for each answer.
func (w *wired) asks(want bool, what, from, network string, to netip.AddrPort) {
	w.T.Helper()
	if w.T.Failed() {
		return
	}
	wait := wires.Impatience
	if want {
		wait = wires.Patience
	}
	err := wires.Inside(w.Pods[from].NS, func() error {
		conn, err := net.DialTimeout(network, to.String(), wait)
		if err != nil {
			return err
		}
		return errors.Join(wires.Echo(conn, wait), conn.Close())
	})
	if (err == nil) != want {
		w.T.Errorf("%s: %s from %s to %s: %v, want answered %t", what, network, from, to, err, want)
	}
}

// TestServicesReachPermittedEndpoints checks that packets to a service are judged by their real
// destination, and packets to pods by their original sender, whatever the node translates, for pods
// on veth pairs and on a bridge.
func TestServicesReachPermittedEndpoints(t *testing.T) {
	for _, c := range []struct {
		mode              xdp.Mode
		bridged, filtered bool
	}{
		{xdp.ModeAuto, false, false}, {xdp.ModeClsact, false, false}, {xdp.ModeXDP, false, false}, {xdp.ModeGeneric, false, false},
		{xdp.ModeAuto, true, false}, {xdp.ModeAuto, true, true}, {xdp.ModeXDP, true, true},
	} {
		t.Run(fmt.Sprintf("%s, bridged %t, filtered %t", c.mode, c.bridged, c.filtered), func(t *testing.T) {
			t.Parallel() // they wait most of the time
			if _, err := os.Stat("/proc/sys/net/bridge"); c.filtered && err != nil {
				t.Skip("no bridge is filtered here: br_netfilter is not loaded")
			}
			w := newWired(t, c.mode, xdp.KernelOptions{}, "a", "b", "c")
			if c.bridged {
				w.Bridge(c.filtered)
			}
			w.addOwn()
			w.Serve("b", 8080)
			for _, family := range []int{4, 6} {
				b := netip.AddrPortFrom(w.Pods["b"].Addr(family), 8080).String()
				for _, network := range []string{"tcp", "udp"} {
					w.iptables(family, "PREROUTING", "-d", service[family].String(), "-p", network, "--dport", "81", "-j", "DNAT", "--to-destination", strings.Replace(b, "8080", "8081", 1))
					w.iptables(family, "PREROUTING", "-d", service[family].String(), "-p", network, "--dport", "80", "-j", "DNAT", "--to-destination", b)
				}
				w.translate("b", family)      // to itself
				if c.bridged && !c.filtered { // else answers stay in the bridge, and are not translated back
					w.translate("a", family)
					w.translate("c", family)
				}
			}
			for _, family := range []int{4, 6} {
				for _, network := range []string{"tcp", "udp"} {
					w.services(family, network)
				}
			}
		})
	}
}

// TestServicesAnswerTheirNode has processes of the node use a service that leads to a pod of the
// node: the node gives the answers the address of the service again before they are judged.
func TestServicesAnswerTheirNode(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeXDP, xdp.ModeGeneric} {
		for _, bridged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, bridged %t", mode, bridged), func(t *testing.T) {
				t.Parallel() // they wait most of the time
				w := newWired(t, mode, xdp.KernelOptions{}, "a", "b")
				if bridged {
					w.Bridge(false)
				}
				w.addOwn()
				w.Serve("b", 8080)
				w.sets = map[api.SetID][]netip.Prefix{api.NodeSet: {netip.PrefixFrom(own[4], 32), netip.PrefixFrom(own[6], 128)}}
				from, to := api.ContivRule{Action: api.Permit, Src: api.SetNet(api.NodeSet)}, api.ContivRule{Action: api.Permit, Dst: api.SetNet(api.NodeSet)}
				for _, family := range []int{4, 6} {
					w.route(service[family], own[family])
					b := netip.AddrPortFrom(w.Pods["b"].Addr(family), 8080).String()
					for _, network := range []string{"tcp", "udp"} {
						w.iptables(family, "OUTPUT", "-d", service[family].String(), "-p", network, "--dport", "80", "-j", "DNAT", "--to-destination", b)
						for name, p := range map[string]policy{
							"no policy": {}, "nothing but the node": {toPod: []api.ContivRule{from}, fromPod: []api.ContivRule{to}},
							"ingress": {toPod: []api.ContivRule{from}}, "egress": {fromPod: []api.ContivRule{to}}, "only to the pod": {toPod: []api.ContivRule{from}, fromPod: closed},
						} {
							w.apply(map[string]policy{"b": p})
							if err := w.echoFrom(w.Node, network, netip.AddrPortFrom(service[family], 80), wires.Patience); err != nil {
								t.Errorf("%s, IPv%d, %s: the node gets no answer by the service: %v", name, family, network, err)
							}
						}
						w.apply(map[string]policy{"b": {toPod: closed, fromPod: closed}})
						if err := w.echoFrom(w.Node, network, netip.AddrPortFrom(service[family], 80), wires.Impatience); err == nil {
							t.Errorf("nothing is permitted, IPv%d, %s: the node gets an answer by the service", family, network)
						}
					}
				}
			})
		}
	}
}

// TestServicesStopAnsweringTheirNode has a pod send to a process of the node that asked it by a
// service, after policy closed the pod: the datagram has the address of the service when it is
// judged, and is the pod's all the same.
func TestServicesStopAnsweringTheirNode(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeXDP, xdp.ModeGeneric} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel() // they wait most of the time
			w := newWired(t, mode, xdp.KernelOptions{}, "b")
			w.addOwn()
			for _, family := range []int{4, 6} {
				w.route(service[family], own[family])
				to := netip.AddrPortFrom(w.Pods["b"].Addr(family), 8080)
				w.iptables(family, "OUTPUT", "-d", service[family].String(), "-p", "udp", "--dport", "80", "-j", "DNAT", "--to-destination", to.String())
				w.apply(nil)
				var server net.PacketConn
				w.Must(wires.Inside(w.Pods["b"].NS, func() (err error) {
					server, err = net.ListenPacket("udp", to.String())
					return err
				}))
				defer func() { _ = server.Close() }() // all was read
				var client net.Conn
				w.Must(wires.Inside(w.Node, func() (err error) {
					client, err = net.DialTimeout("udp", netip.AddrPortFrom(service[family], 80).String(), wires.Patience)
					return err
				}))
				defer func() { _ = client.Close() }()
				answers := func(to net.Addr, wait time.Duration) error {
					if _, err := server.WriteTo([]byte("something"), to); err != nil {
						return err
					}
					if err := client.SetReadDeadline(time.Now().Add(wait)); err != nil {
						return err
					}
					_, err := client.Read(make([]byte, 64))
					return err
				}
				_, err := client.Write([]byte("something"))
				w.Must(err)
				w.Must(server.SetReadDeadline(time.Now().Add(wires.Patience)))
				_, from, err := server.ReadFrom(make([]byte, 64))
				w.Must(err)
				w.Must(answers(from, wires.Patience))
				w.apply(map[string]policy{"b": {toPod: closed, fromPod: closed}})
				if err := answers(from, wires.Impatience); err == nil {
					t.Errorf("IPv%d: the pod that may send nothing answers by the service", family)
				}
			}
		})
	}
}

// route has the node send to an address from one of its own.
func (w *wired) route(to, from netip.Addr) {
	w.T.Helper()
	w.Must(wires.Inside(w.Node, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(to.BitLen(), to.BitLen())}, Src: from.AsSlice()})
	}))
}

// echoFrom sends a few bytes from a network namespace and waits for them.
func (w *wired) echoFrom(ns netns.NsHandle, network string, to netip.AddrPort, wait time.Duration) error {
	return wires.Inside(ns, func() error {
		conn, err := net.DialTimeout(network, to.String(), wait)
		if err != nil {
			return err
		}
		return errors.Join(wires.Echo(conn, wait), conn.Close())
	})
}

// refused checks that a pod learns that a port is closed.
func (w *wired) refused(from, network string, to netip.AddrPort) {
	w.T.Helper()
	err := wires.Inside(w.Pods[from].NS, func() error {
		conn, err := net.DialTimeout(network, to.String(), wires.Patience)
		if err != nil {
			return err
		}
		return errors.Join(wires.Echo(conn, wires.Patience), conn.Close())
	})
	if !errors.Is(err, unix.ECONNREFUSED) {
		w.T.Errorf("%s from %s to %s: %v, want that it is refused", network, from, to, err)
	}
}

func (w *wired) services(family int, network string) {
	svc := netip.AddrPortFrom(service[family], 80)
	to := func(pod string) (rules []api.ContivRule) {
		for _, r := range w.rules(pod, api.AnyProtocol, api.AnyPort) {
			rules = append(rules, api.ContivRule{Action: api.Permit, Dst: r.Src})
		}
		return rules
	}
	others := append(deny(to("b")), api.ContivRule{Action: api.Permit})
	from := func(pod string) []api.ContivRule { return w.rules(pod, api.AnyProtocol, api.AnyPort) }
	w.apply(nil)
	w.asks(true, "no policy", "a", network, svc)
	w.Can(true, "no policy", "a", "b", network, family, 8080)
	w.asks(true, "no policy: itself", "b", network, svc)
	w.apply(map[string]policy{"a": {fromPod: to("b")}})
	w.asks(true, "may send to the pod behind it", "a", network, svc)
	w.asks(true, "is not policed", "c", network, svc)
	w.apply(map[string]policy{"a": {fromPod: to("c")}})
	w.asks(false, "may send to another pod", "a", network, svc)
	w.Can(false, "may send to another pod", "a", "b", network, family, 8080)
	w.apply(map[string]policy{"a": {fromPod: others}})
	w.asks(false, "may send to everybody but the pod behind it", "a", network, svc)
	w.apply(map[string]policy{"a": {fromPod: []api.ContivRule{{Action: api.Permit, Dst: api.AddrNet(service[family])}}}})
	w.asks(false, "may send to the address of the service, which means nothing", "a", network, svc)
	w.apply(map[string]policy{"a": {toPod: closed}})
	w.asks(true, "answers need not be permitted", "a", network, svc)
	w.apply(map[string]policy{"a": {toPod: closed, fromPod: to("b")}})
	w.asks(true, "both directions at the sender", "a", network, svc)
	w.Can(true, "both directions at the sender", "a", "b", network, family, 8080)
	w.Can(true, "both directions at the sender", "a", "b", "icmp", family, 0)
	w.refused("a", network, netip.AddrPortFrom(service[family], 81))
	w.apply(map[string]policy{"a": {toPod: closed, fromPod: to("b")}, "b": {toPod: from("a"), fromPod: closed}})
	w.asks(true, "both directions at both", "a", network, svc)
	w.asks(false, "somebody who may not", "c", network, svc)
	w.asks(true, "itself, which nobody may forbid", "b", network, svc)
	w.apply(map[string]policy{"b": {toPod: from("c"), fromPod: closed}})
	w.asks(false, "the receiver permits another one", "a", network, svc)
	w.asks(true, "the receiver permits it", "c", network, svc)
}
