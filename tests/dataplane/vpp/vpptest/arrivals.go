package vpptest

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// Cross sends a packet from one end to another, and reports whether it arrives: all of it does, or
// an ACL or the plugin denies it. The test fails when it is lost.
func (p *Network) Cross(tb testing.TB, from, to End, k Packet) bool {
	tb.Helper()
	before := p.Denied()
	p.Sent++
	if err := from.Write(k.Frame()); err != nil {
		tb.Fatal(err)
	}
	buf, left, arrived := make([]byte, 1<<17), k.Payload, false
	Eventually(tb, "the packet to arrive or to be denied", func() bool {
		n, _, err := to.Read(buf)
		switch {
		case err == nil:
			if payload, ofOurs := k.segmentOf(buf[:n]); ofOurs {
				left -= payload
				arrived = left <= 0
			}
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			tb.Fatal(err)
		case p.Denied() > before:
			return true
		}
		return arrived
	})
	return arrived
}

// Denied is how many packets ACLs or the plugin denied so far.
func (p *Network) Denied() int {
	return p.counted("ACL deny packets") + p.counted(" sluice-")
}

// segmentOf reports whether a frame has the packet, or a part of its payload, and how much of that.
func (p Packet) segmentOf(frame []byte) (payload int, ofOurs bool) {
	for _, ip := range framed(frame) {
		src, dst, mark, known := marked(ip)
		if !known || src != p.Src || dst != p.Dst {
			continue
		}
		if p.Payload == 0 {
			return 0, mark == p.Mark
		}
		head := 20
		if src.Is6() {
			head = 40
		}
		if len(ip) < head+20 || binary.BigEndian.Uint16(ip[head:]) != p.SrcPort || binary.BigEndian.Uint16(ip[head+2:]) != p.DstPort {
			continue
		}
		return lengthOf(ip) - head - 20, true
	}
	return 0, false
}
