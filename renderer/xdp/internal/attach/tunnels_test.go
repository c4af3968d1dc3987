package attach

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestTunnelPortsAreThoseOfDevices(t *testing.T) {
	got := portsOf([]netlink.Link{
		&netlink.Vxlan{Port: 4790}, &netlink.Vxlan{Port: 8472}, &netlink.Geneve{Dport: 6082}, &netlink.BareUDP{Port: 6635}, &netlink.Vxlan{Port: 4790},
		&netlink.Veth{}, &netlink.Gretun{}, &netlink.Iptun{EncapDport: 5555}, &netlink.Wireguard{},
	}, []netlink.Fou{{Port: 7777}, {Port: 4790}})
	if want := []uint16{4790, 6082, 6635, 7777, 8472}; !slices.Equal(got, want) {
		t.Errorf("ports are %v, want %v", got, want)
	}
}
