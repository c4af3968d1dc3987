package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/endpoints"
)

// device is an interface of the node, as the kernel describes it.
type device struct {
	endpoints.Link
	veth   bool
	master uint32 // the bridge that it is a port of, or 0
	netns  int    // the id of the network namespace of its other end; -1 for none
}

func deviceOf(l netlink.Link) device {
	a := l.Attrs()
	return device{
		Link: endpoints.Link{Index: uint32(a.Index), Name: a.Name, MAC: a.HardwareAddr.String()},
		veth: l.Type() == "veth", master: uint32(a.MasterIndex), netns: a.NetNsID,
	}
}

// devices returns the interfaces of the node.
func devices() ([]device, error) {
	links, err := netlink.LinkList()
	for range 8 {
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break // else something came or went meanwhile, and may be missing
		}
		links, err = netlink.LinkList()
	}
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	out := make([]device, len(links))
	for i, l := range links {
		out[i] = deviceOf(l)
	}
	return out, nil
}

// isGone reports whether the kernel says that there is no such interface.
func isGone(index uint32) bool {
	_, err := netlink.LinkByIndex(int(index))
	return errors.As(err, &netlink.LinkNotFoundError{})
}

// netlinkBuffer is what of the kernel's messages may wait, in bytes: thousands.
const netlinkBuffer = 4 << 20

// subscribe returns what the kernel says of interfaces. The channel is closed when messages may
// have been lost, and when the context ends.
func subscribe(ctx context.Context) (<-chan netlink.LinkUpdate, error) {
	updates := make(chan netlink.LinkUpdate, 256)
	err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{
		ErrorCallback: func(error) {}, ReceiveBufferSize: netlinkBuffer, ReceiveBufferForceSize: false,
	})
	if err != nil {
		return nil, fmt.Errorf("follow interfaces: %w", err)
	}
	return updates, nil
}

// update takes over what the kernel says. mu is held. Bridges speak of their ports in a family of
// their own: a port that leaves its bridge is not gone.
func (k *Keeper) update(u netlink.LinkUpdate) {
	if u.Family == unix.AF_BRIDGE {
		return
	}
	if u.Header.Type == unix.RTM_DELLINK {
		k.gone(uint32(u.Attrs().Index))
		if l, err := netlink.LinkByIndex(u.Attrs().Index); err == nil { // another one, with its index
			k.see(deviceOf(l))
		}
		return
	}
	d := deviceOf(u.Link)
	old, known := k.devices[d.Index]
	k.see(d)
	if known && old.Name != d.Name && !d.veth { // a bridge: its ports are others now
		for _, port := range k.devices {
			if port.master == d.Index {
				k.see(port)
			}
		}
	}
}

// discover takes over what is known of a device that the kernel was asked about: what it said
// before of the index may be of another one. mu is held.
func (k *Keeper) discover(d device) {
	if old, known := k.devices[d.Index]; known && old.MAC != d.MAC {
		k.gone(d.Index)
	}
	k.see(d)
}

// resync reads all interfaces, after messages may have been lost. mu is held.
func (k *Keeper) resync() error {
	all, err := devices()
	if err != nil {
		return err
	}
	there := map[uint32]bool{}
	for _, d := range all {
		there[d.Index] = true
		k.discover(d)
	}
	for index := range k.devices {
		if !there[index] {
			k.gone(index)
		}
	}
	return nil
}
