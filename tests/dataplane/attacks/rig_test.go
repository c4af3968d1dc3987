package attacks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/xdptest"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// situations are those of fate, for the hostile pod.
var situations = []string{"without policy", "nothing is permitted", "little is permitted"}

// lists returns the rules of the hostile pod in a situation: to the pod and from it; nil is no
// list.
func lists(situation int, peer end) (toPod, fromPod *renderer.RuleList) {
	var rules []api.ContivRule
	switch situation {
	case 0:
		return nil, nil
	case 2:
		for _, a := range []netip.Addr{peer.v4, peer.v6} {
			rules = append(rules, api.ContivRule{Action: api.Permit, Dst: api.AddrNet(a), Protocol: api.TCP, DstPort: api.Port(80)},
				api.ContivRule{Action: api.Permit, Dst: api.AddrNet(a), Protocol: api.UDP, DstPort: api.Port(53)})
		}
	}
	return renderer.NewRuleList([]api.ContivRule{{}}, nil), renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
}

// rig is a kernel with a renderer, for pods that get their interfaces by name.
type rig struct {
	t      *testing.T
	kernel *xdp.Kernel
	r      *xdp.Renderer
	pods   map[string][]netip.Addr
	inside func(f func() error) error
}

func newRig(t *testing.T, o xdp.KernelOptions, ids map[string]uint32, pods map[string][]netip.Addr, inside func(f func() error) error) *rig {
	t.Helper()
	g := &rig{t: t, pods: pods, inside: inside}
	o.Flows = 1 << 14
	g.must(inside(func() (err error) {
		g.kernel, err = xdp.NewKernel(o)
		return err
	}))
	var err error
	g.r, err = xdp.New(xdp.Options{Dataplane: g.kernel, Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 { return []uint32{ids[pod.Name]} }})
	g.must(err)
	t.Cleanup(func() { g.must(errors.Join(g.r.Close(), inside(g.kernel.Close))) })
	return g
}

func (g *rig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatalf("%+v", err)
	}
}

// apply puts one pod into a situation, and leaves the others without policy.
func (g *rig) apply(name string, toPod, fromPod *renderer.RuleList) {
	g.t.Helper()
	changes := renderer.Changes{Resync: true}
	for pod, ips := range g.pods {
		c := renderer.PodConfig{IPs: ips}
		if pod == name {
			c.Egress, c.Ingress = toPod, fromPod
		}
		changes.Render(api.PodID{Namespace: "attacks", Name: pod}, c)
	}
	g.must(g.inside(func() error { return g.r.Apply(context.Background(), changes) }))
}

// drops returns how many packets were dropped, by why.
func (g *rig) drops() map[xdp.Reason]uint64 {
	g.t.Helper()
	d, err := g.kernel.Drops()
	g.must(err)
	return d
}

// since returns the reason that was counted once since before, empty for none.
func (g *rig) since(before map[xdp.Reason]uint64) (why xdp.Reason) {
	g.t.Helper()
	for r, n := range g.drops() {
		switch n - before[r] {
		case 0:
		case 1:
			if why == "" {
				why = r
				continue
			}
			fallthrough
		default:
			g.t.Fatalf("one packet is dropped %d times for %q, and before for %q", n-before[r], r, why)
		}
	}
	return why
}

const labID, otherID = 7, 8

// newLab is a rig without interfaces, whose programs are asked.
func newLab(t *testing.T, o xdp.KernelOptions) (*rig, *world) {
	t.Helper()
	if err := xdptest.Missing(); err != nil {
		t.Skip(err)
	}
	w := &world{
		pod:  end{mac: []byte{2, 1, 1, 1, 1, 2}, v4: netip.MustParseAddr("10.99.0.2"), v6: netip.MustParseAddr("fd00::2")},
		peer: end{mac: []byte{2, 1, 1, 1, 1, 3}, v4: netip.MustParseAddr("10.99.0.3"), v6: netip.MustParseAddr("fd00::3")}, gateway: []byte{2, 0, 0, 0, 0, 1}, via: []byte{2, 0, 0, 0, 0, 1},
	}
	o.Mode = xdp.ModeNone
	g := newRig(t, o, map[string]uint32{"a": labID, "b": otherID}, map[string][]netip.Addr{"a": {w.pod.v4, w.pod.v6}, "b": {w.peer.v4, w.peer.v6}}, func(f func() error) error { return f() })
	return g, w
}

// probe reports whether a packet passes, and why it does not.
func (g *rig) probe(id uint32, dir compile.Direction, frame []byte) (bool, xdp.Reason) {
	g.t.Helper()
	before := g.drops()
	ok, err := g.kernel.Probe(id, dir, frame)
	g.must(err)
	return ok, g.since(before)
}

// street is a rig with pods at real interfaces: a is hostile, b its peer, c another one.
type street struct {
	*rig
	*world
	cable   *wires.Cable
	out, in int    // sockets of a, and of b
	header  []byte // precedes what settle sends
}

func newStreet(t *testing.T, mode xdp.Mode, bridged bool) *street {
	t.Helper()
	return newStreetOf(t, mode, bridged, func(*wires.Cable) {})
}

// newStreetOf is newStreet on a cable that is prepared before programs are attached.
func newStreetOf(t *testing.T, mode xdp.Mode, bridged bool, prepare func(c *wires.Cable)) *street {
	t.Helper()
	if err := xdptest.Missing(); err != nil {
		t.Skip(err)
	}
	c := wires.New(t, "a", "b", "c")
	if bridged {
		c.Bridge(false)
	}
	prepare(c)
	s := &street{world: &world{}, cable: c}
	ids, pods := map[string]uint32{}, map[string][]netip.Addr{}
	for name, h := range c.Pods {
		ids[name], pods[name] = uint32(h.Index), []netip.Addr{h.V4, h.V6}
	}
	s.rig = newRig(t, xdp.KernelOptions{Mode: mode}, ids, pods, func(f func() error) error { return wires.Inside(c.Node, f) })
	s.pod, s.peer = s.end("a"), s.end("b")
	s.must(wires.Inside(c.Node, func() error {
		name := "h-a"
		if bridged {
			name = "br0"
		}
		l, err := netlink.LinkByName(name)
		if err == nil {
			s.gateway = l.Attrs().HardwareAddr
		}
		return err
	}))
	s.via = s.gateway
	s.out, s.in = s.socket("a", 0), s.socket("b", unix.ETH_P_ALL)
	s.awaitWays()
	return s
}

// awaitWays waits until the node forwards to the peer in both families: it looks for it first, and
// checks its own addresses before that (RFC 4862, section 5.4).
func (s *street) awaitWays() {
	s.t.Helper()
	toPod, fromPod := lists(0, s.peer)
	s.apply("a", toPod, fromPod)
	all := kinds()
	k := all[slices.IndexFunc(all, func(k kind) bool { return k.name == "echo" })]
	for _, s.family = range k.families() {
		for end := time.Now().Add(wires.Patience); ; runtime.Gosched() {
			s.mark++
			mark := s.mark
			s.send(k.frame(s.world))
			if s.heard()[mark] > 0 {
				break
			}
			if time.Now().After(end) {
				s.t.Fatalf("the node does not forward IPv%d to the peer", s.family)
			}
		}
	}
}

func (s *street) end(name string) (e end) {
	s.t.Helper()
	h := s.cable.Pods[name]
	e.v4, e.v6 = h.V4, h.V6
	s.must(wires.Inside(h.NS, func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			e.mac = l.Attrs().HardwareAddr
		}
		return err
	}))
	return e
}

// socket opens a raw socket of a pod.
func (s *street) socket(pod string, protocol uint16) (fd int) {
	s.t.Helper()
	h := s.cable.Pods[pod]
	s.must(wires.Inside(h.NS, func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		tv := unix.NsecToTimeval(int64(wires.Patience))
		big := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, protocol))
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
			unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: h.InPod, Protocol: big}))
	}))
	s.t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func (s *street) send(frame []byte) {
	s.t.Helper()
	s.must(wires.Send(s.out, frame, nil))
}

// settle waits until all that was sent is decided: behind it goes a packet that is dropped, and
// counted.
func (s *street) settle() {
	s.t.Helper()
	before := s.drops()[xdp.ReasonARP]
	s.send(append(slices.Clone(s.header), s.arp(3, s.pod.mac, s.pod.v4, s.peer.v4)...))
	for end := time.Now().Add(wires.Patience); s.drops()[xdp.ReasonARP] == before; runtime.Gosched() {
		if time.Now().After(end) {
			s.t.Fatal("what is dropped is not counted")
		}
	}
}

// heard returns the marks of what arrived at the peer so far: the last is a datagram of another
// pod.
func (s *street) heard() map[uint64]int {
	s.t.Helper()
	s.settle()
	s.mark++
	last := s.mark
	s.must(wires.Inside(s.cable.Pods["c"].NS, func() error {
		conn, err := net.Dial("udp", netip.AddrPortFrom(s.peer.v4, 9).String())
		if err != nil {
			return err
		}
		_, err = conn.Write(s.payload())
		return errors.Join(err, conn.Close())
	}))
	out := map[uint64]int{}
	for b := make([]byte, 1<<17); ; {
		n, from, err := unix.Recvfrom(s.in, b, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		s.must(err)
		if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		i := bytes.LastIndex(b[:n], []byte("sluice"))
		if i < 0 || i+14 > n {
			continue
		}
		mark := binary.BigEndian.Uint64(b[i+6:])
		if mark == last {
			return out
		}
		out[mark]++
	}
}
