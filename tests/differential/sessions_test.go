package differential

import (
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer/acl"
)

// wires is where packets enter and leave the nodes of a fleet. A Fabric forgets
// every flow that it was asked about; packets on wires leave their sessions behind,
// as real ones do.
type wires struct {
	fleet  fleet
	at     map[netip.Addr]wire // by the address of a pod
	uplink map[string]uint32   // by node
}

// wire is the interface of one pod.
type wire struct {
	node string
	port uint32
}

// wires reads the routes of all nodes as they are now.
func (f fleet) wires() wires {
	out := wires{fleet: f, at: map[netip.Addr]wire{}, uplink: map[string]uint32{}}
	for name, w := range f {
		for _, i := range w.Switch.Interfaces() {
			if i.Tag == acl.UplinkTag {
				out.uplink[name] = i.Index
			}
		}
		for _, r := range w.Switch.Routes() {
			if p := netip.MustParsePrefix(r.Prefix); p.IsSingleIP() {
				out.at[p.Addr()] = wire{name, r.SwIfIndex}
			}
		}
	}
	return out
}

// send carries a packet from node to node and says whether it arrives.
func (w wires) send(p vswitch.Packet) bool {
	if p.Src == p.Dst {
		return true // stays inside the pod
	}
	src, fromPod := w.at[p.Src]
	dst, toPod := w.at[p.Dst]
	if fromPod && !w.pass(src, p) {
		return false
	}
	if !toPod || fromPod && src.node == dst.node {
		return true
	}
	return w.pass(wire{dst.node, w.uplink[dst.node]}, p)
}

func (w wires) pass(in wire, p vswitch.Packet) bool {
	return w.fleet[in.node].Switch.Inject(in.port, p).Verdict == api.Permit
}

// first sends the first packet of a flow.
func (w wires) first(f api.Flow) bool { return w.send(vswitch.FlowPacket(f)) }

// reply sends the answer to the first packet of a flow.
func (w wires) reply(f api.Flow) bool {
	p := vswitch.FlowPacket(f.Reverse())
	switch f.Protocol {
	case api.TCP:
		p.TCPFlags = 0x12 // SYN, ACK
	case api.ICMP:
		p.ICMPType = 0
	case api.ICMPv6:
		p.ICMPType = 129
	default: // others have no field that tells a reply
	}
	return w.send(p)
}

// trace prints what the nodes of both ends do with the first packet of a flow now.
func (w wires) trace(f api.Flow) string {
	var b strings.Builder
	for _, end := range []netip.Addr{f.Src, f.Dst} {
		at, ok := w.at[end]
		if !ok {
			continue
		}
		in := at.port
		if end == f.Dst && w.at[f.Src].node != at.node {
			in = w.uplink[at.node]
		}
		b.WriteString("node " + at.node + ": " + w.fleet[at.node].Switch.Inject(in, vswitch.FlowPacket(f)).String() + "\n")
	}
	return b.String()
}
