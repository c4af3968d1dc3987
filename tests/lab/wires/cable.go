package wires

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Inside runs f in a network namespace, on a thread that ends with it.
func Inside(ns netns.NsHandle, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Namespace makes a network namespace, which is empty.
func Namespace(t testing.TB) netns.NsHandle {
	t.Helper()
	var ns netns.NsHandle
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		var err error
		ns, err = netns.New() // it is gone with the last that has it open
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("no network namespaces here: %v", err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// Host is a pod with real sockets.
type Host struct {
	Name   string
	NS     netns.NsHandle
	V4, V6 netip.Addr
	Index  int // of the node's end
	InPod  int // of the pod's end
}

// Cable is a node with pods, each at a pair of veth.
type Cable struct {
	T    testing.TB
	Node netns.NsHandle
	Pods map[string]*Host
}

// New makes a node with pods. Without root, or where there are no namespaces, the test is skipped.
func New(t testing.TB, names ...string) *Cable {
	t.Helper()
	if os.Getuid() != 0 || os.Getenv("SLUICE_NO_KERNEL") != "" {
		t.Skip("not root: no network namespaces can be made")
	}
	c := &Cable{T: t, Node: Namespace(t), Pods: map[string]*Host{}}
	c.Must(Inside(c.Node, func() error {
		for file, value := range map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0"} {
			if err := os.WriteFile("/proc/sys/net/"+file, []byte(value), 0o600); err != nil {
				return err
			}
		}
		return up("lo")
	}))
	for i, name := range names {
		h := &Host{Name: name, NS: Namespace(t), V4: netip.AddrFrom4([4]byte{10, 99, 0, byte(i + 2)}), V6: netip.AddrFrom16([16]byte{0xfd, 15: byte(i + 2)})}
		c.Pods[name] = h
		c.Plug(h)
	}
	return c
}

// Must ends the test by an error.
func (c *Cable) Must(err error) {
	c.T.Helper()
	if err != nil {
		c.T.Fatal(err)
	}
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// Plug makes the pair of a pod, with all addresses, routes and neighbours.
func (c *Cable) Plug(h *Host) {
	c.T.Helper()
	c.PlugAs(h, 0)
}

// PlugAs does what Plug does, and gives the node's end an index, unless it is 0.
func (c *Cable) PlugAs(h *Host, index int) {
	c.T.Helper()
	var nodeMAC, podMAC net.HardwareAddr
	c.Must(Inside(c.Node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.Index = "h-"+h.Name, index
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(h.NS)}); err != nil {
			return err
		}
		l, err := netlink.LinkByName(attrs.Name)
		if err != nil {
			return err
		}
		h.Index, nodeMAC = l.Attrs().Index, l.Attrs().HardwareAddr
		return netlink.LinkSetUp(l)
	}))
	gateway := []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")}
	c.Must(Inside(h.NS, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		h.InPod, podMAC = l.Attrs().Index, l.Attrs().HardwareAddr
		for _, a := range []netip.Addr{h.V4, h.V6} {
			if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: network(a), Flags: unix.IFA_F_NODAD}); err != nil {
				return fmt.Errorf("address %s: %w", a, err)
			}
		}
		if err := errors.Join(up("lo"), netlink.LinkSetUp(l)); err != nil {
			return err
		}
		for _, g := range gateway {
			if err := reach(l, g, nodeMAC, g.Is4()); err != nil {
				return err
			}
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: h.InPod, Gw: g.AsSlice(), Dst: all(g)}); err != nil {
				return fmt.Errorf("route by %s: %w", g, err)
			}
		}
		return nil
	}))
	c.Must(Inside(c.Node, func() error {
		l, err := netlink.LinkByIndex(h.Index)
		if err != nil {
			return err
		}
		return errors.Join(reach(l, h.V4, podMAC, true), reach(l, h.V6, podMAC, true))
	}))
}

func network(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

func all(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: make([]byte, a.BitLen()/8), Mask: net.CIDRMask(0, a.BitLen())}
}

// reach adds a neighbour, and a route to it.
func reach(l netlink.Link, a netip.Addr, mac net.HardwareAddr, route bool) error {
	index := l.Attrs().Index
	if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: index, IP: a.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT}); err != nil {
		return fmt.Errorf("neighbour %s: %w", a, err)
	}
	if !route {
		return nil
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: network(a), Scope: netlink.SCOPE_LINK})
}

// Addr is the address of a family, 4 or 6.
func (h *Host) Addr(family int) netip.Addr {
	if family == 6 {
		return h.V6
	}
	return h.V4
}

// Serve answers everything with itself, by TCP and UDP.
func (c *Cable) Serve(pod string, port uint16) {
	c.T.Helper()
	h := c.Pods[pod]
	for _, family := range []int{4, 6} {
		at := netip.AddrPortFrom(h.Addr(family), port).String()
		c.Must(Inside(h.NS, func() error {
			l, err := net.Listen("tcp", at)
			if err != nil {
				return err
			}
			u, err := net.ListenPacket("udp", at)
			if err != nil {
				return err
			}
			c.T.Cleanup(func() { _, _ = l.Close(), u.Close() })
			go echoStreams(l)
			go echoDatagrams(u)
			return nil
		}))
	}
}

func echoStreams(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}()
	}
}

func echoDatagrams(u net.PacketConn) {
	b := make([]byte, 65536)
	for {
		n, from, err := u.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = u.WriteTo(b[:n], from)
	}
}

// Patience is how long an answer is waited for that must come, and Impatience how long for
// one that must not.
const (
	Patience   = time.Minute
	Impatience = 150 * time.Millisecond
)

// Dial connects from a pod to another one.
func (c *Cable) Dial(from, to, network string, family int, port uint16, wait time.Duration) (conn net.Conn, err error) {
	at := netip.AddrPortFrom(c.Pods[to].Addr(family), port).String()
	err = Inside(c.Pods[from].NS, func() error {
		conn, err = net.DialTimeout(network, at, wait)
		return err
	})
	return conn, err
}

// Echo sends a few bytes and waits for them.
func Echo(conn net.Conn, wait time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("water")); err != nil {
		return err
	}
	b := make([]byte, 16)
	_, err := io.ReadAtLeast(conn, b, 5)
	return err
}

// Can checks whether a connection is answered.
func (c *Cable) Can(want bool, what, from, to, network string, family int, port uint16) {
	c.T.Helper()
	wait := Impatience
	if want {
		wait = Patience
	}
	var err error
	if network == "icmp" {
		err = c.Ping(from, to, family, wait)
	} else {
		var conn net.Conn
		if conn, err = c.Dial(from, to, network, family, port, wait); err == nil {
			err = Echo(conn, wait)
			_ = conn.Close()
		}
	}
	if (err == nil) != want {
		c.T.Errorf("%s: %s from %s to %s port %d in IPv%d: %v, want answered %t", what, network, from, to, port, family, err, want)
	}
}

// Ping sends an echo request and waits for the reply.
func (c *Cable) Ping(from, to string, family int, wait time.Duration) error {
	domain, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	request, reply, header := byte(8), byte(0), 20
	var at unix.Sockaddr = &unix.SockaddrInet4{Addr: c.Pods[to].V4.As4()}
	if family == 6 {
		domain, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
		request, reply, header = 128, 129, 0
		at = &unix.SockaddrInet6{Addr: c.Pods[to].V6.As16()}
	}
	return Inside(c.Pods[from].NS, func() error {
		fd, err := unix.Socket(domain, unix.SOCK_RAW, protocol)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		id := uint16(time.Now().UnixNano())
		m := []byte{request, 0, 0, 0, byte(id >> 8), byte(id), 0, 1}
		binary.BigEndian.PutUint16(m[2:], checksum(m))
		tv := unix.NsecToTimeval(int64(wait))
		if err := errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv), Send(fd, m, at)); err != nil {
			return err
		}
		b := make([]byte, 512)
		for end := time.Now().Add(wait); time.Now().Before(end); {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil {
				return err
			}
			if got := b[:n]; n >= header+8 && got[header] == reply && binary.BigEndian.Uint16(got[header+4:]) == id {
				return nil
			}
		}
		return os.ErrDeadlineExceeded
	})
}

// checksum is that of ICMP; for IPv6 the kernel fills in its own.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Names returns a folder with a file for the namespace of every pod, as container runtimes have it.
func (c *Cable) Names() string {
	c.T.Helper()
	folder := c.T.TempDir()
	for name, h := range c.Pods {
		path := filepath.Join(folder, name)
		c.Must(os.WriteFile(path, nil, 0o600))
		c.Must(unix.Mount(fmt.Sprintf("/proc/self/fd/%d", int(h.NS)), path, "", unix.MS_BIND, ""))
		c.T.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) }) // else the folder cannot be removed, and the test reports that
	}
	return folder
}

// Unplug removes an interface of the namespace that the caller is in.
func Unplug(index int) error {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}
	return netlink.LinkDel(l)
}

// Result writes what libcni keeps of the set-up of a pod to a folder: container is that of the pod
// demo/<pod>, whose namespace has a file in netns.
func (c *Cable) Result(folder, netns, pod, container string) {
	c.T.Helper()
	h := c.Pods[pod]
	path := filepath.Join(netns, pod)
	b := fmt.Sprintf(`{"kind": "cniCacheV1", "containerId": %q, "ifName": "eth0", "networkName": "pods", "netns": %q,
		"cniArgs": [["IgnoreUnknown", "1"], ["K8S_POD_NAMESPACE", "demo"], ["K8S_POD_NAME", %q], ["K8S_POD_INFRA_CONTAINER_ID", %q]],
		"result": {"cniVersion": "1.0.0", "interfaces": [{"name": %q}, {"name": "eth0", "sandbox": %q}],
		"ips": [{"interface": 1, "address": "%s/32"}, {"interface": 1, "address": "%s/128"}]}}`,
		container, path, pod, container, "h-"+pod, path, h.V4, h.V6)
	c.Must(os.WriteFile(filepath.Join(folder, "pods-"+container+"-eth0"), []byte(b), 0o600))
}
