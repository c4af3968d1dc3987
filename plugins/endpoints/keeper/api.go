package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/endpoints"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
)

// ErrUnregistered is returned for an attachment that is not registered, and that no result names.
var ErrUnregistered = errors.New("it is not registered")

// ErrLater is returned if an operation is not possible now but may be later.
var ErrLater = errors.New("try again")

// Register claims an interface for a CNI plugin. When Register returns without an error, the
// interface is blocked or already enforced.
func (k *Keeper) Register(r wire.Registration) (wire.Endpoint, error) {
	if err := r.Check(); err != nil {
		return wire.Endpoint{}, err
	}
	mac, err := net.ParseMAC(r.HostMAC)
	if err != nil {
		return wire.Endpoint{}, fmt.Errorf("hostMAC: %w", err)
	}
	c := endpoints.Claim{
		Source: endpoints.SourceRegistered, Owner: r.String(), Pod: api.PodID{Namespace: r.Namespace, Name: r.Name}, UID: r.UID,
		Sandbox: r.ContainerID, Network: r.Network, Link: endpoints.Link{Index: r.HostIndex, Name: r.HostIf, MAC: mac.String()}, IPs: r.Addresses,
	}
	return k.claim(c)
}

// Claim claims an interface for a pod on behalf of the embedding program; it requires Index and MAC
// of the link. A claim with the same owner replaces it, and Withdraw ends it.
func (k *Keeper) Claim(c endpoints.Claim) error {
	c.Source = endpoints.SourceRegistered
	_, err := k.claim(c)
	return err
}

func (k *Keeper) claim(c endpoints.Claim) (wire.Endpoint, error) {
	for i, ip := range c.IPs {
		c.IPs[i] = ip.Unmap()
	}
	k.blockFirst(c.Link)
	k.mu.Lock()
	defer k.mu.Unlock()
	l, err := netlink.LinkByIndex(int(c.Link.Index))
	if err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) {
		return wire.Endpoint{}, errors.Join(ErrLater, err)
	}
	if err == nil {
		if d := deviceOf(l); d.pair && d.MAC == c.Link.MAC {
			k.discover(d)
			k.unscoped[d.Index] = true
			k.see(d)
		}
	}
	err = k.reg.Claim(c)
	k.settle()
	if err != nil {
		return wire.Endpoint{}, err
	}
	e, _ := k.reg.Owned(c.Source, c.Owner)
	if err := k.gates.failed[c.Link.Index]; err != nil {
		return wire.Endpoint{}, errors.Join(ErrLater, err)
	}
	return onWire(e), nil
}

// blockFirst blocks an interface that is about to be claimed and is not managed yet. It does not
// hold the lock, because the kernel takes some milliseconds; claim blocks it again.
func (k *Keeper) blockFirst(l endpoints.Link) {
	k.mu.Lock()
	_, known := k.reg.Endpoint(l.Index)
	k.mu.Unlock()
	if d, err := netlink.LinkByIndex(int(l.Index)); !known && err == nil && deviceOf(d).pair && deviceOf(d).MAC == l.MAC {
		_ = k.cfg.Gate.Block(l.Index) // claim reports the error
	}
}

// Remove ends a claim of a CNI plugin. An unknown claim is no error. An existing interface stays
// blocked.
func (k *Keeper) Remove(a wire.Attachment) error {
	if err := a.Check(); err != nil {
		return err
	}
	return k.Withdraw(a.String())
}

// Withdraw ends a claim that Claim made. An unknown claim is no error. An existing interface stays
// blocked.
func (k *Keeper) Withdraw(owner string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, known := k.reg.Owned(endpoints.SourceRegistered, owner)
	k.reg.Withdraw(endpoints.SourceRegistered, owner)
	k.settle()
	if err := k.gates.failed[e.Link.Index]; known && err != nil {
		return errors.Join(ErrLater, err)
	}
	return nil
}

// Collect ends the claims of CNI plugins for a network, except for those of valid attachments.
// Existing interfaces stay blocked.
func (k *Keeper) Collect(v wire.Valid) error {
	if err := v.Check(); err != nil {
		return err
	}
	valid := map[string]bool{}
	for _, a := range v.Attachments {
		valid[a.String()] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.reg.Claims() {
		if c.Source == endpoints.SourceRegistered && c.Network == v.Network && !valid[c.Owner] {
			k.log.Info("registration removed: the container runtime no longer has the attachment", "pod", c.Pod, "interface", c.Link.Name, "owner", c.Owner)
			k.reg.Withdraw(c.Source, c.Owner)
		}
	}
	k.settle()
	return nil
}

// Wait returns when policy is enforced at the interface of an attachment, or when the time or the
// context is over. The attachment is known by its registration, or by CNI's result.
func (k *Keeper) Wait(ctx context.Context, a wire.Attachment, timeout time.Duration) (out wire.Endpoint, err error) {
	if err := a.Check(); err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(timeout, wire.MaxTimeout))
	defer cancel()
	k.wait(ctx, func() bool {
		e, known := k.reg.Owned(endpoints.SourceRegistered, a.String())
		if !known {
			e, known = k.reg.Owned(endpoints.SourceNamespace, a.String())
		}
		if !known {
			err = fmt.Errorf("attachment %s: %w", a, ErrUnregistered)
			return true
		}
		out = onWire(e)
		return e.State == endpoints.StateEnforced && k.gates.failed[e.Link.Index] == nil
	})
	return out, err
}

// List returns all managed interfaces, by index.
func (k *Keeper) List() []wire.Endpoint {
	out := []wire.Endpoint{}
	for _, e := range k.Endpoints() {
		out = append(out, onWire(e))
	}
	return out
}

func onWire(e endpoints.Endpoint) wire.Endpoint {
	w := wire.Endpoint{
		Interface: e.Link.Name, Index: e.Link.Index, UID: e.UID, State: string(e.State), Source: e.Source.String(), Since: e.Since, Reason: e.Reason,
	}
	if e.Pod != (api.PodID{}) {
		w.Pod = e.Pod.String()
	}
	return w
}
