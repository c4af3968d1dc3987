package vpp

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// TestVPPBypasses pins down which packets meet ACLs although nothing is forwarded, and
// which do not. The embedded dataplane has neither multicast nor addresses of its own.
func TestVPPBypasses(t *testing.T) {
	v := newOnVPP(vpptest.Launch(t, "ping_plugin.so"))
	x := &trial{TB: t, plane: v}
	closed, open := x.add(x.rule(deny)), x.add(x.rule(permit))
	x6 := &trial{TB: t, plane: v, six: true}
	closed6, open6 := x6.add(x6.rule(deny)), x6.add(x6.rule(permit))
	echo := func(dst string) vswitch.Packet {
		a := netip.MustParseAddr(dst)
		protocol := api.ICMP
		if a.Is6() {
			protocol = api.ICMPv6
		}
		return vswitch.FlowPacket(api.Flow{Src: podAddress[a.Is6()], Dst: a, Protocol: protocol})
	}
	for _, tt := range []struct {
		name   string
		in     []uint32
		out    []uint32
		packet vswitch.Packet
		denied int
	}{
		{"what a pod sends to many does not meet its input", []uint32{closed, closed6}, nil, echo("224.0.0.5"), 0},
		{"nor over IPv6", []uint32{closed, closed6}, nil, echo("ff02::5"), 0},
		{"what it sends to VPP does", []uint32{closed, closed6}, nil, echo(vpptest.Gateway4), 1},
		{"also over IPv6", []uint32{closed, closed6}, nil, echo(vpptest.Gateway6), 1},
		{"what VPP answers meets the pod's output", []uint32{open, open6}, []uint32{closed, closed6}, echo(vpptest.Gateway4), 1},
		{"which may let it out", []uint32{open, open6}, []uint32{open, open6}, echo(vpptest.Gateway4), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x.code("bind", x.setLists(v.of(true), tt.in, tt.out), 0)
			v.mark++
			if got := v.Inject([]vpptest.Packet{{Packet: tt.packet, Mark: v.mark}}).Denied; got != tt.denied {
				t.Errorf("acls denied %d packets, want %d", got, tt.denied)
			}
		})
	}
}
