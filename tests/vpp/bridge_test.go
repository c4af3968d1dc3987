package vpp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/vpp/vpptest"
)

// TestVPPBridged has pods in a bridge domain, and the rest of the world behind the
// domain's own interface: tables hold for what is bridged, and for what is routed in
// and out.
func TestVPPBridged(t *testing.T) {
	p := vpptest.Plumb(vpptest.Launch(t))
	web, db := api.PodID{Namespace: "shop", Name: "web"}, api.PodID{Namespace: "shop", Name: "db"}
	addresses := map[api.PodID]netip.Addr{web: netip.MustParseAddr("10.9.0.2"), db: netip.MustParseAddr("10.9.0.3")}
	macs := map[api.PodID]vpptest.MAC{web: {2, 0, 0, 0, 1, 2}, db: {2, 0, 0, 0, 1, 3}}
	bvi := vpptest.MAC{2, 0, 0, 0, 1, 1}
	p.CLI("create bridge-domain 9")
	p.CLI("create loopback interface mac 02:00:00:00:01:01 instance 9")
	p.Do("set interface l2 bridge loop9 9 bvi")
	p.Do("set interface state loop9 up")
	p.Do("set interface ip address loop9 10.9.0.1/24")
	for id, a := range addresses {
		l := p.Add(acl.InterfaceTag(id))
		p.Routes[a] = acl.InterfaceTag(id) // packets of the pod come from there
		p.Do("set interface unnumbered del %s", l.Name)
		p.Do("set interface l2 bridge %s 9", l.Name)
		p.Do("l2fib add %s 9 %s static", macText(macs[id]), l.Name)
		p.Do("set ip neighbor static loop9 %s %s", a, macText(macs[id]))
	}

	r, err := acl.New(acl.Options{Socket: p.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	rule := func(port uint16) api.ContivRule {
		return api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(port)}
	}
	list := func(port uint16) *renderer.RuleList {
		return renderer.NewRuleList([]api.ContivRule{rule(port), {Action: api.Deny}}, nil)
	}
	txn := r.NewTxn(true)
	txn.Render(web, renderer.PodConfig{IPs: []netip.Addr{addresses[web]}, Ingress: list(5432)})
	txn.Render(db, renderer.PodConfig{IPs: []netip.Addr{addresses[db]}, Egress: list(5432)})
	if err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}

	world := netip.MustParseAddr("192.0.2.9")
	mark, port := uint32(0), uint16(40_000)
	for _, tt := range []struct {
		name     string
		src, dst netip.Addr
		to       vpptest.MAC // zero: routed from the uplink
		port     uint16
		passes   bool
	}{
		{"bridged, permitted", addresses[web], addresses[db], macs[db], 5432, true},
		{"bridged, another port", addresses[web], addresses[db], macs[db], 5433, false},
		{"bridged, to a pod that takes all", addresses[db], addresses[web], macs[web], 80, true},
		{"routed in, permitted", world, addresses[db], vpptest.MAC{}, 5432, true},
		{"routed in, another port", world, addresses[db], vpptest.MAC{}, 22, false},
		{"routed out, permitted", addresses[web], world, bvi, 5432, true},
		{"routed out, another port", addresses[web], world, bvi, 80, false},
		{"routed out by a pod that may", addresses[db], world, bvi, 80, true},
	} {
		mark, port = mark+2, port+1
		syn := vswitch.FlowPacket(api.Flow{Src: tt.src, Dst: tt.dst, Protocol: api.TCP, SrcPort: port, DstPort: tt.port})
		if _, passed := p.Inject([]vpptest.Packet{{Packet: syn, To: tt.to, Mark: mark}}).Left[mark]; passed != tt.passes {
			t.Errorf("%s: passes: %t", tt.name, passed)
		}
		back := vpptest.Packet{Packet: syn.Reply(), Mark: mark + 1}
		switch tt.dst {
		case addresses[web]:
			back.To = macs[db]
		case addresses[db]:
			back.To = map[bool]vpptest.MAC{true: bvi, false: macs[web]}[tt.src == world]
		}
		if !tt.passes {
			continue
		}
		if _, passed := p.Inject([]vpptest.Packet{back}).Left[mark+1]; !passed {
			t.Errorf("%s: the answer is dropped", tt.name)
		}
	}
}

func macText(m vpptest.MAC) string { return net.HardwareAddr(m[:]).String() }
