package cni

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// nodeEnd returns the node's end of the pair whose other end is an interface in a network
// namespace.
func nodeEnd(namespace, ifName string) (*netlink.LinkAttrs, error) {
	ns, err := netns.GetFromPath(namespace)
	if err != nil {
		return nil, types.NewError(types.ErrUnknownContainer, "CNI_NETNS cannot be opened", err.Error())
	}
	defer func() { _ = ns.Close() }() // it was only read
	within, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, types.NewError(types.ErrIOFailure, "CNI_NETNS cannot be entered", err.Error())
	}
	defer within.Close()
	inner, err := within.LinkByName(ifName)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("interface %s is not in the network namespace of the pod", ifName), "")
	}
	if err != nil {
		return nil, types.NewError(types.ErrIOFailure, "interface "+ifName+" cannot be looked at", err.Error())
	}
	return outerOf(inner, ns)
}

// outerOf returns the other end of a pair, and makes sure of both directions.
func outerOf(inner netlink.Link, ns netns.NsHandle) (*netlink.LinkAttrs, error) {
	name := inner.Attrs().Name
	if inner.Type() != "veth" && inner.Type() != "netkit" {
		return nil, types.NewError(types.ErrInvalidNetworkConfig,
			fmt.Sprintf("interface %s is of type %s: want veth, as bridge and ptp make it, or netkit", name, inner.Type()), "")
	}
	outer, err := netlink.LinkByIndex(inner.Attrs().ParentIndex)
	if err != nil {
		return nil, types.NewError(types.ErrIOFailure, fmt.Sprintf("the node's end of interface %s cannot be found", name), err.Error())
	}
	id, err := netlink.GetNetNsIdByFd(int(ns))
	if err != nil {
		return nil, types.NewError(types.ErrIOFailure, "the network namespace has no id", err.Error())
	}
	if n, ok := outer.(*netlink.Netkit); ok && !n.IsPrimary() {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("the node's end of interface %s is not the primary one of its pair", name), "")
	}
	if o := outer.Attrs(); outer.Type() != inner.Type() || o.ParentIndex != inner.Attrs().Index || o.NetNsID != id {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("the other end of interface %s is not in the network namespace of the node", name), "")
	}
	return outer.Attrs(), nil
}
