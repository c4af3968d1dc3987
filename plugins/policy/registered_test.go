package policy

import (
	"net/netip"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// TestPluginEnforcesWithRegisteredAddresses: a recommit is enough, and both pods and sets have them.
func TestPluginEnforcesWithRegisteredAddresses(t *testing.T) {
	want, full := startHandler(t, Deps{})
	state := shop(t).Deltas
	given := map[api.PodID][]netip.Addr{}
	h, r := startHandler(t, Deps{Registered: func() map[api.PodID][]netip.Addr { return given }})
	var bare []model.Delta
	addrs := map[api.PodID][]netip.Addr{}
	for _, d := range state {
		if p, ok := d.Value.(*model.Pod); ok && p.NodeName == node {
			for _, ip := range p.Ips {
				id := api.PodID{Namespace: p.Namespace, Name: p.Name}
				addrs[id] = append(addrs[id], netip.MustParseAddr(ip))
			}
			p = proto.CloneOf(p)
			p.Ips, d.Value = nil, p
		}
		bare = append(bare, d)
	}
	if err := want.Resync(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if err := h.Resync(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Pods()); n != 0 {
		t.Fatalf("%d pods without an address are rendered", n)
	}
	given = addrs
	if err := h.Recommit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := r.Dump(), full.Dump(); got != want || len(r.Pods()) == 0 {
		t.Errorf("rendered is\n%s\nwant what the state with these addresses leads to:\n%s", got, want)
	}
}
