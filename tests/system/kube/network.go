package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// fabric is the bridge on the control machine that all nodes are at.
const fabric = "fabric"

// handle opens the network of a machine.
func (s site) handle(machine string) (*netlink.Handle, netns.NsHandle, error) {
	ns, err := netns.GetFromPid(s.pid(machine))
	if err != nil {
		return nil, ns, fmt.Errorf("network of %s: %w", machine, err)
	}
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, ns, errors.Join(err, ns.Close())
	}
	return h, ns, nil
}

// addFabric makes the network of the control machine.
func (l *lab) addFabric() error {
	h, ns, err := l.handle(control)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }() // it was only looked at
	defer h.Close()
	if _, err := h.LinkByName(fabric); err == nil {
		return nil
	}
	// Else it would take that of one of its ports, and another one when there are more.
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: fabric, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}}
	if err := h.LinkAdd(bridge); err != nil {
		return err
	}
	errs := []error{loopback(h)}
	for _, f := range families[l.Family] {
		errs = append(errs, address(h, bridge, f.control(), f.bits))
	}
	return errors.Join(errs...)
}

// plug connects a node with the fabric, and adds the routes to pods on it and on the control
// machine.
func (n node) plug() error {
	outside, outer, err := n.handle(control)
	if err != nil {
		return err
	}
	defer func() { _ = outer.Close() }() // it was only looked at
	defer outside.Close()
	inside, inner, err := n.handle(n.name())
	if err != nil {
		return err
	}
	defer func() { _ = inner.Close() }() // it was only looked at
	defer inside.Close()
	if _, err := inside.LinkByName("eth0"); err == nil {
		return nil
	}
	bridge, err := outside.LinkByName(fabric)
	if err != nil {
		return err
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: n.name(), MasterIndex: bridge.Attrs().Index}, PeerName: "eth0", PeerNamespace: netlink.NsFd(inner)}
	if err := addPair(outside, pair); err != nil {
		return err
	}
	eth0, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	errs := []error{outside.LinkSetUp(pair), loopback(inside)}
	for _, f := range families[n.Family] {
		errs = append(errs, address(inside, eth0, f.nodeIP(n.number), f.bits),
			route(inside, f.all, f.control(), ""), route(outside, f.podNet(n.number), n.podsAt(f, n.number), ""))
		for other := range n.Nodes {
			if other++; other != n.number {
				errs = append(errs, route(inside, f.podNet(other), n.podsAt(f, other), ""))
			}
		}
	}
	if err := errors.Join(errs...); err != nil || !n.onVPP() {
		return err
	}
	return n.plugVPP(outside, inside, bridge, netlink.NsFd(inner))
}

// addPair makes a pair of links. It removes one of the same name: that of a node that was turned
// off, whose network the kernel has not removed yet.
func addPair(h *netlink.Handle, pair *netlink.Veth) error {
	if old, err := h.LinkByName(pair.Name); err == nil {
		// The kernel may be faster.
		if err := h.LinkDel(old); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return h.LinkAdd(pair)
}

// podsAt returns the router to the pods of a node.
func (l *lab) podsAt(f family, n int) string {
	if l.onVPP() {
		return f.vppIP(n)
	}
	return f.nodeIP(n)
}

func loopback(h *netlink.Handle) error {
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	return h.LinkSetUp(lo)
}

// address gives a link an address that is used at once, without duplicate address detection.
func address(h *netlink.Handle, link netlink.Link, ip string, bits int) error {
	a, err := netlink.ParseAddr(fmt.Sprintf("%s/%d", ip, bits))
	if err != nil {
		return err
	}
	if a.IP.To4() == nil {
		a.Flags = unix.IFA_F_NODAD
	}
	return errors.Join(h.AddrAdd(link, a), h.LinkSetUp(link))
}

// route adds a route. from is the address of what is sent by it and has none; empty: as the kernel
// chooses.
func route(h *netlink.Handle, to, via, from string) error {
	_, dst, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	if err := h.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via), Src: net.ParseIP(from)}); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("route %s via %s: %w", to, via, err)
	}
	return nil
}

// sysctls of a node. The first four are what CNI plugins and kube-proxy expect of a node's owner.
var sysctls = map[string]string{
	"net/ipv4/ip_forward":                 "1",
	"net/ipv6/conf/all/forwarding":        "1",
	"net/bridge/bridge-nf-call-iptables":  "1",
	"net/bridge/bridge-nf-call-ip6tables": "1",
	"net/ipv4/conf/all/rp_filter":         "0",
	"net/ipv4/ip_local_port_range":        "36000 60999", // suites have servers below
}

// settle sets the sysctls of a node's network; what the kernel does not have is left out.
func (s site) settle(machine string) error {
	for name, value := range sysctls {
		if err := s.sysctl(machine, name, value); err != nil {
			return err
		}
	}
	return nil
}

func (s site) sysctl(machine, name, value string) error {
	_, err := s.run(machine, value, "sh", "-c", "test ! -e /proc/sys/"+name+" || cat > /proc/sys/"+name)
	return err
}
