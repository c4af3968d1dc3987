package vpptest

import (
	"encoding/binary"
	"fmt"
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

// Cable is a pair of interfaces of the kernel, one of which VPP has as its own.
type Cable struct {
	Link Link
	fd   int // a raw socket at the other end
}

// Connect makes a cable whose end at VPP has a tag. The cable ends with the test. The test is
// skipped where that is not permitted. VPP needs af_packet_plugin.so.
func (p *Network) Connect(tb testing.TB, name, tag string) Cable {
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
		l, err := netlink.LinkByName(n)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	p.CLI("create host-interface name %s hw-addr %s cksum-gso-disable", far, CableMAC) // prints its name
	c := Cable{Link: Link{Name: "host-" + far}, fd: rawSocket(tb, near)}
	ctx, cancel := Bounded(tb)
	defer cancel()
	client := interfaces.NewServiceClient(p.Conn)
	dump, err := client.SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{NameFilterValid: true, NameFilter: c.Link.Name})
	if err != nil {
		tb.Fatal(err)
	}
	d, err := dump.Recv()
	if err != nil {
		tb.Fatal(err)
	}
	c.Link.Index = d.SwIfIndex
	if _, err := client.SwInterfaceTagAddDel(ctx, &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: c.Link.Index, Tag: tag}); err != nil {
		tb.Fatal(err)
	}
	p.Do("set interface unnumbered %s use loop0", c.Link.Name)
	_, err = client.SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{SwIfIndex: c.Link.Index, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP})
	if err != nil {
		tb.Fatal(err)
	}
	p.Links[tag] = c.Link
	return c
}

// rawSocket opens a raw socket at an interface.
func rawSocket(tb testing.TB, name string) int {
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
	if err != nil {
		tb.Fatal(err)
	}
	return fd
}

// Write sends a frame into VPP.
func (c Cable) Write(frame []byte) error {
	_, err := unix.Write(c.fd, frame)
	return err
}

// Read waits up to 100 ms for a frame that left VPP. It returns its length, and when the kernel got
// it: the time at which this process reads it depends on what else it does.
func (c Cable) Read(buf []byte) (n int, at time.Time, err error) {
	control := make([]byte, 64)
	n, controls, _, _, err := unix.Recvmsg(c.fd, buf, control, 0)
	if err != nil {
		return n, at, err
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
