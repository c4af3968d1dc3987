package node

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
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
	w := Walk{Verdict: verdict, Reason: "no list restricts it", flow: f, asked: []renderer.Explainer{n.XDP}}
	for _, d := range n.XDP.Explain(f) {
		w.Reason = fmt.Sprintf("%s rule %d: %s", d.Table, d.Rule, d.Match)
		if d.Action == api.Deny {
			break
		}
	}
	return w
}

// dumpOfXDP writes lists of pods as tables, those that are equal once.
func dumpOfXDP(d xdp.Dump) acl.Dump {
	out := acl.Dump{Error: d.Error, Pending: d.Pending, Connected: d.Error == ""}
	at := map[string]int{}
	for _, e := range d.Endpoints {
		for _, t := range e.Tables {
			key := t.Name + fmt.Sprint(t.Rules)
			i, known := at[key]
			if !known {
				i = len(out.Tables)
				at[key] = i
				out.Tables = append(out.Tables, acl.DumpTable{
					Name: t.Name + " of " + e.Pod.String(), Rules: t.Rules, Origins: t.Origins, Entries: len(t.Rules),
					Hits: t.Hits, CountedWith: ownHits(len(t.Rules)),
				})
			}
			if table := &out.Tables[i]; !slices.Contains(table.Pods, e.Pod) {
				table.Pods = append(table.Pods, e.Pod)
			}
		}
	}
	slices.SortFunc(out.Tables, func(a, b acl.DumpTable) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ownHits says of every rule that it is counted by itself.
func ownHits(rules int) []int {
	out := make([]int, rules)
	for i := range out {
		out[i] = i
	}
	return out
}
