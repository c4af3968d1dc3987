package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/plugins/endpoints/gate"
)

// pair is the two ends of a pod's link: one at the node, which is a veth or VPP itself, and one in
// the network namespace of the pod.
type pair struct {
	hostIf string // the node's end; empty: VPP is it
	index  uint32 // of the node's end
	mac    net.HardwareAddr
	ns     netns.NsHandle
	within *netlink.Handle
	inner  netlink.Link
}

// enter opens the network namespace of a pod, which has no interface of a name yet. close must be
// called.
func enter(namespace, ifName string) (p *pair, err error) {
	p = &pair{}
	if p.ns, err = netns.GetFromPath(namespace); err != nil {
		return nil, types.NewError(types.ErrUnknownContainer, "CNI_NETNS cannot be opened", err.Error())
	}
	if p.within, err = netlink.NewHandleAt(p.ns); err != nil {
		return nil, errors.Join(types.NewError(types.ErrIOFailure, "CNI_NETNS cannot be entered", err.Error()), p.ns.Close())
	}
	if _, err := p.within.LinkByName(ifName); err == nil {
		p.close()
		return nil, isThere(ifName, "")
	}
	return p, nil
}

func isThere(what, why string) error {
	return types.NewError(types.ErrInternal, fmt.Sprintf("%s is there already: delete the attachment first", what), why)
}

// addVeth makes a veth pair whose ends are down. The kernel of the node neither takes what comes
// from the pod nor sends to it, from when there is the pair. remove must be called after an error
// of a later step.
func (p *pair) addVeth(c *config, ifName, hostIf string) error {
	p.hostIf = hostIf
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = hostIf, c.MTU
	err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: ifName, PeerNamespace: netlink.NsFd(p.ns), PeerMTU: uint32(c.MTU)})
	if errors.Is(err, unix.EEXIST) {
		return isThere(fmt.Sprintf("interface %s or %s", hostIf, ifName), err.Error())
	}
	if err == nil {
		if err = p.look(c, ifName); err != nil {
			err = errors.Join(err, removePair(hostIf))
		}
	}
	if err != nil {
		return types.NewError(types.ErrIOFailure, "the pair of interfaces of the pod cannot be made", err.Error())
	}
	return nil
}

// look reads what the kernel made, and has it take no part in it.
func (p *pair) look(c *config, ifName string) error {
	outer, err := netlink.LinkByName(p.hostIf)
	if err != nil {
		return err
	}
	p.index = uint32(outer.Attrs().Index)
	g := gate.New(c.Pins)
	_, _ = g.Blocked() // which removes pins of interfaces that are gone; others are harmless
	if err := errors.Join(g.Block(p.index), g.Close()); err != nil {
		return err
	}
	return p.find(ifName)
}

// find looks at the pod's end.
func (p *pair) find(ifName string) (err error) {
	if p.inner, err = p.within.LinkByName(ifName); err == nil {
		p.mac = p.inner.Attrs().HardwareAddr
	}
	return err
}

// up gives the pod its addresses, and routes through gateways at an address; then it sets both ends
// up.
func (p *pair) up(addrs []netip.Addr, routes []*types.Route, via net.HardwareAddr) error {
	for _, a := range addrs {
		if err := p.within.AddrAdd(p.inner, &netlink.Addr{IPNet: host(a), Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if p.hostIf != "" {
		outer, err := netlink.LinkByName(p.hostIf)
		if err == nil {
			err = netlink.LinkSetUp(outer)
		}
		if err != nil {
			return err
		}
	}
	if err := p.within.LinkSetUp(p.inner); err != nil {
		return err
	}
	for _, family := range families(addrs) {
		gw := net.IP(gatewayOf(family).AsSlice())
		err := p.within.NeighSet(&netlink.Neigh{LinkIndex: p.inner.Attrs().Index, State: netlink.NUD_PERMANENT, IP: gw, HardwareAddr: via})
		if err != nil {
			return fmt.Errorf("neighbour %s: %w", gw, err)
		}
		for _, dst := range destinations(family, routes) {
			err := p.within.RouteReplace(&netlink.Route{LinkIndex: p.inner.Attrs().Index, Dst: dst, Gw: gw, Flags: int(netlink.FLAG_ONLINK)})
			if err != nil {
				return fmt.Errorf("route to %s: %w", dst, err)
			}
		}
	}
	return nil
}

// close lets go of the namespace.
func (p *pair) close() {
	p.within.Close()
	_ = p.ns.Close() // it was only used
}

// removePair removes the pair with a node's end. One that is not there is no error.
func removePair(hostIf string) error {
	l, err := netlink.LinkByName(hostIf)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// host returns the network of one address.
func host(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}
