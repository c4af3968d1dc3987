package vpp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// The server of DHCP, which is beyond the uplink, and its Ethernet address.
var (
	dhcpServers = stranger
	dhcpMAC     = vpptest.MAC{2, 0, 0, 0, 1, 7}
)

// dhcpFamily is DHCP over IPv4 or IPv6: a pod asks the relay in VPP, which asks the server.
type dhcpFamily struct {
	asks, serves uint16 // ports of clients, and of servers and relays
	relay        string // the command that sets it up
	ask          []byte
	from, to     netip.Addr
	toMAC        vpptest.MAC
	// answer makes the answer of the server to what the relay has sent.
	answer func(relayed []byte) []byte
}

var dhcp = []dhcpFamily{
	{
		asks: 68, serves: 67, relay: "set dhcp proxy server %s src-address " + vpptest.Gateway4,
		from: netip.IPv4Unspecified(), to: netip.MustParseAddr("255.255.255.255"), toMAC: vpptest.MAC{255, 255, 255, 255, 255, 255},
		ask: func() []byte { // DISCOVER
			b := make([]byte, 240)
			b[0], b[1], b[2] = 1, 1, 6
			copy(b[28:], podMAC[:])
			copy(b[236:], []byte{0x63, 0x82, 0x53, 0x63})
			return append(b, slices.Concat([]byte{53, 1, 1, 255}, make([]byte, 60))...)
		}(),
		answer: func(relayed []byte) []byte { // OFFER, with what the relay has added
			b := slices.Clone(relayed)
			b[0], b[242] = 2, 2
			return b
		},
	},
	{
		asks: 546, serves: 547, relay: "set dhcpv6 proxy server %s src-address " + vpptest.Gateway6,
		from: netip.MustParseAddr("fe80::ff:fe00:102"), to: netip.MustParseAddr("ff02::1:2"), toMAC: vpptest.MAC{0x33, 0x33, 0, 1, 0, 2},
		ask: []byte{1, 0, 0, 1, 0, 1, 0, 4, 0, 3, 0, 1}, // SOLICIT, with the identity of the client
		answer: func(relayed []byte) []byte {
			const head, relayReply, interfaceID, relayMessage = 34, 13, 18, 9
			b := append([]byte{relayReply}, relayed[1:head]...)
			for options := relayed[head:]; len(options) >= 4; {
				n := 4 + int(binary.BigEndian.Uint16(options[2:]))
				if binary.BigEndian.Uint16(options) == interfaceID {
					b = append(b, options[:n]...)
				}
				options = options[n:]
			}
			advertise := []byte{2, 0, 0, 1}
			return slices.Concat(b, []byte{0, relayMessage, 0, byte(len(advertise))}, advertise)
		},
	},
}

// What reaches a server of DHCP.
const (
	nothingReaches    = iota
	permittedReaches  // what policy permits
	oncePermitted     // and what goes on since it did
	everythingReaches // whatever policy says
)

// TestVPPDHCPOfPods has a pod ask for an address by VPP's relay of DHCP, from no address (IPv4) or one
// of its link (IPv6). Where ACLs enforce, a pod without policy gets its answer. What a policy of egress
// denies does not reach the server, unless the pod sent it before: what goes to VPP itself meets no
// output, and a change of inputs ends no session. ACLs do not see the multicast of IPv6. The plugin drops what has
// not an address of the pod as its source, whatever the policies, unless it lets pods send from any.
// The answer is VPP's own, and no packet that policy is asked about.
func TestVPPDHCPOfPods(t *testing.T) {
	plugins := []string{"af_packet_plugin.so", "dhcp_plugin.so"}
	onDataplanes(t, plugins, func(t *testing.T, d *dataplane) {
		if _, isACL := d.r.(*acl.Renderer); isACL {
			d.relays([]int{oncePermitted, everythingReaches})
		} else {
			d.relays([]int{nothingReaches, nothingReaches})
		}
	})
	t.Run("any-source", func(t *testing.T) {
		onPlugin(t, vpptest.LaunchWith, plugins, true, func(_ *testing.T, d *dataplane) { d.relays([]int{permittedReaches, permittedReaches}) })
	})
}

// relays checks what reaches the server, by family.
func (d *dataplane) relays(reaches []int) {
	d.Helper()
	d.Add(vpp.PodTag(sender.String())) // which policy knows
	pod, uplink := d.Connect(d.TB, "p", vpp.PodTag(receiver.String())), d.Connect(d.TB, "u", acl.UplinkTag)
	d.reach(receiver, pod.Link)
	for family, f := range dhcp {
		server := dhcpServers[family]
		d.Do("set ip neighbor static %s %s %s", uplink.Link.Name, server, macText(dhcpMAC))
		d.Do("ip route add %s via %s %s", netip.PrefixFrom(server, server.BitLen()), server, uplink.Link.Name)
		d.Do(f.relay, server)
	}
	udp := func(ports ...uint16) (out []api.ContivRule) {
		for _, n := range ports {
			out = append(out, api.ContivRule{Action: api.Permit, Protocol: api.UDP, DstPort: api.Port(n)})
		}
		return out
	}
	before := false
	for _, tt := range []struct {
		what    string
		rules   labRules
		permits bool
	}{
		{"the pod sends nothing", labRules{out: nobody}, false},
		{"the pod may send to another port", labRules{out: udp(53)}, false},
		{"no policy", labRules{}, true},
		{"the pod gets nothing", labRules{in: nobody}, true},
		{"the pod may send to servers of DHCP", labRules{out: udp(67, 547)}, true},
		{"the pod sends nothing any more", labRules{out: nobody}, false},
	} {
		d.apply(tt.rules)
		for family, f := range dhcp {
			want := map[int]bool{permittedReaches: tt.permits, oncePermitted: tt.permits || before, everythingReaches: true}[reaches[family]]
			relayed, arrives := d.datagram(pod, uplink, f.serves, udpFrame(podMAC, f.toMAC, f.from, f.to, f.asks, f.serves, f.ask))
			if arrives != want {
				d.Errorf("%s, family %d: what the pod asks reaches the server: %t, want %t", tt.what, family, arrives, want)
			}
			if !arrives {
				continue
			}
			gateway := netip.MustParseAddr([]string{vpptest.Gateway4, vpptest.Gateway6}[family])
			answer := udpFrame(dhcpMAC, vpptest.CableMAC, dhcpServers[family], gateway, f.serves, f.serves, f.answer(relayed))
			if _, arrives := d.datagram(uplink, pod, f.asks, answer); !arrives {
				d.Errorf("%s, family %d: the answer does not reach the pod", tt.what, family)
			}
		}
		before = before || tt.permits
	}
}

// datagram sends a frame and returns what arrives at a port of UDP, if anything does.
func (d *dataplane) datagram(from, to vpptest.End, port uint16, frame []byte) (message []byte, arrives bool) {
	d.Helper()
	before := d.Denied()
	if err := from.Write(frame); err != nil {
		d.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	vpptest.Eventually(d.TB, "the message to arrive or to be denied", func() bool {
		n, _, err := to.Read(buf)
		switch {
		case err == nil:
			message, arrives = udpTo(port, buf[:n])
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			d.Fatal(err)
		default:
			return d.Denied() > before
		}
		return arrives
	})
	return message, arrives
}

// udpTo returns the content of a frame of UDP to a port.
func udpTo(port uint16, frame []byte) (content []byte, isTo bool) {
	const ethernet, header = 14, 8
	if len(frame) < ethernet+40+header {
		return nil, false
	}
	at := ethernet + 20
	if frame[ethernet]>>4 == 6 {
		at = ethernet + 40
	}
	if binary.BigEndian.Uint16(frame[at+2:]) != port {
		return nil, false
	}
	end := at + int(binary.BigEndian.Uint16(frame[at+4:]))
	if end > len(frame) {
		return nil, false
	}
	return bytes.Clone(frame[at+header : end]), true
}

// udpFrame returns a datagram in a frame, with checksums.
func udpFrame(fromMAC, toMAC vpptest.MAC, from, to netip.Addr, src, dst uint16, content []byte) []byte {
	datagram := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, src), dst)
	datagram = append(binary.BigEndian.AppendUint16(datagram, uint16(8+len(content))), 0, 0)
	datagram = append(datagram, content...)
	const protocol, hops = 17, 64
	pseudo := slices.Concat(from.AsSlice(), to.AsSlice(), []byte{0, protocol}, datagram[4:6])
	binary.BigEndian.PutUint16(datagram[6:], onesSum(slices.Concat(pseudo, datagram, make([]byte, len(datagram)%2))))
	ip, kind := []byte{0x60, 0, 0, 0, datagram[4], datagram[5], protocol, hops}, uint16(0x86dd)
	if from.Is4() {
		ip, kind = []byte{0x45, 0, 0, 0, 0, 0, 0, 0, hops, protocol, 0, 0}, 0x0800
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(datagram)))
		binary.BigEndian.PutUint16(ip[10:], onesSum(slices.Concat(ip, from.AsSlice(), to.AsSlice())))
	}
	head := binary.BigEndian.AppendUint16(slices.Concat(toMAC[:], fromMAC[:]), kind)
	return slices.Concat(head, ip, from.AsSlice(), to.AsSlice(), datagram)
}

// onesSum is the checksum of the Internet over an even number of bytes.
func onesSum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
