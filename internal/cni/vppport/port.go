package vppport

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// Gateway4 and Gateway6 are the routers of all pods, whatever their addresses: VPP. Nothing else
// has them, and they do not leave the node.
var (
	Gateway4 = netip.MustParseAddr("169.254.1.1")
	Gateway6 = netip.MustParseAddr("fe80::1")
)

// undoTimeout limits how long VPP may take to remove an interface that could not be completed.
const undoTimeout = 5 * time.Second

// gatewayTag is the tag of the loopback interface that has Gateway4.
const gatewayTag = "sluice/gateway"

// Port connects a pod.
type Port struct {
	Kind   Kind
	HostIf string           // the name of the attachment; of a Host also the node's end, in the network namespace of VPP
	Tag    string           // of the interface in VPP
	Addrs  []netip.Addr     // of the pod
	UID    string           // of the pod; empty: not known
	MAC    net.HardwareAddr // of the pod's end
	Socket string           // of a Memif: a path
	NetNS  string           // of a Tap: the path of the pod's network namespace
	IfName string           // of a Tap: the pod's end
	MTU    int              // of a Tap's end; 0: that of the kernel
}

// NameOf returns VPP's name of the interface of an attachment.
func NameOf(k Kind, hostIf string) string { return string(k) + "-" + hostIf }

// Attach makes the interface of a pod, which stays down, with routes and neighbours to the pod. It
// returns the address of VPP's end. After an error nothing is left, as far as VPP answers.
func (c *Client) Attach(ctx context.Context, p Port) (mac net.HardwareAddr, err error) {
	gateway, err := c.gateway(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			_ = c.Detach(ctx, p.HostIf) // the first error is the one that matters
		}
	}()
	name := NameOf(p.Kind, p.HostIf)
	index, err := c.create(ctx, p)
	if err == nil && p.Kind == Host {
		err = c.checkHosts(ctx, index)
	}
	if err != nil {
		return nil, fmt.Errorf("make interface %s in VPP: %w", name, err)
	}
	if err := c.Tag(ctx, uint32(index), p.Tag); err != nil {
		return nil, err
	}
	_, err = c.interfaces().SwInterfaceSetUnnumbered(ctx, &interfaces.SwInterfaceSetUnnumbered{SwIfIndex: gateway, UnnumberedSwIfIndex: index, IsAdd: true})
	if err != nil {
		return nil, fmt.Errorf("give interface %s the address of the gateway: %w", name, err)
	}
	for _, a := range p.Addrs {
		if err := c.route(ctx, index, a, p.MAC, true); err != nil {
			return nil, err
		}
	}
	if err := c.restrict(ctx, index, p); err != nil {
		return nil, err
	}
	n, found, err := c.Find(ctx, p.HostIf)
	if err != nil || !found {
		return nil, fmt.Errorf("interface %s is not there: %w", name, err)
	}
	return net.ParseMAC(n.MAC)
}

// Detach removes an interface that Attach made, and all that belongs to it. One that is not there
// is no error.
func (c *Client) Detach(ctx context.Context, hostIf string) error {
	n, found, err := c.Find(ctx, hostIf)
	if err == nil && found {
		err = c.remove(ctx, n, hostIf)
	}
	if err == nil {
		err = c.unlisten(ctx, hostIf)
	}
	if err != nil {
		return err
	}
	return c.unrestrict(ctx, hostIf)
}

// remove removes an interface, its routes and its neighbours.
func (c *Client) remove(ctx context.Context, n Interface, hostIf string) error {
	index := interface_types.InterfaceIndex(n.Index)
	neighbours, err := c.neighbours(ctx, index)
	if err != nil {
		return err
	}
	for _, b := range neighbours {
		mac := net.HardwareAddr(b.MacAddress[:])
		a, ok := netip.AddrFromSlice(b.IPAddress.ToIP())
		if !ok || b.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC == 0 {
			continue
		}
		if err := c.route(ctx, index, a.Unmap(), mac, false); err != nil {
			return err
		}
	}
	if err := c.destroy(ctx, n, hostIf); err != nil {
		return fmt.Errorf("remove interface %s from VPP: %w", n.Name, err)
	}
	return nil
}

// neighbours returns the neighbours at an interface.
func (c *Client) neighbours(ctx context.Context, index interface_types.InterfaceIndex) (out []ip_neighbor.IPNeighbor, err error) {
	for _, family := range []ip_types.AddressFamily{ip_types.ADDRESS_IP4, ip_types.ADDRESS_IP6} {
		all, err := vpp.Drain[*ip_neighbor.IPNeighborDetails](ip_neighbor.NewServiceClient(vpp.Streams{Connection: c.conn}).IPNeighborDump(ctx,
			&ip_neighbor.IPNeighborDump{SwIfIndex: index, Af: family}))
		if err != nil {
			return nil, fmt.Errorf("list neighbours at interface %d: %w", index, err)
		}
		for _, d := range all {
			out = append(out, d.Neighbor)
		}
	}
	return out, nil
}

// route adds or removes the way to an address at an interface: a static neighbour, and a host
// route.
func (c *Client) route(ctx context.Context, index interface_types.InterfaceIndex, a netip.Addr, mac net.HardwareAddr, add bool) error {
	to := ip_types.NewAddress(a.AsSlice())
	path := fib_types.FibPath{SwIfIndex: uint32(index), Proto: fib_types.FIB_API_PATH_NH_PROTO_IP4, Weight: 1}
	if a.Is6() {
		path.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
	}
	path.Nh.Address = to.Un
	steps := []func() error{
		func() error {
			_, err := ip_neighbor.NewServiceClient(c.conn).IPNeighborAddDel(ctx, &ip_neighbor.IPNeighborAddDel{IsAdd: add, Neighbor: ip_neighbor.IPNeighbor{
				SwIfIndex: index, Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC | ip_neighbor.IP_API_NEIGHBOR_FLAG_NO_FIB_ENTRY, MacAddress: address(mac), IPAddress: to,
			}})
			return err
		},
		func() error {
			_, err := ip.NewServiceClient(c.conn).IPRouteAddDel(ctx, &ip.IPRouteAddDel{IsAdd: add, Route: ip.IPRoute{
				Prefix: ip_types.Prefix{Address: to, Len: uint8(a.BitLen())}, Paths: []fib_types.FibPath{path},
			}})
			return err
		},
	}
	if !add {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("route %s at interface %d: %w", a, index, err)
		}
	}
	return nil
}

// gateway returns the loopback interface that has the address of the gateway, which it makes once.
func (c *Client) gateway(ctx context.Context) (interface_types.InterfaceIndex, error) {
	all, err := c.Interfaces(ctx)
	if err != nil {
		return 0, err
	}
	for _, n := range all {
		if n.Tag == gatewayTag {
			return interface_types.InterfaceIndex(n.Index), nil
		}
	}
	index, err := c.makeGateway(ctx)
	if err != nil {
		return 0, fmt.Errorf("make the gateway in VPP: %w", err)
	}
	return index, nil
}

// makeGateway makes the interface. It has its tag when it is ready, so that one that is not is not
// used.
func (c *Client) makeGateway(ctx context.Context) (interface_types.InterfaceIndex, error) {
	r, err := c.interfaces().CreateLoopback(ctx, &interfaces.CreateLoopback{})
	if err != nil {
		return 0, err
	}
	index := r.SwIfIndex
	_, err = c.interfaces().SwInterfaceAddDelAddress(ctx, &interfaces.SwInterfaceAddDelAddress{
		SwIfIndex: index, IsAdd: true, Prefix: ip_types.AddressWithPrefix{Address: ip_types.NewAddress(Gateway4.AsSlice()), Len: 32},
	})
	if err == nil {
		err = c.SetUp(ctx, uint32(index), true)
	}
	if err == nil {
		err = c.Tag(ctx, uint32(index), gatewayTag)
	}
	if err != nil {
		_, _ = c.interfaces().DeleteLoopback(ctx, &interfaces.DeleteLoopback{SwIfIndex: index}) // the first error is the one that matters
	}
	return index, err
}
