package xdp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
)

// Finder finds the node's ends of the pairs that connect pods, by where their addresses are
// routed: to the pair itself, or to a bridge that it is a port of.
type Finder struct{ log *slog.Logger }

// NewFinder returns a finder; a nil log discards.
func NewFinder(log *slog.Logger) *Finder {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Finder{log}
}

// Interfaces returns the interfaces of a pod, sorted. It asks the kernel.
func (f *Finder) Interfaces(pod api.PodID, ips []netip.Addr) (out []uint32) {
	for _, ip := range ips {
		index, err := find(ip)
		if err != nil {
			f.log.Debug("no interface", "pod", pod, "address", ip, "error", err)
			continue
		}
		out = append(out, index)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Indexes returns the numbers of interfaces of the node.
func Indexes(names []string) (out []uint32, err error) {
	for _, name := range names {
		l, e := netlink.LinkByName(name)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("interface %s: %w", name, e))
			continue
		}
		out = append(out, uint32(l.Attrs().Index))
	}
	return out, err
}

// errRemote is of addresses that are not at a pair of this node.
var errRemote = errors.New("it is at no veth of this node")

func find(ip netip.Addr) (uint32, error) {
	routes, err := netlink.RouteGet(ip.AsSlice())
	if err != nil {
		return 0, fmt.Errorf("route: %w", err)
	}
	for _, r := range routes {
		if r.Gw != nil || r.Type != unix.RTN_UNICAST {
			continue // behind another node, or the node itself
		}
		l, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			return 0, err
		}
		switch l.Type() {
		case "veth":
			return uint32(r.LinkIndex), nil
		case "bridge":
			return port(r.LinkIndex, ip)
		}
	}
	return 0, errRemote
}

// port returns the port of a bridge behind which a neighbour is.
func port(bridge int, ip netip.Addr) (uint32, error) {
	family := netlink.FAMILY_V6
	if ip.Unmap().Is4() {
		family = netlink.FAMILY_V4
	}
	neighbours, err := netlink.NeighList(bridge, family)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(neighbours, func(n netlink.Neigh) bool { return n.IP.Equal(ip.AsSlice()) && len(n.HardwareAddr) > 0 })
	if i < 0 {
		return 0, errRemote // it has not spoken yet
	}
	ports, err := netlink.NeighList(0, unix.AF_BRIDGE)
	if err != nil {
		return 0, err
	}
	for _, p := range ports {
		if p.MasterIndex != bridge || p.HardwareAddr.String() != neighbours[i].HardwareAddr.String() || p.LinkIndex == bridge {
			continue
		}
		if l, err := netlink.LinkByIndex(p.LinkIndex); err == nil && l.Type() == "veth" {
			return uint32(p.LinkIndex), nil
		}
	}
	return 0, errRemote
}

// Watch calls prompt whenever an interface, a route or a neighbour comes or goes, until the
// context ends. When the kernel has more to say than is read, it says so, and Watch goes on.
func (f *Finder) Watch(ctx context.Context, prompt func()) error {
	links, routes, neighbours := make(chan netlink.LinkUpdate, 64), make(chan netlink.RouteUpdate, 64), make(chan netlink.NeighUpdate, 64)
	failed := func(err error) {
		f.log.Debug("netlink", "error", err)
		prompt()
	}
	err := errors.Join(
		netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{ErrorCallback: failed}),
		netlink.RouteSubscribeWithOptions(routes, ctx.Done(), netlink.RouteSubscribeOptions{ErrorCallback: failed}),
		netlink.NeighSubscribeWithOptions(neighbours, ctx.Done(), netlink.NeighSubscribeOptions{ErrorCallback: failed}),
	)
	if err != nil {
		return fmt.Errorf("follow interfaces: %w", err)
	}
	for {
		var ok bool
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, ok = <-links:
		case _, ok = <-routes:
		case _, ok = <-neighbours:
		}
		if !ok {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errors.New("follow interfaces: the kernel ended it")
		}
		prompt()
	}
}
