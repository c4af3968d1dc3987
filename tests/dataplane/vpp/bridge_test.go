package vpp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// bridge is a bridge domain with two pods, and the rest of the world behind the domain's
// own interface.
type bridge struct {
	*vpptest.Network
	web, db   api.PodID
	addresses map[api.PodID]netip.Addr
	macs      map[api.PodID]vpptest.MAC
	bvi       vpptest.MAC
}

func newBridge(t *testing.T) bridge {
	b := bridge{
		Network: vpptest.NewNetwork(vpptest.Launch(t)),
		web:     api.PodID{Namespace: "shop", Name: "web"}, db: api.PodID{Namespace: "shop", Name: "db"},
		bvi: vpptest.MAC{2, 0, 0, 0, 1, 1},
	}
	b.addresses = map[api.PodID]netip.Addr{b.web: netip.MustParseAddr("10.9.0.2"), b.db: netip.MustParseAddr("10.9.0.3")}
	b.macs = map[api.PodID]vpptest.MAC{b.web: {2, 0, 0, 0, 1, 2}, b.db: {2, 0, 0, 0, 1, 3}}
	b.CLI("create bridge-domain 9")
	b.CLI("create loopback interface mac %s instance 9", macText(b.bvi))
	b.Do("set interface l2 bridge loop9 9 bvi")
	b.Do("set interface state loop9 up")
	b.Do("set interface ip address loop9 10.9.0.1/24")
	for id, a := range b.addresses {
		l := b.Add(acl.InterfaceTag(id))
		b.Routes[a] = acl.InterfaceTag(id) // packets of the pod come from there
		b.Do("set interface unnumbered del %s", l.Name)
		b.Do("set interface l2 bridge %s 9", l.Name)
		b.Do("l2fib add %s 9 %s static", macText(b.macs[id]), l.Name)
		b.Do("set ip neighbor static loop9 %s %s", a, macText(b.macs[id]))
	}
	return b
}

// link returns the interface of a pod.
func (b bridge) link(id api.PodID) vpptest.Link { return b.Links[acl.InterfaceTag(id)] }

// renderer returns one for the bridge's VPP, until the test ends.
func (b bridge) renderer(t *testing.T) *acl.Renderer {
	r, err := acl.New(acl.Options{Socket: b.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// onPort is a list that permits a port of TCP.
func onPort(port uint16) *renderer.RuleList {
	permit := api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(port)}
	return renderer.NewRuleList([]api.ContivRule{permit, {Action: api.Deny}}, nil)
}

// TestVPPBridged has pods in a bridge domain: tables hold for what is bridged, and for
// what is routed in and out.
func TestVPPBridged(t *testing.T) {
	p := newBridge(t)
	web, db, addresses, macs, bvi := p.web, p.db, p.addresses, p.macs, p.bvi
	changes := renderer.Changes{Resync: true}
	changes.Render(web, renderer.PodConfig{IPs: []netip.Addr{addresses[web]}, Ingress: onPort(5432)})
	changes.Render(db, renderer.PodConfig{IPs: []netip.Addr{addresses[db]}, Egress: onPort(5432)})
	if err := p.renderer(t).Apply(t.Context(), changes); err != nil {
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
