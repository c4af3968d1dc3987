package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TunnelPorts returns the UDP ports at which devices of the node decapsulate, sorted.
func TunnelPorts() ([]uint16, error) {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	var fous []netlink.Fou
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		all, _ := netlink.FouList(family) // which a kernel without FOU does not have
		fous = append(fous, all...)
	}
	return portsOf(links, fous), nil
}

// portsOf returns the UDP ports of devices and of sockets for FOU. Other devices have protocols of
// their own (GRE, IP in IP), or a key that a pod does not have (WireGuard).
func portsOf(links []netlink.Link, fous []netlink.Fou) (ports []uint16) {
	for _, l := range links {
		if port := portOf(l); port != 0 {
			ports = append(ports, port)
		}
	}
	for _, f := range fous {
		if f.Port > 0 {
			ports = append(ports, uint16(f.Port))
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// portOf returns the UDP port at which a device decapsulates, 0 for none.
func portOf(l netlink.Link) uint16 {
	switch l := l.(type) {
	case *netlink.Vxlan:
		return uint16(l.Port)
	case *netlink.Geneve:
		return l.Dport
	case *netlink.BareUDP:
		return l.Port
	}
	return 0
}
