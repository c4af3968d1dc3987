package xdp

import (
	"bytes"
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

// Kernel is a Plane in the kernel.
type Kernel struct {
	log         *slog.Logger
	uplinks     []uint32
	folder      *pins.Folder
	shared      map[string]*ebpf.Map // by all policy maps, which they outlive
	loader      *loader.Loader
	history     *connections.History
	connections *connections.Table
	stream      *events.Stream
	drops       *events.Drops
	grace       *policymap.Grace
	maps        *policymap.Maps
	attached    *attach.Attachments
	digest      *ebpf.Map // the Mark, with the version of what is loaded
}

// NewKernel takes over what is pinned, or begins with nothing. Nothing is enforced by it. A folder
// for pins has one owner at a time: a PinsError says why it cannot be this process.
func NewKernel(o KernelOptions) (*Kernel, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Flows == 0 {
		o.Flows = DefaultFlows
	}
	if o.Flows < 0 || o.Flows > MaxFlows {
		return nil, fmt.Errorf("a table of %d flows: want %d at most", o.Flows, MaxFlows)
	}
	if o.TunnelPorts == nil {
		o.TunnelPorts = DefaultTunnelPorts
	}
	if len(o.TunnelPorts) > MaxTunnelPorts {
		return nil, fmt.Errorf("%d ports of tunnels: want %d at most", len(o.TunnelPorts), MaxTunnelPorts)
	}
	if o.FlowCacheThreshold == 0 {
		o.FlowCacheThreshold = DefaultFlowCacheThreshold
	}
	if o.Mode == "" {
		o.Mode = ModeAuto
	}
	if !slices.Contains(Modes, o.Mode) {
		return nil, fmt.Errorf("%q is no mode of attachment", o.Mode)
	}
	if o.layouts == nil {
		o.layouts = loader.NewTracker(loader.LayoutOf)
	}
	k := &Kernel{log: o.Log, uplinks: o.Uplinks, shared: map[string]*ebpf.Map{}}
	if err := k.open(o); err != nil {
		return nil, errors.Join(permitted(err), k.Close())
	}
	return k, nil
}

// open opens everything, from the folder for pins up.
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
	if err := k.openShared(); err != nil {
		return err
	}
	if o.Mode.Runs() && !k.loader.Behind() {
		k.log.Warn("what pods send to a service is judged by the address of the service, not of the pods behind it: that needs Linux 6.4, " +
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

// openShared opens the maps that all policy maps share, and what is in them.
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

const digestPin = "mark"

// adopt takes over the policy map in force and the attachments of a process that has ended.
func (k *Kernel) adopt() (err error) {
	spec := &ebpf.MapSpec{Name: digestPin, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(StateDigest{}) + len(k.loader.Version())), MaxEntries: 1}
	if k.digest, err = k.folder.Map(spec); err != nil {
		return fmt.Errorf("map %s: %w", digestPin, err)
	}
	if k.folder.Pins() { // first, because policy maps have the programs of what is attached
		if err := k.attached.Adopt(k.uplinks); err != nil {
			return err
		}
	}
	adopted := false
	if k.folder.Pins() && k.StateDigest() != (StateDigest{}) {
		if err := k.maps.Adopt(k.attached.Programs()); err != nil {
			k.log.Warn("what is in force is replaced, not taken over", "error", err)
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

// Close ends what is not pinned. What is goes on, and has no owner any more.
func (k *Kernel) Close() error {
	errs := []error{k.attached.Close(), k.maps.Close(), k.history.Close(), k.connections.Close(), k.drops.Close(), k.grace.Close()}
	for _, m := range k.shared {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	if k.digest != nil {
		errs = append(errs, k.digest.Close())
	}
	return errors.Join(append(errs, k.folder.Close())...) // last: the next owner may change everything
}

// StateDigest implements Plane. What programs enforce that this process would not load is not
// known: they are replaced, and nothing of theirs is taken over.
func (k *Kernel) StateDigest() (m StateDigest) {
	b, _ := k.digest.LookupBytes(uint32(0))
	version := k.loader.Version()
	if mark, ok := bytes.CutSuffix(b, version[:]); ok && len(mark) == len(m) {
		copy(m[:], mark)
	}
	return m
}

// SetStateDigest implements Plane.
func (k *Kernel) SetStateDigest(m StateDigest) error {
	version := k.loader.Version()
	return k.digest.Put(uint32(0), append(m[:], version[:]...))
}
