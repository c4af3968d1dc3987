package bench

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/tests/vpp/vpptest"
)

// vppMAC is that of VPP's side of the pairs.
const vppMAC = "02:fe:00:00:00:01"

// cable is a pair of interfaces of the kernel, one of which VPP has as its own.
type cable struct {
	link vpptest.Link
	fd   int // a raw socket at the other end
}

// connect makes a cable. The test is skipped where that is not permitted.
func connect(b *testing.B, p *vpptest.Plumbing, name, tag string) cable {
	b.Helper()
	near, far := fmt.Sprint("sl", os.Getpid()%100_000, name), fmt.Sprint("sl", os.Getpid()%100_000, name, "v")
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: near}, PeerName: far}
	if err := netlink.LinkAdd(pair); err != nil {
		b.Skipf("make a pair of interfaces: %v", err)
	}
	b.Cleanup(func() {
		if err := netlink.LinkDel(pair); err != nil {
			b.Error(err)
		}
	})
	for _, n := range []string{near, far} {
		l, err := netlink.LinkByName(n)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	p.CLI("create host-interface name %s hw-addr %s cksum-gso-disable", far, vppMAC) // prints its name
	c := cable{link: vpptest.Link{Name: "host-" + far}, fd: rawSocket(b, near)}
	ctx, cancel := vpptest.Bounded(b)
	defer cancel()
	client := interfaces.NewServiceClient(p.Conn)
	dump, err := client.SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{NameFilterValid: true, NameFilter: c.link.Name})
	if err != nil {
		b.Fatal(err)
	}
	d, err := dump.Recv()
	if err != nil {
		b.Fatal(err)
	}
	c.link.Index = d.SwIfIndex
	if _, err := client.SwInterfaceTagAddDel(ctx, &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: c.link.Index, Tag: tag}); err != nil {
		b.Fatal(err)
	}
	p.Do("set interface unnumbered %s use loop0", c.link.Name)
	_, err = client.SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{SwIfIndex: c.link.Index, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP})
	if err != nil {
		b.Fatal(err)
	}
	p.Links[tag] = c.link
	return c
}

// rawSocket opens a raw socket at an interface.
func rawSocket(b *testing.B, name string) int {
	b.Helper()
	const every = 0x0300 // ETH_P_ALL in the order of the network
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, every)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Close(fd) })
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
		b.Fatal(err)
	}
	return fd
}

// arrival returns when the kernel got a packet: the time at which this process reads it depends on
// what else it does.
func arrival(control []byte) (at time.Time, ok bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return at, false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))), true
		}
	}
	return at, false
}

// stream is packets that go through VPP, and what became of them.
type stream struct {
	dst netip.Addr

	mu      sync.Mutex
	denied  []netip.Addr // who must not get through
	allowed []netip.Addr // who must
	sent    map[uint32]probe
	lost    int
	passed  int
	lags    []time.Duration
}

// probe is a packet on its way.
type probe struct {
	src     netip.Addr
	at      time.Time
	allowed bool
}

// run sends a packet every millisecond, and each fourth from an address that must not get
// through, until stop; it returns when what was sent has arrived or is lost.
func (s *stream) run(b *testing.B, from, to cable, stop <-chan struct{}) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { s.receive(to, done) })
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := uint32(1); ; n++ {
		select {
		case <-tick.C:
			s.send(b, from, n)
			continue
		case <-stop:
		}
		break
	}
	time.Sleep(3 * time.Second)
	close(done)
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.sent {
		if p.allowed {
			s.lost++
		}
	}
}

func (s *stream) send(b *testing.B, from cable, n uint32) {
	s.mu.Lock()
	list, allowed := s.allowed, true
	if n%4 == 0 && len(s.denied) > 0 {
		list, allowed = s.denied, false
	}
	src := list[int(n/4)%len(list)]
	s.sent[n] = probe{src, time.Now(), allowed}
	s.mu.Unlock()
	f := api.Flow{Src: src, Dst: s.dst, Protocol: api.UDP, SrcPort: 4000, DstPort: 80}
	packet := vpptest.Packet{Packet: vswitch.FlowPacket(f), Mark: n, To: vpptest.MAC{0x02, 0xfe, 0, 0, 0, 1}}
	if _, err := unix.Write(from.fd, packet.Frame()); err != nil {
		b.Error(err)
	}
}

// markAt is where a packet has its number: behind the headers of Ethernet, IPv4 and UDP.
const markAt = 14 + 20 + 8

func (s *stream) receive(at cable, done <-chan struct{}) {
	buf, control := make([]byte, 2048), make([]byte, 128)
	for {
		n, controls, _, _, err := unix.Recvmsg(at.fd, buf, control, 0)
		select {
		case <-done:
			return
		default:
		}
		if err != nil || n < markAt+4 || buf[23] != byte(api.UDP) || !slices.Equal(buf[30:34], s.dst.AsSlice()) {
			continue
		}
		now, ok := arrival(control[:controls])
		if !ok {
			continue
		}
		s.mu.Lock()
		mark := binary.BigEndian.Uint32(buf[markAt:])
		if p, ok := s.sent[mark]; ok {
			delete(s.sent, mark)
			if p.allowed {
				s.lags = append(s.lags, now.Sub(p.at))
			} else {
				s.passed++
			}
		}
		s.mu.Unlock()
	}
}

// joined and left tell the stream who may pass from now on, and who may not.
func (s *stream) joined(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = append(slices.Clone(s.allowed), a)
}

// leaving is called before an address is denied, so that nothing is expected of it.
func (s *stream) leaving(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = slices.DeleteFunc(slices.Clone(s.allowed), func(o netip.Addr) bool { return o == a })
	for n, p := range s.sent { // what is on its way may meet either verdict
		if p.src == a {
			delete(s.sent, n)
		}
	}
}

func (s *stream) left(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = append(slices.Clone(s.denied), a)
}
