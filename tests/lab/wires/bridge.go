package wires

import (
	"errors"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Bridge has the pods of a cable be ports of one bridge, which is their gateway. With filtered,
// netfilter sees the frames in the bridge, too.
func (c *Cable) Bridge(filtered bool) {
	c.T.Helper()
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	gateway := map[int]netip.Prefix{4: netip.MustParsePrefix("10.99.0.1/24"), 6: netip.MustParsePrefix("fd00::1/64")}
	c.Must(Inside(c.Node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr = "br0", mac
		br := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(br); err != nil {
			return err
		}
		for _, p := range gateway {
			if err := netlink.AddrAdd(br, &netlink.Addr{IPNet: prefix(p), Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
		}
		errs := []error{netlink.LinkSetUp(br)}
		for _, h := range c.Pods {
			l, err := netlink.LinkByIndex(h.Index)
			if err != nil {
				return err
			}
			routes, err := netlink.RouteList(l, netlink.FAMILY_ALL)
			errs = append(errs, err, netlink.LinkSetMaster(l, br), netlink.LinkSetHairpin(l, true))
			for _, r := range routes {
				if r.Dst.IP.Equal(h.V4.AsSlice()) || r.Dst.IP.Equal(h.V6.AsSlice()) {
					errs = append(errs, netlink.RouteDel(&r))
				}
			}
		}
		value := map[bool]string{true: "1", false: "0"}[filtered] // a new namespace has 1
		for _, file := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
			if _, err := os.Stat("/proc/sys/net/bridge"); filtered || err == nil {
				errs = append(errs, os.WriteFile("/proc/sys/net/bridge/"+file, []byte(value), 0o600))
			}
		}
		return errors.Join(errs...)
	}))
	for _, h := range c.Pods {
		c.Must(Inside(h.NS, func() error {
			l, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			for family, p := range gateway {
				own := netip.PrefixFrom(h.Addr(family), p.Bits())
				err = errors.Join(err, netlink.AddrDel(l, &netlink.Addr{IPNet: prefix(netip.PrefixFrom(own.Addr(), own.Addr().BitLen()))}),
					netlink.AddrAdd(l, &netlink.Addr{IPNet: prefix(own), Flags: unix.IFA_F_NODAD}),
					netlink.RouteReplace(&netlink.Route{LinkIndex: h.InPod, Gw: p.Addr().AsSlice(), Dst: &net.IPNet{IP: make([]byte, p.Addr().BitLen()/8), Mask: net.CIDRMask(0, p.Addr().BitLen())}}))
			}
			return err
		}))
	}
}

func prefix(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
