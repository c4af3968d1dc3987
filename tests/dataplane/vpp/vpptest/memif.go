package vpptest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Memif is an application that speaks memif, version 2.0, as the slave of an interface of VPP: it
// has one ring for each direction, in memory of its own that it gives to VPP. It reads and writes
// that memory by calls of the kernel, which keep the order.
type Memif struct {
	control, memory int
	kick, wake      int // say to VPP, and by VPP, that there is something in a ring
	sent, got       uint16
}

// Kinds of messages.
const (
	memifAck       = 1
	memifHello     = 2
	memifInit      = 3
	memifRegion    = 4
	memifRing      = 5
	memifConnect   = 6
	memifConnected = 7
)

// The memory: a ring for what the application sends, one for what it gets, and a buffer for each
// descriptor of both. A ring begins with a cookie, flags, and the head; its tail and its
// descriptors have cache lines of their own.
const (
	memifSlots  = 64
	memifBuffer = 2048
	memifCookie = 0x3e31f20

	ringHead, ringTail, ringDescriptors = 6, 64, 128
	descriptorSize                      = 16

	ringSize   = ringDescriptors + memifSlots*descriptorSize
	toVPP      = 0 // offset of the first ring
	fromVPP    = ringSize
	buffers    = 2 * ringSize
	memifSpace = buffers + 2*memifSlots*memifBuffer
)

// NewMemif makes a memif of VPP that is the master and has a tag, and connects to it. VPP needs
// memif_plugin.so.
func (p *Network) NewMemif(tb testing.TB, tag string) (*Memif, Link) {
	tb.Helper()
	socket := filepath.Join(p.dir, "memif.sock")
	p.Do("create memif socket id 1 filename %s", socket)
	p.Do("create interface memif id 0 socket-id 1 master hw-addr %s", CableMAC)
	link := p.adopt(tb, "memif1/0", tag)
	m := &Memif{}
	for _, fd := range []struct {
		to   *int
		open func() (int, error)
	}{
		{&m.control, func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0) }},
		{&m.memory, func() (int, error) { return unix.MemfdCreate("memif", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING) }},
		{&m.kick, event},
		{&m.wake, event},
	} {
		n, err := fd.open()
		if err != nil {
			tb.Fatal(err)
		}
		*fd.to = n
		tb.Cleanup(func() { _ = unix.Close(n) })
	}
	if err := m.connect(socket); err != nil {
		tb.Fatal(err)
	}
	Eventually(tb, "the memif to be up", func() bool {
		return strings.Contains(p.CLI("show memif memif1/0"), "flags admin-up connected")
	})
	return m, link
}

func event() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }

// connect gives VPP the memory and the rings.
func (m *Memif) connect(socket string) error {
	if err := unix.SetsockoptTimeval(m.control, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return err
	}
	if err := unix.Connect(m.control, &unix.SockaddrUnix{Name: socket}); err != nil {
		return err
	}
	if err := unix.Ftruncate(m.memory, memifSpace); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(m.memory), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return err
	}
	for _, ring := range []int64{toVPP, fromVPP} {
		if err := m.put(ring, binary.NativeEndian.AppendUint32(nil, memifCookie)); err != nil {
			return err
		}
	}
	for slot := range uint16(memifSlots) {
		if err := m.offer(slot); err != nil {
			return err
		}
	}
	if err := m.setHead(fromVPP, memifSlots); err != nil {
		return err
	}
	if err := m.expect(memifHello); err != nil {
		return err
	}
	ring := func(flags uint16, offset uint32) []byte {
		b := binary.NativeEndian.AppendUint16(nil, flags)
		b = append(b, 0, 0, 0, 0) // the first ring of its direction, in region 0
		return append(binary.NativeEndian.AppendUint32(b, offset), 6, 0, 0)
	}
	const version, isToVPP = 2 << 8, 1
	for _, step := range []struct {
		kind, answer uint16
		body         []byte
		fd           int
	}{
		{memifInit, memifAck, binary.NativeEndian.AppendUint16(nil, version), -1}, // interface 0, Ethernet, no secret
		{memifRegion, memifAck, binary.NativeEndian.AppendUint64([]byte{0, 0}, memifSpace), m.memory},
		{memifRing, memifAck, ring(isToVPP, toVPP), m.kick},
		{memifRing, memifAck, ring(0, fromVPP), m.wake},
		{memifConnect, memifConnected, []byte("application"), -1},
	} {
		message := make([]byte, 128)
		binary.NativeEndian.PutUint16(message, step.kind)
		copy(message[2:], step.body)
		var rights []byte
		if step.fd >= 0 {
			rights = unix.UnixRights(step.fd)
		}
		if err := unix.Sendmsg(m.control, message, rights, nil, 0); err != nil {
			return err
		}
		if err := m.expect(step.answer); err != nil {
			return err
		}
	}
	return nil
}

// expect reads a message of a kind.
func (m *Memif) expect(kind uint16) error {
	b := make([]byte, 128)
	n, err := unix.Read(m.control, b)
	if err == nil && (n < len(b) || binary.NativeEndian.Uint16(b) != kind) {
		err = fmt.Errorf("memif: VPP says %q, want a message %d", b[:max(n, 0)], kind)
	}
	return err
}

func (m *Memif) put(at int64, b []byte) error {
	_, err := unix.Pwrite(m.memory, b, at)
	return err
}

func (m *Memif) get(at int64, b []byte) error {
	_, err := unix.Pread(m.memory, b, at)
	return err
}

func (m *Memif) setHead(ring int64, head uint16) error {
	return m.put(ring+ringHead, binary.NativeEndian.AppendUint16(nil, head))
}

// describe writes a descriptor.
func (m *Memif) describe(ring int64, slot uint16, length, offset uint32) error {
	b := append(binary.NativeEndian.AppendUint32([]byte{0, 0, 0, 0}, length), 0, 0, 0, 0, 0, 0, 0, 0)
	binary.NativeEndian.PutUint32(b[8:], offset)
	return m.put(ring+ringDescriptors+int64(slot)*descriptorSize, b)
}

// offer gives VPP a buffer to write to.
func (m *Memif) offer(slot uint16) error {
	return m.describe(fromVPP, slot, memifBuffer, buffers+(memifSlots+uint32(slot))*memifBuffer)
}

// Write sends a frame into VPP.
func (m *Memif) Write(frame []byte) error {
	slot := m.sent % memifSlots
	offset := buffers + uint32(slot)*memifBuffer
	if err := m.put(int64(offset), frame); err != nil {
		return err
	}
	if err := m.describe(toVPP, slot, uint32(len(frame)), offset); err != nil {
		return err
	}
	m.sent++
	if err := m.setHead(toVPP, m.sent); err != nil {
		return err
	}
	_, err := unix.Write(m.kick, binary.NativeEndian.AppendUint64(nil, 1))
	return err
}

// isThere reports whether VPP has sent a frame that was not read.
func (m *Memif) isThere() (bool, error) {
	tail := make([]byte, 2)
	err := m.get(fromVPP+ringTail, tail)
	return binary.NativeEndian.Uint16(tail) != m.got, err
}

// Read waits up to 100 ms for a frame that left VPP. It returns its length.
func (m *Memif) Read(buf []byte) (n int, at time.Time, err error) {
	if isThere, err := m.isThere(); err != nil {
		return 0, at, err
	} else if !isThere {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(m.wake), Events: unix.POLLIN}}, 100); err != nil {
			return 0, at, err
		}
		_, _ = unix.Read(m.wake, make([]byte, 8)) // none, if it was long ago
		if isThere, err := m.isThere(); err != nil || !isThere {
			return 0, at, cmp.Or(err, error(unix.EAGAIN))
		}
	}
	slot, length := m.got%memifSlots, make([]byte, 4)
	if err := m.get(fromVPP+ringDescriptors+int64(slot)*descriptorSize+4, length); err != nil {
		return 0, at, err
	}
	n = min(int(binary.NativeEndian.Uint32(length)), len(buf))
	if err := m.get(buffers+(memifSlots+int64(slot))*memifBuffer, buf[:n]); err != nil {
		return 0, at, err
	}
	if err := m.offer(slot); err != nil {
		return 0, at, err
	}
	m.got++
	return n, time.Now(), m.setHead(fromVPP, m.got+memifSlots)
}
