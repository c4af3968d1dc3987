package backends

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/xdptest"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// xdpKernel is the XDP renderer over the kernel, whose program is asked about crafted packets,
// each of which says which endpoint it is of. Nothing is attached to any interface.
type xdpKernel struct {
	*xdpBackend
	kernel *xdptest.Pooled
}

var (
	_ Backend  = xdpKernel{}
	_ Tabled   = xdpKernel{}
	_ Stateful = xdpKernel{}
	_ Sender   = xdpKernel{}
	_ Strict   = xdpKernel{}
)

// kernels are used again: what a backend leaves is taken away. They are those of the process, and
// end with it, because All is what every suite begins with: a pool that each test had to hand on
// and to close would be loaded anew by each, a tenth of a second for what most ask for a
// millisecond. Nothing that a kernel of the pool has is attached or pinned, so that none outlives
// the process.
var kernels xdptest.Pool

func newXDPKernel(prompt func()) (Backend, error) {
	k, err := kernels.Take()
	if err != nil {
		return nil, err
	}
	s, err := overPlane(k, prompt)
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return xdpKernel{s, k}, nil
}

// First implements Stateful.
func (s xdpKernel) First(f api.Flow) bool { return s.sends(f.Src, f.Dst, xdp.Frame(f, false)) }

// Reply implements Stateful.
func (s xdpKernel) Reply(f api.Flow) bool { return s.sends(f.Dst, f.Src, xdp.Frame(f, true)) }

// Passes implements Sender. An ICMP error is about a packet that was sent, if any may be. Neighbour
// discovery is as hosts send it.
func (s xdpKernel) Passes(p vswitch.Packet) bool {
	out := vpptest.Packet{Packet: p, To: vpptest.MAC{2}}
	if isError(p) {
		f := s.begun(p.Dst, p.Src)
		s.First(f)
		about := vswitch.FlowPacket(f)
		out.About = &about
	}
	if p.Protocol == api.ICMPv6 && p.ICMPType == advertisement {
		s.sends(p.Dst, p.Src, discovery(vpptest.Packet{Packet: vswitch.Packet{Src: p.Dst, Dst: p.Src, Protocol: p.Protocol, ICMPType: solicitation}, To: out.To}, p.Src))
		return s.sends(p.Src, p.Dst, discovery(out, p.Src))
	}
	if p.Protocol == api.ICMPv6 && p.ICMPType == solicitation {
		node := netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: p.Dst.As16()[13], 14: p.Dst.As16()[14], 15: p.Dst.As16()[15]})
		to := p.Dst
		out.Dst = node
		return s.sends(p.Src, to, discovery(out, to))
	}
	return s.sends(p.Src, p.Dst, out.Frame())
}

// Types of ICMPv6.
const (
	solicitation  = 135
	advertisement = 136
)

// discovery returns a frame of neighbour discovery about a target: RFC 4861, 4.3 and 4.4.
func discovery(p vpptest.Packet, target netip.Addr) []byte {
	const ip, icmp = 14, 14 + 40
	b := p.Frame()[:icmp+8]
	clear(b[icmp+4:])
	b = append(b, target.AsSlice()...)
	b[ip+5], b[ip+7] = byte(len(b)-icmp), 255
	return b
}

// Drops implements Strict: a later fragment has the ports of the first one, which was not sent.
func (s xdpKernel) Drops(p vswitch.Packet) bool { return p.NonFirstFragment }

// isError reports whether a packet is an ICMP error.
func isError(p vswitch.Packet) bool {
	return p.Protocol == api.ICMP && p.ICMPType == 3 || p.Protocol == api.ICMPv6 && p.ICMPType < 128
}

// begun returns a flow that the rules permit, if they permit any that a rule names.
func (s xdpKernel) begun(src, dst netip.Addr) api.Flow {
	return permittedFlow(src, dst, s.xdp.State().Tables, s.Verdict)
}

func permittedFlow(src, dst netip.Addr, tables []renderer.Table, verdict func(api.Flow) api.Action) api.Flow {
	f := api.Flow{Src: src, Dst: dst, Protocol: api.TCP, SrcPort: 40000, DstPort: 80}
	for _, t := range tables {
		for _, r := range t.Rules {
			asked := f
			if asked.DstPort, _ = r.DstPort.Bounds(); verdict(asked) == api.Permit {
				return asked
			}
		}
	}
	return f
}

// sends judges a packet at all endpoints on its way, the sender's first. The packet leaves its
// tracked connection there.
func (s xdpKernel) sends(src, dst netip.Addr, frame []byte) bool {
	if src == dst {
		return true
	}
	for _, dir := range []compile.Direction{compile.FromPod, compile.ToPod} {
		for _, id := range s.ends(src, dst, dir) {
			ok, err := s.kernel.Probe(id, dir, frame)
			if err != nil {
				panic(fmt.Sprintf("the kernel does not answer: %v", err)) // no backend can continue then
			}
			if !ok {
				return false
			}
		}
	}
	return true
}

// ends are the endpoints that have the address of the sender, or of the receiver.
func (s xdpKernel) ends(src, dst netip.Addr, dir compile.Direction) (out []uint32) {
	read := compile.Reader{Word: s.kernel.Word}
	ids, _ := s.kernel.Attached() // it does not fail
	own, other := src, dst
	if dir == compile.ToPod {
		own, other = dst, src
	}
	for _, id := range ids {
		if record := s.kernel.Record(id); read.Has(record, own) && !read.Has(record, other) {
			out = append(out, id)
		}
	}
	return out
}

// Close gives the kernel back.
func (s xdpKernel) Close() error { return errors.Join(s.xdpBackend.Close(), s.kernel.Close()) }
