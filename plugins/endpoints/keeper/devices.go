package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/plugins/endpoints"
)

// device is an interface of the node, as the kernel describes it.
type device struct {
	endpoints.Link
	pair   bool   // an end of a pair at which programs can judge
	master uint32 // index of the bridge of which it is a port, or 0
	netns  int    // id of the network namespace of its peer; -1 for none
}

func deviceOf(l netlink.Link) device {
	a := l.Attrs()
	return device{
		Link: endpoints.Link{Index: uint32(a.Index), Name: a.Name, MAC: a.HardwareAddr.String()},
		pair: isPair(l), master: uint32(a.MasterIndex), netns: a.NetNsID,
	}
}

// isPair reports whether an interface is an end of a pair at which programs can judge both
// directions: of veth either one, of netkit the primary one.
func isPair(l netlink.Link) bool {
	if n, ok := l.(*netlink.Netkit); ok {
		return n.IsPrimary()
	}
	return l.Type() == "veth"
}

// devices returns the interfaces of the node.
func devices() ([]device, error) {
	links, err := netlink.LinkList()
	for range 8 {
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break // something changed meanwhile, and may be missing
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

// isGone reports whether the kernel confirms that there is no such interface.
func isGone(index uint32) bool {
	_, err := netlink.LinkByIndex(int(index))
	return errors.As(err, &netlink.LinkNotFoundError{})
}

// netlinkBuffer is the size of the receive buffer for kernel messages in bytes: room for thousands.
const netlinkBuffer = 4 << 20

// subscribe returns the kernel's notifications about interfaces. The channel is closed when
// messages may have been lost, and when the context ends.
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

// update handles a notification of the kernel. mu is held. Bridges report their ports in a separate
// family: a port that leaves its bridge is not gone.
func (k *Keeper) update(u netlink.LinkUpdate) {
	if u.Family == unix.AF_BRIDGE {
		return
	}
	if u.Header.Type == unix.RTM_DELLINK {
		k.gone(uint32(u.Attrs().Index))
		// another interface has the index now
		if l, err := netlink.LinkByIndex(u.Attrs().Index); err == nil {
			k.see(deviceOf(l))
		}
		return
	}
	d := deviceOf(u.Link)
	old, known := k.devices[d.Index]
	k.see(d)
	if known && old.Name != d.Name && !d.pair { // a bridge: its ports change
		for _, port := range k.devices {
			if port.master == d.Index {
				k.see(port)
			}
		}
	}
}

// discover updates a device that was just queried: earlier messages about the index may concern
// another device. mu is held.
func (k *Keeper) discover(d device) {
	if old, known := k.devices[d.Index]; known && old.MAC != d.MAC {
		k.gone(d.Index)
	}
	k.see(d)
}

// resync reads all interfaces after messages may have been lost. mu is held.
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
