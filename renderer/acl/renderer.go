package acl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/counters"
	"github.com/sluice-net/sluice/renderer/acl/internal/memory"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/vpp"
)

var (
	_ renderer.Renderer    = (*Renderer)(nil)
	_ renderer.Explainer   = (*Renderer)(nil)
	_ renderer.Reporter    = (*Renderer)(nil)
	_ renderer.Inspector   = (*Renderer)(nil)
	_ renderer.Counter     = (*Renderer)(nil)
	_ renderer.Quarantiner = (*Renderer)(nil)
	_ renderer.Checker     = (*Renderer)(nil)
)

// New returns a renderer without waiting for the vswitch. The caller must call Close.
func New(o Options) (*Renderer, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	r := &Renderer{
		cache: newCache(o.Orientation), acls: newACLs(), bounds: defaultBounds(),
		unenforced: cache.NewUnenforcedTracker(reasonSCTP, namesSCTPPort), audits: newAudits(),
	}
	if o.Stats.Counters == nil && o.Stats.Socket != "" {
		r.memory.Stats = counters.NewStatistics(o.Stats.Socket, o.Log)
		o.Stats.Counters = r.memory.Stats.Counters
	}
	r.options = o
	r.unenforced.SetMatters(false) // until the vswitch is known
	r.accumulator = counters.NewAccumulator(o.Stats.Counters)
	r.memory.Limit, r.memory.Places, r.memory.Log, r.memory.Most = o.Memory, uint64(o.Flows.SessionTable), o.Log, r.mostSessions
	r.publish(nil)
	if r.link, err = mirror.Dial(vpp.Options{Adapter: o.Adapter, Socket: o.Socket, Client: "sluice-acl", Timeout: o.Timeout, OnChange: o.OnChange, Log: o.Log}); err != nil {
		return nil, err
	}
	r.memory.Link = r.link
	r.flows = openFlows{Flows: o.Flows, link: r.link, log: o.Log}
	if o.Audit > 0 {
		r.audits.timer.Wait(o.Audit, r.link.Prompt)
	}
	return r, nil
}

// Close disconnects and thereby aborts a running Apply. Installed rules stay in force.
func (r *Renderer) Close() error {
	r.audits.timer.Stop()
	r.link.Interrupt()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link.Close()
	r.mirror = nil
	if r.memory.Stats != nil {
		r.memory.Stats.Reset()
	}
	return nil
}

// Apply installs the difference.
func (r *Renderer) Apply(ctx context.Context, c renderer.Changes) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.options.Pods.BlockUnknown && c.HasPods() {
		r.interfacesChanged.Store(true) // the set of known pods determines which interfaces are blocked
	}
	cache.Stage(r.cache, c)
	r.unenforced.Track(c)
	r.quarantined.committed = true
	ctx, done := r.link.Calls(ctx)
	defer done()
	err := vpp.Ended(ctx, r.reconcile(ctx))
	if err != nil {
		r.publish(err)
	} else {
		r.publish(r.memory.Sessions.Err())
	}
	return err
}

// reconcile changes the vswitch from its current to the desired content.
func (r *Renderer) reconcile(ctx context.Context) error {
	plan := r.cache.Compute()
	fresh, err := r.connect(ctx)
	if err != nil {
		return r.fail(err)
	}
	differs, err := r.audit(ctx, plan, fresh)
	if err != nil {
		return r.fail(err)
	}
	fresh = fresh || differs
	idle := plan.Empty() && !r.acls.unsettled
	if idle && !fresh && len(r.interfaces.pending)+len(r.interfaces.natConflicts) == 0 && !r.flows.isOver() {
		r.unenforced.Refused(r.cache.Refused()) // refused tables were reverted
		r.cache.Acknowledge()
		return nil
	}
	w, err := r.look(ctx, plan, fresh)
	if err == nil {
		err = w.install(ctx)
	}
	if err == nil {
		err = r.memory.Ask(ctx, r.mirror.Entries(), r.mirror.Counted())
	}
	if err == nil && len(w.refusals.errs) == 0 {
		r.memory.Heap.Needed = memory.Bytes(r.mirror.Entries())
	}
	if err != nil {
		return r.fail(err)
	}
	r.interfaces.pending, r.interfaces.owned, r.interfaces.bound = w.ownership.pending, w.ownership.owned, w.endpoints(r.interfaces.bound, time.Now())
	r.interfaces.answered = r.interfaces.asked
	r.interfaces.noteBound(w)
	r.interfaces.noteBlocked(w)
	if err := r.findForeign(ctx); err != nil {
		return r.fail(err)
	}
	r.unenforced.Refused(append(r.cache.Refused(), w.refusals.oversize...))
	if r.acls.unsettled = len(w.refusals.errs) > 0; !r.acls.unsettled { // otherwise refused tables are retried with the next change
		r.cache.Acknowledge()
	}
	errs := w.refusals.errs
	if len(r.interfaces.natConflicts) > 0 {
		errs = append(errs, natOrderError(r.options.Orientation, r.interfaces.natConflicts))
	}
	return errors.Join(append(errs, renderer.Missing(w.ownership.pending))...)
}

// look derives the desired content from a plan. Unless fresh, it reads interfaces that are about to
// be bound again: pods may have new interfaces, and other owners may have bound ACLs.
func (r *Renderer) look(ctx context.Context, plan cache.Plan, fresh bool) (*wanted, error) {
	if !fresh && len(plan.Bindings)+len(plan.Pods) == 0 && plan.Global.From == plan.Global.To && len(r.interfaces.pending)+len(r.interfaces.natConflicts) == 0 {
		return r.want(plan), nil
	}
	if !fresh {
		if err := r.readInterfaces(ctx); err != nil {
			return nil, err
		}
	}
	w := r.want(plan)
	return w, w.checkNATOrder(ctx)
}

// mostSessions returns the pod interface with the most sessions, or "" when none has any. A flow
// has a session at each interface that it passes; uplinks are ignored.
func (r *Renderer) mostSessions(at map[uint32]uint64) (most string) {
	if r.mirror == nil {
		return ""
	}
	used := uint64(0)
	for _, n := range r.mirror.Interfaces {
		if at := at[n.Index]; at > used && len(r.interfaces.owned[n.Index]) > 0 {
			used, most = at, fmt.Sprintf("interface %s of pod %s has %d", n.Name, renderer.Summary(r.interfaces.owned[n.Index]), at)
		}
	}
	return most
}
