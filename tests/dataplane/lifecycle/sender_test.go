package lifecycle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/tests/lab/wires"
)

// A sender sends datagrams to all pods at its bridge, from before its pod has an interface until
// the pod ends. It sends frames, so it needs no address, route or neighbour. Each datagram has its
// sender, and whether it was sent after ADD.
type sender struct {
	name  string
	fd    int
	addr  atomic.Pointer[netip.Addr] // of the pod, behind ADD; nil: it sends with several forged ones
	added atomic.Bool
	end   chan struct{}
	ended sync.WaitGroup
}

// magic begins what senders send.
var magic = []byte("sluice-lifecycle")

// inPod is the index of the first interface that is made in a new network namespace.
const inPod = 2

func startSender(ns netns.NsHandle, name string, forges bool) (*sender, error) {
	t := &sender{name: name, end: make(chan struct{})}
	err := wires.Inside(ns, func() (err error) {
		t.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.ended.Go(func() { t.talk(forges) })
	return t, nil
}

// talk sends until it is stopped. Most calls fail before the interface is there and up.
func (t *sender) talk(forges bool) {
	forged := []netip.Addr{netip.IPv4Unspecified(), netip.MustParseAddr("10.88.0.1"), netip.MustParseAddr("10.88.0.2")}
	to := &unix.SockaddrLinklayer{Ifindex: inPod, Halen: 6}
	for i := 0; ; i++ {
		select {
		case <-t.end:
			return
		default:
		}
		from := forged[i%len(forged)]
		if own := t.addr.Load(); own != nil && (!forges || i%2 == 0) {
			from = *own
		}
		_ = unix.Sendto(t.fd, t.frame(from), 0, to)
		time.Sleep(500 * time.Microsecond) // others run on this machine, too
	}
}

// stop ends the sending, before the namespace is closed.
func (t *sender) stop() {
	close(t.end)
	t.ended.Wait()
	_ = unix.Close(t.fd) // nothing is lost
}

// frame is a datagram from an address to a broadcast address.
func (t *sender) frame(from netip.Addr) []byte {
	phase := byte('0')
	if t.added.Load() {
		phase = '1'
	}
	payload := append(append(append([]byte{}, magic...), phase), t.name...)
	f := append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x08, 0}, make([]byte, 28)...)
	ip := f[14:34]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(payload)))
	copy(ip[12:], from.AsSlice())
	copy(ip[16:], []byte{10, 88, 0, 255})
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	udp := f[34:42]
	binary.BigEndian.PutUint16(udp, 4242)
	binary.BigEndian.PutUint16(udp[2:], 4242)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(payload)))
	return append(f, payload...)
}

// listener counts the frames that it receives from senders, by their names.
type listener struct {
	fd    int
	mu    sync.Mutex
	heard map[string]int // behind ADD
	early map[string]int // before ADD returned
}

// listen receives everything that arrives at a pod.
func listen(ns netns.NsHandle) (*listener, error) {
	l := &listener{heard: map[string]int{}, early: map[string]int{}}
	err := wires.Inside(ns, func() (err error) {
		l.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_IP)))
		if err != nil {
			return err
		}
		tv := unix.NsecToTimeval(int64(100 * time.Millisecond))
		return errors.Join(unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20), unix.SetsockoptTimeval(l.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	})
	return l, err
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// hear counts until the end.
func (l *listener) hear(end chan struct{}) {
	b := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(l.fd, b, 0)
		select {
		case <-end:
			_ = unix.Close(l.fd) // nothing is lost
			return
		default:
		}
		i := bytes.Index(b[:max(n, 0)], magic)
		if err != nil || i < 0 || i+len(magic) >= n {
			continue
		}
		count, name := l.early, string(b[i+len(magic)+1:n])
		if b[i+len(magic)] == '1' {
			count = l.heard
		}
		l.mu.Lock()
		count[name]++
		l.mu.Unlock()
	}
}

// of returns the number of frames that arrived from a sender after ADD.
func (l *listener) of(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard[name]
}
