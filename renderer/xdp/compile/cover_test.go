package compile

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// TestImageBlockReachesEachAddress: the entries of many addresses are divided, and a
// block that is added later and removed again encloses all parts.
func TestImageBlockReachesEachAddress(t *testing.T) {
	const addresses, block = api.SetID(300), api.SetID(301)
	m := NewImage(Options{})
	own := netip.MustParseAddr("10.9.0.1")
	var members []netip.Prefix
	for i := range byte(100) {
		members = append(members, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, i % 2, i}), 32))
	}
	m.Update(addresses, members, nil)
	list := renderer.NewRuleList([]api.ContivRule{
		{Action: api.Permit, Src: api.SetNet(block), Protocol: api.TCP, DstPort: api.Port(80)},
		{Action: api.Permit, Src: api.SetNet(addresses), Protocol: api.TCP, DstPort: api.Port(81)}, {},
	}, nil)
	if err := m.Set(Endpoint{ID: 7, IPs: []netip.Addr{own}, ToPod: list}); err != nil {
		t.Fatal(err)
	}
	around := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/15")}
	for i, in := range []bool{false, true, false} {
		switch {
		case in:
			m.Update(block, around, nil)
		case i > 0:
			m.Update(block, nil, around)
		}
		m.Plan(false)
		m.Release(m.Done())
		read := Reader{m.Words()}
		for _, p := range members {
			for port, want := range map[uint16]bool{80: in, 81: true, 82: false} {
				f := api.Flow{Src: p.Addr(), Dst: own, Protocol: api.TCP, SrcPort: 1, DstPort: port}
				if got := read.Verdict(m.Record(7), ToPod, f)&Allow != 0; got != want {
					t.Errorf("block is there %t: %s is permitted is %t, want %t", in, f, got, want)
				}
			}
		}
	}
}
