package attacks

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// nodeAddrs are addresses of the node of a street, beside those of its gateway.
var nodeAddrs = end{v4: netip.MustParseAddr("10.99.9.9"), v6: netip.MustParseAddr("fd00:99::9")}

// policy is that of a pod: the rules of its lists; nil is no list.
type policy struct{ toPod, fromPod []api.ContivRule }

// enforce gives pods their policies, and rules for the own node their meaning.
func (g *rig) enforce(policies map[string]policy) {
	g.t.Helper()
	list := func(rules []api.ContivRule) *renderer.RuleList {
		if rules == nil {
			return nil
		}
		return renderer.NewRuleList(append(slices.Clone(rules), api.ContivRule{}), nil)
	}
	txn := renderer.Changes{Resync: true}
	txn.UpdateSet(api.NodeSet, []netip.Prefix{netip.PrefixFrom(nodeAddrs.v4, 32), netip.PrefixFrom(nodeAddrs.v6, 128)}, nil)
	for pod, ips := range g.pods {
		txn.Render(api.PodID{Namespace: "attacks", Name: pod}, renderer.PodConfig{IPs: ips, Egress: list(policies[pod].toPod), Ingress: list(policies[pod].fromPod)})
	}
	g.must(g.inside(func() error { return g.r.Apply(context.Background(), txn) }))
}

var (
	fromNode = api.ContivRule{Action: api.Permit, Src: api.SetNet(api.NodeSet)}
	toNode   = api.ContivRule{Action: api.Permit, Dst: api.SetNet(api.NodeSet)}
	nothing  = []api.ContivRule{}
)

// third permits what heard sends last.
func (s *street) third() api.ContivRule {
	return api.ContivRule{Action: api.Permit, Src: api.AddrNet(s.cable.Pods["c"].V4), Protocol: api.UDP, DstPort: api.Port(9)}
}

// outsider is a host beside the pods, whose interface has no program.
type outsider struct {
	*world
	street *street
	fd     int
}

// newOutsider connects a host, to which peer is b, and has connections tracked on the node.
func (s *street) newOutsider() *outsider {
	s.t.Helper()
	h := &wires.Host{Name: "x", NS: wires.Namespace(s.t), V4: netip.MustParseAddr("10.98.0.66"), V6: netip.MustParseAddr("fd98::66")}
	s.cable.Pods["x"] = h
	s.cable.Plug(h)
	o := &outsider{world: &world{pod: s.end("x"), peer: s.peer}, street: s, fd: s.socket("x", 0)}
	s.must(wires.Inside(s.cable.Node, func() error {
		near, err := netlink.LinkByName("h-x")
		if err != nil {
			return err
		}
		o.via = near.Attrs().HardwareAddr
		lo, err := netlink.LinkByName("lo")
		for _, a := range []netip.Addr{nodeAddrs.v4, nodeAddrs.v6} {
			if err == nil {
				err = netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, Flags: unix.IFA_F_NODAD})
			}
		}
		return err
	}))
	for _, program := range []string{"iptables", "ip6tables"} {
		s.run(program, "-w", "-t", "nat", "-A", "POSTROUTING", "-o", "none", "-j", "MASQUERADE")
	}
	return o
}

// run runs a program on the node.
func (s *street) run(program string, args ...string) {
	s.t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		s.t.Skipf("the node tracks no connections here: %v", err)
	}
	s.must(wires.Inside(s.cable.Node, func() error {
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %v: %w: %s", program, args, err, out)
		}
		return nil
	}))
}

// next returns a mark that no frame has.
func (s *street) next(w *world, family int) uint64 {
	s.mark++
	w.mark, w.family = s.mark, family
	return s.mark
}

// attackFrom sends frames, and then one that must arrive at b. It returns the marks of all that
// arrived.
func (s *street) attackFrom(fd int, frames [][]byte, control []byte, last uint64) map[uint64]int {
	s.t.Helper()
	for _, frame := range frames {
		s.must(wires.Send(fd, frame, nil))
	}
	got := map[uint64]int{}
	for end := time.Now().Add(wires.Patience); got[last] == 0; {
		s.must(wires.Send(fd, control, nil))
		for mark, n := range s.heard() {
			got[mark] += n
		}
		if time.Now().After(end) {
			s.t.Fatal("what is permitted does not arrive")
		}
	}
	return got
}

func eachStreet(t *testing.T, f func(s *street)) {
	for _, bridged := range []bool{false, true} {
		t.Run(fmt.Sprintf("bridged %t", bridged), func(t *testing.T) {
			t.Parallel() // they wait at times
			f(newStreet(t, xdp.ModeAuto, bridged))
		})
	}
}

// TestFragmentsFromNodeAddressAreForeign has a host send fragments from an address of the node. The
// node reassembles them, and cuts them anew: the parts then have no interface by which they came.
func TestFragmentsFromNodeAddressAreForeign(t *testing.T) {
	eachStreet(t, func(s *street) {
		x := s.newOutsider()
		s.enforce(map[string]policy{"b": {toPod: []api.ContivRule{s.third(), fromNode, {Action: api.Permit, Src: api.AddrNet(x.pod.v6)}}}})
		mark := s.next(x.world, 6)
		options := slices.Concat([]byte{fragment, 125}, slices.Repeat(append([]byte{1, 253}, make([]byte, 253)...), 3), append([]byte{1, 239}, make([]byte, 239)...))
		part := func(next byte, body ...[]byte) []byte {
			return x.ip(packet{src: nodeAddrs.v6, protocol: next, body: slices.Concat(body...)})
		}
		header := func(field uint16) []byte { return slices.Concat([]byte{17, 0}, be16(field), []byte{0, 0, 0, 77}) }
		udp := slices.Concat(be16(x.port()), be16(9999), be16(64+1200), []byte{1, 1}, make([]byte, 64+1200-8-14), x.payload())
		attack := [][]byte{part(destination, options, header(1), udp[:64]), part(fragment, header(64), udp[64:])}
		last := s.next(x.world, 6)
		if s.attackFrom(x.fd, attack, x.ip(packet{protocol: 17, body: x.udp(53)}), last)[mark] > 0 {
			s.t.Error("fragments from an address of the node, which a host sent, arrive at a pod that only the node may reach")
		}
	})
}

// TestAnswersOfNodeGoToTheirPods has a host send from the address of a pod: what the node answers
// would reach the pod as the node's.
func TestAnswersOfNodeGoToTheirPods(t *testing.T) {
	eachStreet(t, func(s *street) {
		x := s.newOutsider()
		for _, family := range []int{4, 6} {
			s.enforce(map[string]policy{"b": {toPod: []api.ContivRule{s.third(), fromNode, {Action: api.Permit, Src: api.AddrNet(family0(x.pod, family))}}}})
			mark := s.next(x.world, family)
			request := map[int]byte{4: 8, 6: 128}[family]
			to := x.addr(nodeAddrs)
			attack := x.ip(packet{src: x.addr(s.peer), dst: to, protocol: x.icmpProtocol(), body: x.icmp(x.addr(s.peer), to, request, 0, append(be16(x.port()), append([]byte{0, 1}, x.payload()...)...)...)})
			last := s.next(x.world, family)
			if s.attackFrom(x.fd, [][]byte{attack}, x.ip(packet{protocol: 17, body: x.udp(53)}), last)[mark] > 0 {
				s.t.Errorf("IPv%d: the node answers a pod what another host asked with its address", family)
			}
		}
	})
}

// TestAddressesOfPodsComeFromTheirInterfaces has a host send from the address of a pod to another
// pod, which permits the first one.
func TestAddressesOfPodsComeFromTheirInterfaces(t *testing.T) {
	eachStreet(t, func(s *street) {
		x := s.newOutsider()
		for _, family := range []int{4, 6} {
			s.enforce(map[string]policy{"b": {toPod: []api.ContivRule{s.third(), {Action: api.Permit, Src: api.AddrNet(family0(s.pod, family))}, {Action: api.Permit, Src: api.AddrNet(family0(x.pod, family))}}}})
			mark := s.next(x.world, family)
			attack := x.ip(packet{src: x.addr(s.pod), protocol: 17, body: x.udp(53)})
			last := s.next(x.world, family)
			if s.attackFrom(x.fd, [][]byte{attack}, x.ip(packet{protocol: 17, body: x.udp(53)}), last)[mark] > 0 {
				s.t.Errorf("IPv%d: another host reaches a pod with the address of a pod that may", family)
			}
		}
	})
}

func family0(e end, family int) netip.Addr { return (&world{family: family}).addr(e) }

// TestChecksumsAreCompletedInTheirPlace has a pod choose where its packet's checksum is written
// behind the verdict: in a port, or in a destination.
func TestChecksumsAreCompletedInTheirPlace(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeXDP, xdp.ModeGeneric} {
		for _, bridged := range []bool{false, true} {
			if bridged && (mode == xdp.ModeXDP || mode == xdp.ModeGeneric) {
				continue // no program sees the checksum of a frame that a bridge switches
			}
			t.Run(fmt.Sprintf("%s, bridged %t", mode, bridged), func(t *testing.T) {
				t.Parallel() // they wait at times
				s := newStreet(t, mode, bridged)
				s.must(unix.SetsockoptInt(s.out, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1))
				s.header = make([]byte, 10)
				toPod, fromPod := lists(2, s.peer)
				s.apply("a", toPod, fromPod)
				for _, s.family = range []int{4, 6} {
					s.completes()
				}
			})
		}
	}
}

func (s *street) completes() {
	s.t.Helper()
	network := map[int]int{4: 14 + 20, 6: 14 + 40}[s.family]
	for _, c := range []struct {
		name          string
		protocol      byte
		start, offset int
		extensions    []byte
		arrives       bool
	}{
		{"that of UDP", 17, 0, 6, nil, true},
		{"what UDP carries", 17, 8, 4, nil, true},
		{"that of TCP", 6, 0, 16, nil, true},
		{"the port of UDP", 17, 0, 2, nil, false},
		{"the port of TCP", 6, 0, 2, nil, false},
		{"the source port", 17, 0, 0, nil, false},
		{"the flags of TCP", 6, 0, 12, nil, false},
		{"an odd place", 17, 1, 2, nil, false},
		{"that of UDP behind an extension header", 17, 8, 6, []byte{destination}, true},
		{"the place of UDP's where an extension header is", 17, 0, 6, []byte{destination}, false},
		{"the port behind an extension header", 17, 8, 2, []byte{destination}, false},
	} {
		if s.family == 4 && c.extensions != nil {
			continue
		}
		s.mark++
		body := s.udp(53)
		if c.protocol == 6 {
			body = s.tcp(80, 0x10)
		}
		header := make([]byte, 10)
		header[0] = 1 // a checksum is needed
		binary.NativeEndian.PutUint16(header[6:], uint16(network+c.start))
		binary.NativeEndian.PutUint16(header[8:], uint16(c.offset))
		mark := s.mark
		s.must(wires.Send(s.out, append(header, s.ip(packet{protocol: c.protocol, extensions: c.extensions, body: body})...), nil))
		if got := s.heard()[mark] > 0; got != c.arrives {
			s.t.Errorf("IPv%d, a checksum in the place of %s: it arrives %t, want %t", s.family, c.name, got, c.arrives)
		}
	}
}

// TestFramesForNodeAreNotSwitchedUnjudged changes the hardware address of a bridge: frames to the
// former one, which are left to the node, go to pods then.
func TestFramesForNodeAreNotSwitchedUnjudged(t *testing.T) {
	s := newStreet(t, xdp.ModeAuto, true)
	s.must(wires.Inside(s.cable.Node, func() error {
		br, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(br, net.HardwareAddr{2, 0, 0, 0, 0, 9})
	}))
	for situation := range situations {
		if situation == 0 {
			continue
		}
		toPod, fromPod := lists(situation, s.peer)
		s.apply("a", toPod, fromPod)
		for _, s.family = range []int{4, 6} {
			s.mark++
			mark := s.mark
			s.send(s.ip(packet{protocol: 17, body: s.udp(54)}))
			if s.heard()[mark] > 0 {
				t.Errorf("%s, IPv%d: a frame for the node is switched to a pod, and nothing judged it", situations[situation], s.family)
			}
		}
	}
}
