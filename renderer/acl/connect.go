package acl

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// fail forces a full read before the next change.
func (r *Renderer) fail(err error) error {
	r.mirror = nil
	r.link.Failed(err)
	return err
}

// connect ensures that there is a connection and a mirror of the vswitch. fresh reports whether the
// mirror, or its interfaces, have just been read.
func (r *Renderer) connect(ctx context.Context) (fresh bool, err error) {
	epoch, stale, err := r.link.Connect(ctx)
	if err != nil {
		return false, err
	}
	interfacesChanged := r.interfacesChanged.Swap(false)
	r.interfaces.asked = r.asks.Load() // not later: the read that follows covers all earlier asks
	if r.mirror != nil && epoch == r.epoch {
		if stale || interfacesChanged {
			return true, r.readInterfaces(ctx)
		}
		return false, nil
	}
	if r.version, err = r.link.CheckVersion(ctx); err != nil {
		return false, err
	}
	r.memory.IsEmbedded = isEmbedded(r.version)
	r.unenforced.SetMatters(!r.memory.IsEmbedded)
	r.memory.Heap.Forget()
	r.order = nil
	if err := r.startCounting(ctx); err != nil {
		r.options.Log.Warn("packets are not counted by rule", "error", err)
	}
	if err := r.flows.configure(ctx); err != nil {
		return false, err
	}
	if err := r.memory.StartSessions(ctx); err != nil {
		return false, err
	}
	if err := r.lookForServices(ctx); err != nil {
		return false, err
	}
	if err := r.read(ctx, nil); err != nil {
		return false, err
	}
	r.epoch = epoch
	r.interfaces.ending.Forget() // the interfaces went with the old VPP process
	if err := r.flows.begin(ctx, r.acls.heldInput(r.mirror)); err != nil {
		return false, err
	}
	r.options.Log.Info("read the acls of the vswitch", "version", r.version, "acls", len(r.mirror.ACLs), "interfaces", len(r.mirror.Interfaces))
	return true, nil
}

// read rebuilds the mirror, and finds our objects in it.
func (r *Renderer) read(ctx context.Context, before []*mirror.Interface) error {
	m, err := r.link.Read(ctx, before)
	if err != nil {
		return err
	}
	m.Losing = r.accumulator.Losing
	if r.memory.Stats != nil {
		for index, n := range r.memory.Stats.Lengths() { // of ACLs that are gone, too
			m.Longest[index] = max(m.Longest[index], n)
		}
	}
	r.mirror = m
	r.acls.adopt(r.mirror)
	r.accumulator.Look(slices.Concat(r.acls.placed(r.cache.InstalledTables()), r.acls.placedGuards(r.cache.Installed().Senders)))
	return nil
}

// startCounting enables counters in the vswitch after a new connection.
func (r *Renderer) startCounting(ctx context.Context) error {
	if r.memory.Stats == nil {
		return nil
	}
	r.memory.Stats.Reset()
	return r.link.Count(ctx)
}

// readInterfaces refreshes the interfaces and their ACL lists between audits.
func (r *Renderer) readInterfaces(ctx context.Context) error {
	before := r.mirror.Interfaces
	if err := r.mirror.ReadInterfaces(ctx); err != nil {
		return err
	}
	r.drifted(r.mirror.Rebound(before))
	return nil
}

// drifted logs, counts and publishes differences. The Apply that found them repairs them.
func (r *Renderer) drifted(found []mirror.Drift) {
	if len(found) == 0 {
		return
	}
	counts := maps.Clone(r.audits.drifts)
	for _, d := range found {
		counts[d.Kind]++
		r.options.Log.Warn("rules in the vswitch were changed by another program; repairing them", "kind", d.Kind, "what", d.What)
	}
	r.audits.drifts = counts
	r.publish(fmt.Errorf("rules in the vswitch were changed by another program: %s", renderer.Summary(found)))
}
