// Package nodeaddr tracks the addresses of a node with the kernel dataplane: those of its
// interfaces, including bridges and gateways of pods.
//
// # Place in the flow
//
// Beside the keeper of endpoints: the policy plugin reads the addresses, and pods may always
// communicate with their own node.
//
// # Invariants
//
//   - Virtual addresses, such as the addresses of services that IPVS assigns to an interface, are
//     not included.
//   - A look-up that fails changes nothing.
package nodeaddr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// services is the interface to which kube-proxy assigns the addresses of services in IPVS mode.
const services = "kube-ipvs0"

// retry is the delay after a failure.
const retry = time.Second

// Addresses tracks the addresses of the network namespace in which its methods are first called. It
// is safe for concurrent use.
type Addresses struct {
	log      *slog.Logger
	onChange func()
	known    atomic.Pointer[[]netip.Addr]
}

// New returns Addresses that have not been read yet. onChange is called when they change; it must
// not block.
func New(log *slog.Logger, onChange func()) *Addresses {
	a := &Addresses{log: log, onChange: onChange}
	a.known.Store(new([]netip.Addr))
	return a
}

// List returns the addresses, sorted. The caller must not modify them.
func (a *Addresses) List() []netip.Addr { return *a.known.Load() }

// Read reads the addresses.
func (a *Addresses) Read() error {
	now, err := read()
	if err != nil {
		return fmt.Errorf("addresses of the node: %w", err)
	}
	if before := a.known.Swap(&now); !slices.Equal(*before, now) {
		a.log.Info("addresses of the node, with which its pods may always communicate", "addresses", now)
		a.onChange()
	}
	return nil
}

// Run follows the addresses until the context ends.
func (a *Addresses) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := a.follow(ctx); err != nil {
			a.log.Warn("addresses of the node could not be followed, retrying", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry): // messages may have been lost
		}
	}
	return ctx.Err()
}

// follow reads the addresses after every change, until messages may have been lost.
func (a *Addresses) follow(ctx context.Context) error {
	updates := make(chan netlink.AddrUpdate, 64)
	options := netlink.AddrSubscribeOptions{ErrorCallback: func(error) {}}
	if err := netlink.AddrSubscribeWithOptions(updates, ctx.Done(), options); err != nil {
		return err
	}
	for {
		if err := a.Read(); err != nil {
			return err
		}
		if _, ok := <-updates; !ok {
			return nil
		}
		for len(updates) > 0 {
			<-updates
		}
	}
}

// read queries the kernel.
func read() ([]netip.Addr, error) {
	hidden := -1
	switch l, err := netlink.LinkByName(services); {
	case err == nil:
		hidden = l.Attrs().Index
	case !errors.As(err, &netlink.LinkNotFoundError{}):
		return nil, err
	}
	all, err := netlink.AddrList(nil, unix.AF_UNSPEC)
	for range 8 {
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break // something changed meanwhile, and may be missing
		}
		all, err = netlink.AddrList(nil, unix.AF_UNSPEC)
	}
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, one := range all {
		if addr, ok := netip.AddrFromSlice(one.IP); ok && one.LinkIndex != hidden && counts(addr.Unmap()) {
			out = append(out, addr.Unmap())
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}

// counts reports whether an address can be the node's for other hosts: it is neither local to the
// node nor to one link.
func counts(a netip.Addr) bool {
	return a.IsValid() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsMulticast() && (!a.IsLinkLocalUnicast() || a.Is4())
}
