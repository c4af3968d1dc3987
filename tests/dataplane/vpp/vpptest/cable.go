package vpptest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CableMAC is the Ethernet address of VPP's end of a Cable.
var CableMAC = MAC{0x02, 0xfe, 0, 0, 0, 1}

// End is the end of an interface of VPP that VPP does not have.
type End interface {
	// Write sends a frame into VPP.
	Write(frame []byte) error
	// Read waits up to 100 ms for a frame that left VPP. It returns its length, and when it came.
	Read(buf []byte) (n int, at time.Time, err error)
}

// Cable is a pair of interfaces of the kernel, one of which VPP has as its own.
type Cable struct {
	Link  Link
	fd    int  // a raw socket at the other end
	large bool // frames may be larger than those of Ethernet, for hardware to cut
}

// Connect makes a cable whose end at VPP has a tag. The cable ends with the test. The test is
// skipped where that is not permitted. VPP needs af_packet_plugin.so.
func (p *Network) Connect(tb testing.TB, name, tag string) Cable {
	tb.Helper()
	return p.connect(tb, name, tag, false)
}

// ConnectLarge is Connect for frames of up to 64 kB of TCP, which hardware would cut (GSO): VPP takes
// and sends them whole.
func (p *Network) ConnectLarge(tb testing.TB, name, tag string) Cable {
	tb.Helper()
	return p.connect(tb, name, tag, true)
}

func (p *Network) connect(tb testing.TB, name, tag string, large bool) Cable {
	tb.Helper()
	near, far := fmt.Sprint("sl", os.Getpid()%100_000, name), fmt.Sprint("sl", os.Getpid()%100_000, name, "v")
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: near}, PeerName: far}
	if err := netlink.LinkAdd(pair); err != nil {
		tb.Skipf("make a pair of interfaces: %v", err)
	}
	tb.Cleanup(func() {
		if err := netlink.LinkDel(pair); err != nil {
			tb.Error(err)
		}
	})
	for _, n := range []string{near, far} {
		setUp(tb, n)
	}
	offload := map[bool]string{false: "cksum-gso-disable"}[large]
	p.CLI("create host-interface name %s hw-addr %s %s", far, CableMAC, offload) // prints its name
	return Cable{Link: p.adopt(tb, "host-"+far, tag), fd: rawSocket(tb, near, large), large: large}
}

func setUp(tb testing.TB, name string) {
	tb.Helper()
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// vhost is what the kernel needs for taps of VPP.
const vhost = "/dev/vhost-net"

// Tap makes a tap of VPP that has a tag. The test is skipped where the kernel has no vhost-net.
func (p *Network) Tap(tb testing.TB, name, tag string, large bool) Cable {
	tb.Helper()
	if _, err := os.Stat(vhost); err != nil {
		tb.Skipf("taps of VPP need %s: %v", vhost, err)
	}
	near := fmt.Sprint("sl", os.Getpid()%100_000, name)
	p.CLI("create tap id 0 host-if-name %s hw-addr %s %s", near, CableMAC, map[bool]string{true: "gso"}[large]) // prints its name
	link := p.adopt(tb, "tap0", tag)
	setUp(tb, near)
	return Cable{Link: link, fd: rawSocket(tb, near, large), large: large}
}

// SubInterface makes an interface for the frames of another one that have the tag of a VLAN. It has
// a tag of its own.
func (p *Network) SubInterface(tb testing.TB, of Link, vlan uint16, tag string) Link {
	tb.Helper()
	p.CLI("create sub-interfaces %s %d", of.Name, vlan) // prints its name
	return p.adopt(tb, fmt.Sprintf("%s.%d", of.Name, vlan), tag)
}

// adopt gives an interface that was made a tag, empty for none, and sets it up.
func (p *Network) adopt(tb testing.TB, name, tag string) Link {
	tb.Helper()
	ctx, cancel := Bounded(tb)
	defer cancel()
	client := interfaces.NewServiceClient(p.Conn)
	dump, err := client.SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{NameFilterValid: true, NameFilter: name})
	if err != nil {
		tb.Fatal(err)
	}
	link := Link{Name: name}
	for {
		d, err := dump.Recv()
		if errors.Is(err, io.EOF) {
			tb.Fatalf("VPP has no interface %s", name)
		}
		if err != nil {
			tb.Fatal(err)
		}
		if d.InterfaceName == name {
			link.Index = d.SwIfIndex
			break
		}
	}
	if tag != "" {
		if _, err := client.SwInterfaceTagAddDel(ctx, &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: link.Index, Tag: tag}); err != nil {
			tb.Fatal(err)
		}
		p.Links[tag] = link
	}
	p.Do("set interface unnumbered %s use loop0", name)
	_, err = client.SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{SwIfIndex: link.Index, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP})
	if err != nil {
		tb.Fatal(err)
	}
	return link
}

// rawSocket opens a raw socket at an interface.
func rawSocket(tb testing.TB, name string, large bool) int {
	tb.Helper()
	const every = 0x0300 // ETH_P_ALL in the order of the network
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, every)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: every, Ifindex: l.Attrs().Index})
	}
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	}
	if err == nil && large {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return fd
}

// Write sends a frame into VPP.
func (c Cable) Write(frame []byte) error {
	if c.large {
		frame = append(offloadOf(frame), frame...)
	}
	_, err := unix.Write(c.fd, frame)
	return err
}

// offloadSize is that of what Linux has ahead of a frame that hardware is to cut (struct virtio_net_hdr).
const offloadSize = 10

// segment is how much of a large frame's payload a segment is to have.
const segment = 1400

// offloadOf says how hardware is to cut a frame of TCP. Smaller ones need nothing.
func offloadOf(frame []byte) []byte {
	const needsChecksum, tcp4, tcp6, checksumInTCP = 1, 1, 4, 16
	head := make([]byte, offloadSize)
	ip, kind := 14, byte(tcp4)
	if frame[ip]>>4 == 6 {
		kind = tcp6
	}
	length := map[byte]int{tcp4: 20, tcp6: 40}[kind]
	if len(frame) <= 1514 {
		return head
	}
	head[0], head[1] = needsChecksum, kind
	for i, n := range []int{ip + length + 20, segment, ip + length, checksumInTCP} {
		binary.NativeEndian.PutUint16(head[2+2*i:], uint16(n))
	}
	return head
}

// Read waits up to 100 ms for a frame that left VPP. It returns its length, and when the kernel got
// it: the time at which this process reads it depends on what else it does.
func (c Cable) Read(buf []byte) (n int, at time.Time, err error) {
	control := make([]byte, 64)
	n, controls, _, _, err := unix.Recvmsg(c.fd, buf, control, 0)
	if err != nil {
		return n, at, err
	}
	if c.large && n >= offloadSize {
		n = copy(buf, buf[offloadSize:n])
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			at = time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return n, at, err
}

// String returns the address as text.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}
