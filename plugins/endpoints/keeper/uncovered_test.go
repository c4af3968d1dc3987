package keeper

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestDevicePassesByPairUnlessPodCouldMakeIt(t *testing.T) {
	at := func(netns int, flags net.Flags) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: "net1", NetNsID: netns, Flags: flags}
	}
	for _, c := range []struct {
		what string
		l    netlink.Link
		want bool
	}{
		{"loopback", &netlink.Device{LinkAttrs: at(-1, net.FlagLoopback)}, false},
		{"a device of the node, such as a virtual function", &netlink.Device{LinkAttrs: at(-1, 0)}, true},
		{"a pair", &netlink.Veth{LinkAttrs: at(0, 0)}, false},
		{"a netkit pair", &netlink.Netkit{LinkAttrs: at(0, 0)}, false},
		{"macvlan of the node", &netlink.Macvlan{LinkAttrs: at(3, 0)}, true},
		{"ipvlan of the node", &netlink.IPVlan{LinkAttrs: at(3, 0)}, true},
		{"a VLAN of the node", &netlink.Vlan{LinkAttrs: at(3, 0)}, true},
		{"macvlan of a namespace that the pod made", &netlink.Macvlan{LinkAttrs: at(4, 0)}, false},
		{"macvlan of its own", &netlink.Macvlan{LinkAttrs: at(-1, 0)}, false},
		{"dummy, which leads nowhere", &netlink.Dummy{LinkAttrs: at(-1, 0)}, false},
		{"the device of a tunnel that each namespace has", &netlink.Sittun{LinkAttrs: at(-1, 0)}, false},
	} {
		if got := passesBy(c.l, 3); got != c.want {
			t.Errorf("%s passes by: %t, want %t", c.what, got, c.want)
		}
	}
}

func TestDeviceIsPairByVethOrPrimaryNetkit(t *testing.T) {
	for _, c := range []struct {
		l    netlink.Link
		want bool
	}{{&netlink.Veth{}, true}, {&netlink.Macvlan{}, false}, {&netlink.Device{}, false}, {&netlink.Netkit{}, false}} {
		if got := isPair(c.l); got != c.want {
			t.Errorf("%s is a pair: %t, want %t", c.l.Type(), got, c.want)
		}
	}
}
