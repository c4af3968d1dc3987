package node

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
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

// Reasons of permitted packets.
const (
	reasonLocal = "stays inside the pod" // no dataplane sees it
	reasonOpen  = "no rule restricts it"
)

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
	w := Walk{Verdict: api.Permit, Reason: reasonOpen}
	if namespace, ok := n.embedded.attach.namespaceAt(f.Src); ok {
		w = walked(n.Switch.Connect(namespace, f))
	}
	if namespace, ok := n.embedded.attach.namespaceAt(f.Dst); ok && w.Verdict == api.Permit {
		w = walked(n.Switch.Accept(namespace, f))
	}
	return w
}

func walked(v vswitch.SessionVerdict) Walk {
	if v.Rule.Action == vswitch.SessionRuleNone {
		return Walk{Verdict: v.Action, Reason: reasonOpen}
	}
	return Walk{Verdict: v.Action, Reason: v.Rule.String()}
}

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

// decider returns the renderer whose rules decide what is asked of a node in a Fabric.
func (n *Node) decider() renderer.Renderer {
	switch {
	case n.Session != nil:
		return n.Session
	case n.onlyXDP():
		return n.XDP
	}
	return n.ACL
}

// String returns what the dataplane dropped the packet by, or why it did not.
func (w Walk) String() string {
	for _, t := range w.Visits {
		for _, h := range t.Trace.Hops {
			if h.Action == api.Deny {
				return PlaceOf(PodAt(h)) + ": " + h.Decided()
			}
		}
	}
	return w.Reason
}

// podInterface is what the names of interfaces of pods begin with, in the embedded dataplane.
const podInterface = "pod/"

// PodAt returns the pod at whose interface a hop is, and in which direction the pod sees it.
// The direction at another interface is that of the node.
func PodAt(h vswitch.Hop) (api.PodID, api.Direction) {
	var pod api.PodID
	if name, ok := strings.CutPrefix(h.Interface, podInterface); ok && pod.UnmarshalText([]byte(name)) == nil {
		return pod, h.Direction.Opposite()
	}
	return api.PodID{}, h.Direction
}

// PlaceOf names what PodAt returns: "egress of shop/web-0", or "out of the node".
func PlaceOf(pod api.PodID, d api.Direction) string {
	switch {
	case pod != (api.PodID{}):
		return fmt.Sprintf("%s of %s", d, pod)
	case d == api.Ingress:
		return "into the node"
	}
	return "out of the node"
}

// Entry names what the dataplane matched: an entry of an ACL, a session, or nothing.
func Entry(h vswitch.Hop) string {
	if h.Rule < 0 {
		return string(h.Matched)
	}
	return fmt.Sprintf("%s %d rule %d", h.Matched, h.ACLIndex, h.Rule)
}
