package vpp

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// TestVPPHits counts what policies decided, while tables are replaced.
func TestVPPHits(t *testing.T) {
	p := vpptest.NewNetwork(vpptest.Launch(t))
	l := &lab{Network: p, tb: t}
	l.real = startNode(t, "node-1", acl.Options{Socket: p.Socket(), Stats: acl.Stats{Socket: p.StatsSocket()}})
	l.twin = startNode(t, "node-1", acl.Options{})
	w := shop(t)
	l.apply(w.resync())
	closed := moved(w, "shop", "catalog", api.Ingress)
	mark := uint32(0)
	send := func(n int, port uint16) {
		var packets []vpptest.Packet
		for range n {
			mark++
			packets = append(packets, vpptest.First(api.Flow{Src: netip.MustParseAddr("10.10.1.10"), Dst: netip.MustParseAddr("10.10.1.20"),
				Protocol: api.TCP, SrcPort: uint16(42_000 + mark), DstPort: port}, mark))
		}
		l.Send(packets)
	}
	want := func(permitted, denied uint64) {
		t.Helper()
		got := map[api.Action]uint64{}
		for d, n := range l.real.ACL.Decisions() {
			// What is denied at both ends is said to be denied by one of them.
			if name := d.Origin.Policy.Name; name == "catalog" && d.Action == api.Permit || name == "default-deny" && d.Action == api.Deny {
				got[d.Action] += n
			}
		}
		if got[api.Permit] != permitted || got[api.Deny] != denied {
			t.Errorf("%d permitted and %d denied, want %d and %d: %v", got[api.Permit], got[api.Deny], permitted, denied, l.real.ACL.Decisions())
		}
	}
	want(0, 0)
	send(3, 8081)
	send(2, 9999)
	want(3, 2)
	l.apply(model.Changes{Deltas: closed.since(w)})
	want(3, 2)
	send(4, 8081)
	want(3, 6)
	l.apply(model.Changes{Deltas: w.since(closed)})
	send(1, 8081)
	want(4, 6)
}
