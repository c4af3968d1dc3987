package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
	"github.com/sluice-net/sluice/renderer/xdp/internal/connections"
	"github.com/sluice-net/sluice/renderer/xdp/internal/events"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
	"github.com/sluice-net/sluice/renderer/xdp/internal/policymap"
)

// Kernel is the Dataplane in the kernel.
type Kernel struct {
	log         *slog.Logger
	uplinks     []uint32
	folder      *pins.Folder
	shared      map[string]*ebpf.Map // maps that all policy maps share; they outlive each of them
	loader      *loader.Loader
	history     *connections.History
	connections *connections.Table
	stream      *events.Stream
	drops       *events.Drops
	grace       *policymap.Grace
	maps        *policymap.Maps
	attached    *attach.Attachments
	moved       func() error // of KernelOptions
	elders      elders
	digests     // of what is enforced
}

// NewKernel adopts what is pinned, or starts empty. It changes no verdict. A pin folder has one
// owner at a time; a PinsError says why this process cannot own it.
func NewKernel(o KernelOptions) (*Kernel, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Flows == 0 {
		o.Flows = DefaultFlows
	}
	if o.Flows < 0 || o.Flows > MaxFlows {
		return nil, fmt.Errorf("invalid size of the connection table: %d, want at most %d", o.Flows, MaxFlows)
	}
	if o.TunnelPorts == nil {
		o.TunnelPorts = DefaultTunnelPorts
	}
	if len(o.TunnelPorts) > MaxTunnelPorts {
		return nil, fmt.Errorf("too many tunnel ports: %d, want at most %d", len(o.TunnelPorts), MaxTunnelPorts)
	}
	if o.FlowCacheThreshold == 0 {
		o.FlowCacheThreshold = DefaultFlowCacheThreshold
	}
	if o.Mode == "" {
		o.Mode = ModeAuto
	}
	if !slices.Contains(Modes, o.Mode) {
		return nil, fmt.Errorf("invalid mode %q", o.Mode)
	}
	if o.layouts == nil {
		o.layouts = loader.NewTracker(loader.LayoutOf)
	}
	k := &Kernel{log: o.Log, uplinks: o.Uplinks, shared: map[string]*ebpf.Map{}, moved: o.Moved}
	if err := k.open(o); err != nil {
		return nil, errors.Join(permitted(err), k.Close())
	}
	return k, nil
}

// open opens the pin folder, the maps, and the attachments.
func (k *Kernel) open(o KernelOptions) (err error) {
	if k.folder, err = pins.Open(o.PinPath, o.Owner, o.TakeOver, o.Log); err != nil {
		return err
	}
	k.loader, err = loader.New(loader.Config{
		Log: o.Log, Mode: o.Mode, Infra: o.Infra, AnySource: o.AnySource, NonIP: o.NonIP, PodTunnels: o.PodTunnels, TunnelPorts: o.TunnelPorts,
		Flows: o.Flows, FlowCacheThreshold: o.FlowCacheThreshold, MaxBytes: o.PolicyMaps.MaxBytes, Lines: o.PolicyMaps.Lines, Slots: o.PolicyMaps.Slots,
		Uplinks: len(o.Uplinks) > 0,
	}, o.layouts)
	if err != nil {
		return err
	}
	if o.Mode.Runs() {
		ports, err := attach.TunnelPorts()
		if err != nil {
			return fmt.Errorf("ports of tunnels: %w", err)
		}
		if _, err := k.loader.Tunnels(ports); err != nil {
			return err
		}
	}
	if err := k.openShared(); err != nil {
		return err
	}
	if k.elders, err = findElders(k.folder, o.Blocked); err != nil {
		return err
	}
	if o.Mode.Runs() && !k.loader.Behind() {
		k.log.Warn("packets of pods to a service are judged by the address of the service, not of the pods behind it: that needs Linux 6.4, " +
			"and pods that send from their own addresses only")
	}
	if k.grace, err = policymap.NewGrace(); err != nil {
		return err
	}
	if k.attached, err = attach.New(k.folder, o.Mode, k.loader, k.shared); err != nil {
		return err
	}
	k.maps = policymap.New(k.loader, k.folder, k.history, k.grace, o.PolicyMaps.KeepSpare)
	return errors.Join(k.adopt(), k.connections.Divide(k.attached.Count()))
}

// openShared opens the maps that all policy maps share, and the components that use them.
func (k *Kernel) openShared() error {
	specs, err := k.loader.SharedSpecs()
	if err != nil {
		return err
	}
	for name, spec := range specs {
		if k.shared[name], err = k.folder.Map(spec); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	}
	if k.history, err = connections.OpenHistory(k.shared); err != nil {
		return err
	}
	if k.connections, err = connections.Open(k.shared); err != nil {
		return err
	}
	if k.drops, err = events.OpenDrops(k.shared); err != nil {
		return err
	}
	if k.stream, err = events.NewStream(k.shared); err != nil {
		return err
	}
	return k.loader.Share(k.shared, k.history.Seed())
}

// adopt takes over the policy map in force and the attachments of an earlier process.
func (k *Kernel) adopt() (err error) {
	if err := k.digests.open(k.folder, k.loader.Version(), k.history.Seed()); err != nil {
		return err
	}
	if k.folder.Pins() { // first, because a policy map is loaded with the programs that are attached
		if err := k.attached.Adopt(k.uplinks); err != nil {
			return err
		}
	}
	adopted := false
	if k.folder.Pins() && k.StateDigest() != (StateDigest{}) {
		if err := k.maps.Adopt(k.attached.Programs()); err != nil {
			k.log.Warn("the policy map of the previous process cannot be adopted, it will be replaced", "error", err)
			if err := k.SetStateDigest(StateDigest{}); err != nil {
				return err
			}
		} else {
			adopted = true
		}
	}
	if !adopted {
		if err := k.maps.Begin(k.attached.Programs()); err != nil {
			return err
		}
	}
	return k.attached.AttachUplinks(k.uplinks, k.maps.Programs())
}

// Close closes everything. What is pinned stays in force, without an owner.
func (k *Kernel) Close() error {
	errs := []error{k.attached.Close(), k.maps.Close(), k.history.Close(), k.connections.Close(), k.drops.Close(), k.grace.Close()}
	for _, m := range k.shared {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, k.closeDigests(), k.folder.Close())...) // last, because the next owner may change everything
}
