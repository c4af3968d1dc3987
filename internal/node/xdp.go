package node

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// XDP has rules enforced in the kernel.
type XDP struct {
	// Options of the renderer; the node closes the plane, and sets OnChange.
	Options xdp.Options
	// Only says that there is no vswitch: nobody else is told.
	Only bool
}

// HeapXDP enforces in the heap, with an interface for every pod, for tests of policies.
func HeapXDP() *XDP {
	return &XDP{Only: true, Options: xdp.Options{Plane: xdp.NewHeap(), Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 {
		return []uint32{crc32.ChecksumIEEE([]byte(pod.String())) | 1}
	}}}
}

// newXDP makes the renderer.
func (n *Node) newXDP(o XDP) error {
	o.Options.OnChange = n.Plugin.Prompt
	r, err := xdp.New(o.Options)
	if err != nil {
		return errors.Join(err, o.Options.Plane.Close())
	}
	n.XDP, n.plane = r, o.Options.Plane
	return nil
}

// closeXDP ends the renderer. What is pinned goes on.
func (n *Node) closeXDP() error {
	if n.XDP == nil {
		return nil
	}
	return errors.Join(n.XDP.Close(), n.plane.Close())
}

// onlyXDP says that the kernel is all that enforces.
func (n *Node) onlyXDP() bool { return n.XDP != nil && n.ACL == nil && n.Ligato == nil }

// sendXDP asks the kernel's memory about the first packet of a flow.
func (n *Node) sendXDP(f api.Flow) Walk {
	verdict, err := n.XDP.Verdict(f)
	if err != nil {
		return Walk{Verdict: api.Deny, Reason: err.Error()}
	}
	w := Walk{Verdict: verdict, Reason: reasonOpen}
	for _, d := range n.XDP.Explain(f) {
		w.Reason = fmt.Sprintf("%s rule %d: %s", d.Table, d.Rule, d.Match)
		if d.Action == api.Deny {
			break
		}
	}
	return w
}
