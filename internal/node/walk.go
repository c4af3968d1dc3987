package node

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
)

// Walk is what happened to a packet on its way: one visit per node it passed.
type Walk struct {
	Verdict api.Action
	Reason  string
	Visits  []Visit
}

// Visit is what one node did with the packet.
type Visit struct {
	Node  string
	Trace vswitch.Trace
}

// reasonLocal is the reason of packets that no dataplane sees.
const reasonLocal = "stays inside the pod"

// Probe asks the dataplane what becomes of the first packet of a flow from a node's pod,
// or in through its uplink when the source is none of its pods. The answer is that of the
// tables, never that of a session. No rule counts the packet, and no session is changed.
func (n *Node) Probe(f api.Flow) Walk {
	if f.Src == f.Dst {
		return Walk{Verdict: api.Permit, Reason: reasonLocal}
	}
	if n.onlyXDP() {
		return n.sendXDP(f)
	}
	t := n.embedded.First(f)
	return Walk{Verdict: t.Verdict, Reason: t.Reason, Visits: []Visit{{Node: n.name, Trace: t}}}
}

// attempt asks the session rules of a node about a connection: the local ones of the pod that
// opens it, and those of the routing table that it reaches a pod by.
func (n *Node) attempt(f api.Flow) Walk {
	if f.Src == f.Dst {
		return Walk{Verdict: api.Permit, Reason: reasonLocal}
	}
	w := Walk{Verdict: api.Permit}
	if namespace, ok := n.embedded.attach.namespaceAt(f.Src); ok {
		w = walked(n.Switch.Connect(namespace, f))
	}
	if namespace, ok := n.embedded.attach.namespaceAt(f.Dst); ok && w.Verdict == api.Permit {
		w = walked(n.Switch.Accept(namespace, f))
	}
	return w
}

func walked(v vswitch.SessionVerdict) Walk { return Walk{Verdict: v.Action, Reason: v.Rule.String()} }

// namespaceAt returns the application namespace of the pod that has an address.
func (a *Attacher) namespaceAt(ip netip.Addr) (uint32, bool) {
	index, ok := a.At(ip)
	if !ok {
		return 0, false
	}
	for _, p := range a.ports {
		if p.index == index {
			return p.namespace, true
		}
	}
	return 0, false
}

// has says whether the address is that of a pod on this node.
func (n *Node) has(a netip.Addr) bool {
	if n.onlyXDP() {
		return n.XDP.Has(a)
	}
	return n.embedded.Has(a)
}

// String returns the hop that decided, in one line.
func (w Walk) String() string {
	for _, t := range w.Visits {
		for _, h := range t.Trace.Hops {
			if h.Action == api.Deny {
				return h.String()
			}
		}
	}
	return w.Reason
}
