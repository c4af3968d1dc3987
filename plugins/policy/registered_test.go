package policy

import (
	"maps"
	"net/netip"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// TestPluginEnforcesWithRegisteredAddresses: a recommit is enough; both pods and sets get the
// addresses.
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
	if err := h.Reapply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := r.Dump(), full.Dump(); got != want || len(r.Pods()) == 0 {
		t.Errorf("rendered is\n%s\nwant what the state with these addresses leads to:\n%s", got, want)
	}
}

// TestPluginLosesNoRegistration covers a registration during a transaction: its prompt must not be
// lost, because the transaction may have read the addresses before.
func TestPluginLosesNoRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var web api.PodID
		late := map[api.PodID][]netip.Addr{}
		var p *Plugin
		armed := false
		r := renderertest.NewRecorder("one", t)
		p = start(t, Deps{Renderers: []renderer.Renderer{r}, Registered: func() map[api.PodID][]netip.Addr {
			asked := maps.Clone(late)
			if armed {
				armed = false
				late[web] = []netip.Addr{netip.MustParseAddr("10.77.2.3")}
				p.Prompt()
			}
			return asked
		}})
		changes := shop(t)
		for i, d := range changes.Deltas {
			if pod, ok := d.Value.(*model.Pod); ok && pod.NodeName == node && web.Name == "" {
				web, pod = api.PodID{Namespace: pod.Namespace, Name: pod.Name}, proto.CloneOf(pod)
				pod.Ips, changes.Deltas[i].Value = nil, pod
			}
		}
		mustApply(t, p, changes)
		armed = true
		p.Prompt()
		synctest.Wait()
		if got := r.Pods()[web].IPs; len(got) != 1 {
			t.Errorf("the pod has %v, want the address that was registered", got)
		}
	})
}
