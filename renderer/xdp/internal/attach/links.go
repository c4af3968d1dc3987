package attach

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// FollowLinks follows the devices of the node until the context ends: what pods reach by them, and
// the ports of tunnels. It may run concurrently with all other methods.
func (a *Attachments) FollowLinks(ctx context.Context) error {
	for ctx.Err() == nil {
		err := a.followLinks(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil { // after lost notifications it goes on at once
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return ctx.Err()
}

// followLinks follows until notifications may have been lost.
func (a *Attachments) followLinks(ctx context.Context) error {
	updates := make(chan netlink.LinkUpdate, 256)
	options := netlink.LinkSubscribeOptions{ErrorCallback: func(error) {}, ReceiveBufferSize: 4 << 20}
	if err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), options); err != nil {
		return fmt.Errorf("follow interfaces: %w", err)
	}
	a.gateways.Refresh()
	ports, err := TunnelPorts()
	if err != nil {
		return err
	}
	a.ports.Store(&ports)
	for u := range updates {
		if u.Family == unix.AF_BRIDGE || u.Header.Type != unix.RTM_NEWLINK {
			continue
		}
		a.gateways.Changed(u.Link)
		if port := portOf(u.Link); port != 0 && !slices.Contains(*a.ports.Load(), port) {
			more := append(slices.Clone(*a.ports.Load()), port)
			a.ports.Store(&more)
		}
	}
	return nil
}

// Ports returns the ports of tunnels that FollowLinks has found.
func (a *Attachments) Ports() []uint16 {
	if found := a.ports.Load(); found != nil {
		return *found
	}
	return nil
}
