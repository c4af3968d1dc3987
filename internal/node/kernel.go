package node

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// Kernel has policy enforced by programs in the kernel. It owns the plane of its Options from Open
// on. Of the Options, OnChange is the node's, and Log where it is nil.
type Kernel struct {
	Options xdp.Options
	XDP     *xdp.Renderer // made by Open
}

// Open implements Backend.
func (k *Kernel) Open(h Host) (err error) {
	k.Options.Log, k.Options.OnChange = cmp.Or(k.Options.Log, h.Log), h.OnChange
	if k.XDP, err = xdp.New(k.Options); err != nil {
		return errors.Join(err, k.Options.Dataplane.Close())
	}
	return nil
}

// Renderer implements Backend.
func (k *Kernel) Renderer() renderer.Renderer { return k.XDP }

// Close implements Backend. What is pinned stays in force.
func (k *Kernel) Close() error { return errors.Join(k.XDP.Close(), k.Options.Dataplane.Close()) }

// Heap is a Kernel whose policy map is in the heap, with an interface for every pod: it is for
// tests of policies.
type Heap struct{ Kernel }

// NewHeap returns a Heap that is not open.
func NewHeap() *Heap {
	return &Heap{Kernel{Options: xdp.Options{Dataplane: xdp.NewHeap(), Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 {
		return []uint32{crc32.ChecksumIEEE([]byte(pod.String())) | 1}
	}}}}
}

// Has implements Prober.
func (h *Heap) Has(a netip.Addr) bool { return h.XDP.Has(a) }

// Probe implements Prober.
func (h *Heap) Probe(f api.Flow) Walk {
	if f.Src == f.Dst {
		return Walk{Verdict: api.Permit, Reason: reasonLocal}
	}
	verdict, err := h.XDP.Verdict(f)
	if err != nil {
		return Walk{Verdict: api.Deny, Reason: err.Error()}
	}
	w := Walk{Verdict: verdict, Reason: reasonOpen}
	for _, d := range h.XDP.Explain(f) {
		w.Reason = fmt.Sprintf("%s rule %d: %s", d.Table, d.Rule, d.Match)
		if d.Action == api.Deny {
			break
		}
	}
	return w
}
