package node

import (
	"fmt"
	"net/netip"
	"strings"

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

// Reasons of permitted packets.
const (
	reasonLocal = "stays inside the pod" // no dataplane sees it
	reasonOpen  = "no rule restricts it"
)

// podAt returns the pod that an address is routed to.
func (a *Attacher) podAt(ip netip.Addr) (pod api.PodID, ok bool) {
	index, ok := a.At(ip)
	if !ok {
		return api.PodID{}, false
	}
	for pod, p := range a.ports {
		if p.index == index {
			return pod, true
		}
	}
	return api.PodID{}, false
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
