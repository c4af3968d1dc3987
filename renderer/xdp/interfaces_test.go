package xdp_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// TestCommitAttachesAndDetachesLinks: an interface is made again with the number that
// it had, what was attached is detached by another process, and the owner of interfaces does not
// release one.
func TestCommitAttachesAndDetachesLinks(t *testing.T) {
	t.Parallel()
	needKernel(t)
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{}, "a", "b")
	w.Serve("b", 80)
	b, pod := w.Pods["b"], api.PodID{Namespace: "net", Name: "b"}
	index := uint32(b.Index)
	refused := errors.New("not yet")
	var eps map[uint32]api.PodID
	var pods map[api.PodID]bool
	r, err := xdp.New(xdp.Options{
		Dataplane:  w.kernel,
		Interfaces: func(api.PodID, []netip.Addr) []uint32 { return []uint32{index} },
		Enforced:   func(p map[api.PodID]bool, e map[uint32]api.PodID) { pods, eps = p, e },
		Release:    func(uint32) error { return refused },
	})
	w.Must(err)
	commit := func(c renderer.Changes) error {
		return wires.Inside(w.Node, func() error { return r.Apply(t.Context(), c) })
	}
	changes := renderer.Changes{Resync: true}
	changes.Render(pod, renderer.PodConfig{IPs: []netip.Addr{b.V4, b.V6}, Egress: renderer.NewRuleList([]api.ContivRule{{}}, nil)})
	w.Must(commit(changes))
	if len(eps) != 1 || eps[index] != pod || !pods[pod] {
		t.Errorf("enforced is %v of %v, want %s at %d", eps, pods, pod, index)
	}
	w.Can(false, "before", "a", "b", "tcp", 4, 80)
	w.Must(wires.Inside(w.Node, func() error { return wires.Unplug(b.Index) }))
	w.PlugAs(b, b.Index)
	w.Must(commit(renderer.Changes{}))
	w.Can(false, "after the interface was made again", "a", "b", "tcp", 4, 80)
	w.Can(true, "what is not isolated", "b", "a", "icmp", 4, 0)

	if err := commit(renderer.Changes{Resync: true}); !errors.Is(err, refused) {
		t.Errorf("a pod that is gone, whose interface is not let go of: %v", err)
	}
	ids, err := w.kernel.Attached()
	w.Must(err)
	if !slices.Contains(ids, index) {
		t.Errorf("attached is %v, want %d still", ids, index)
	}
	w.Can(false, "what is not let go of", "a", "b", "tcp", 4, 80)
	refused = nil
	w.Must(commit(renderer.Changes{Resync: true}))
	w.Can(true, "what was let go of", "a", "b", "icmp", 4, 0)
	if len(eps) > 0 || len(pods) > 0 {
		t.Errorf("enforced is %v of %v, want nothing", eps, pods)
	}
	w.Must(r.Close())
}
