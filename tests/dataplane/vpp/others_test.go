package vpp

import (
	"fmt"
	"net/netip"
	"testing"

	govpp "go.fd.io/govpp/api"
	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ethernet_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// experimental types of frames (IEEE 802, local experimental use).
const listedType, otherType = 0x88b5, 0x88b6

// guards are lists of VPP that policy does not need and others may have on a pod's
// interface: by Ethernet address and by type of frame.
type guards struct {
	bridge
	client vppacl.RPCService
}

// guard restricts the interface of web to its own Ethernet and IP source address, and that of db to
// IP and one other type of frame.
func guard(t *testing.T, b bridge) guards {
	g := guards{b, vppacl.NewServiceClient(b.Conn)}
	own := acl_types.MacipACLRule{
		IsPermit: acl_types.ACL_ACTION_API_PERMIT, SrcMac: ethernet_types.MacAddress(b.macs[b.web]),
		SrcMacMask: ethernet_types.MacAddress{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		SrcPrefix:  vpp.ToPrefix(netip.PrefixFrom(b.addresses[b.web], 32)),
	}
	r, err := g.client.MacipACLAddReplace(t.Context(), &vppacl.MacipACLAddReplace{ACLIndex: ^uint32(0), Tag: "of another", R: []acl_types.MacipACLRule{own}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.client.MacipACLInterfaceAddDel(t.Context(), &vppacl.MacipACLInterfaceAddDel{IsAdd: true, SwIfIndex: b.link(b.web).Index, ACLIndex: r.ACLIndex}); err != nil {
		t.Fatal(err)
	}
	types := &vppacl.ACLInterfaceSetEtypeWhitelist{SwIfIndex: b.link(b.db).Index, NInput: 1, Whitelist: []uint16{listedType}}
	if _, err := g.client.ACLInterfaceSetEtypeWhitelist(t.Context(), types); err != nil {
		t.Fatal(err)
	}
	return g
}

// text is all of the lists, and where they are.
func (g guards) text(t *testing.T) (out string) {
	note := func(m govpp.Message) { out += fmt.Sprintf("%s %+v\n", m.GetMessageName(), m) }
	macip, err := g.client.MacipACLDump(t.Context(), &vppacl.MacipACLDump{ACLIndex: ^uint32(0)})
	noteAll(t, note, macip, err)
	at, err := g.client.MacipACLInterfaceListDump(t.Context(), &vppacl.MacipACLInterfaceListDump{SwIfIndex: g.link(g.web).Index})
	noteAll(t, note, at, err)
	types, err := g.client.ACLInterfaceEtypeWhitelistDump(t.Context(), &vppacl.ACLInterfaceEtypeWhitelistDump{SwIfIndex: g.link(g.db).Index})
	noteAll(t, note, types, err)
	return out
}

// stream is a dump.
type stream[M any] interface {
	Recv() (M, error)
	Close() error
}

func noteAll[M govpp.Message](t *testing.T, note func(govpp.Message), from stream[M], err error) {
	all, err := vpp.Drain[M](from, err)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		note(m)
	}
}

// TestVPPForeignACLLists has lists by Ethernet address (macip) and by type of frame on the
// interface of a pod: they and policy hold at once, a packet passes when all let it,
// and no commit touches them, nor does a new renderer.
func TestVPPForeignACLLists(t *testing.T) {
	g := guard(t, newBridge(t))
	before := g.text(t)
	commit := func(r renderer.Renderer, resync bool, port uint16) {
		changes := renderer.Changes{Resync: resync}
		changes.Render(g.web, renderer.PodConfig{IPs: []netip.Addr{g.addresses[g.web]}, Egress: onPort(80)})
		changes.Render(g.db, renderer.PodConfig{IPs: []netip.Addr{g.addresses[g.db]}, Egress: onPort(port)})
		if err := r.Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
		if after := g.text(t); after != before {
			t.Errorf("lists of others are\n%s\nwere\n%s", after, before)
		}
	}
	commit(g.renderer(t), true, 5432)
	g.judge(t, 5432)
	commit(g.renderer(t), false, 5433) // a new one, with other policy
	g.judge(t, 5433)
}

// judge sends frames between web and db, which takes one port.
func (g guards) judge(t *testing.T, port uint16) {
	t.Helper()
	stranger := netip.MustParseAddr("10.9.0.77")
	g.Routes[stranger] = g.Routes[g.addresses[g.web]]
	for n, tt := range []struct {
		name     string
		from, to api.PodID
		src      netip.Addr // zero: the sender's
		as       vpptest.MAC
		kind     uint16
		port     uint16
		passes   bool
	}{
		{"own addresses, permitted port", g.web, g.db, netip.Addr{}, g.macs[g.web], 0, port, true},
		{"own addresses, another port", g.web, g.db, netip.Addr{}, g.macs[g.web], 0, port + 7, false},
		{"another's Ethernet address", g.web, g.db, netip.Addr{}, g.macs[g.db], 0, port, false},
		{"another's IP address", g.web, g.db, stranger, g.macs[g.web], 0, port, false},
		{"IP is no matter of types", g.db, g.web, netip.Addr{}, g.macs[g.db], 0, 80, true},
		{"a listed type", g.db, g.web, netip.Addr{}, g.macs[g.db], listedType, 80, true},
		{"a type that is not listed", g.db, g.web, netip.Addr{}, g.macs[g.db], otherType, 80, false},
	} {
		if !tt.src.IsValid() {
			tt.src = g.addresses[tt.from]
		}
		mark := uint32(n + 1)
		syn := vswitch.FlowPacket(api.Flow{Src: tt.src, Dst: g.addresses[tt.to], Protocol: api.TCP, SrcPort: port + 30_000 + uint16(n), DstPort: tt.port})
		_, passed := g.Inject([]vpptest.Packet{{Packet: syn, To: g.macs[tt.to], From: tt.as, Type: tt.kind, Mark: mark}}).Left[mark]
		if passed != tt.passes {
			t.Errorf("port %d, %s: passes: %t", port, tt.name, passed)
		}
	}
}
