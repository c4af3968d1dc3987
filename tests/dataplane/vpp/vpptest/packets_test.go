package vpptest

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
)

// TestPacketsAreFound needs no VPP.
func TestPacketsAreFound(t *testing.T) {
	var frames []byte
	var sent []Packet
	for _, ends := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}} {
		for _, protocol := range []api.Protocol{api.TCP, api.UDP, api.SCTP, api.ICMP} {
			sent = append(sent, First(api.Flow{Src: netip.MustParseAddr(ends[0]), Dst: netip.MustParseAddr(ends[1]), Protocol: protocol,
				SrcPort: 40000, DstPort: 80}, uint32(77+len(sent))))
		}
	}
	for _, p := range sent {
		p.Mark += 100
		if p.Empty = p.Protocol == api.UDP; !p.Empty {
			p.Extensions = 2
		}
		sent = append(sent, p)
	}
	var raw [][]byte
	for _, p := range sent {
		raw = append(raw, append(make([]byte, 14), p.bytes()...))
		raw[len(raw)-1] = append(raw[len(raw)-1], make([]byte, 20)...) // padding
	}
	frames = Capture(raw)
	frames[20] = ethernet
	for i, b := range captured(t, frames) {
		src, dst, mark, ok := marked(b)
		if !ok || src != sent[i].Src || dst != sent[i].Dst || mark != sent[i].Mark {
			t.Errorf("packet %d of %v: %s to %s with mark %d", i, sent[i], src, dst, mark)
		}
		if b[0] == 0x45 && checksum(b[:20]) != 0 {
			t.Errorf("packet %d has a wrong checksum", i)
		}
	}
}
