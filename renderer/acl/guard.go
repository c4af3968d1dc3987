package acl

import (
	"context"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/cache"
)

// A guard is an input ACL of one pod interface. It denies what is certain to be denied: by the
// rules of the sending pod, or by those of pods on this node. The output ACLs decide; the guard
// only keeps packets that they will deny from creating sessions, which would let replies pass and
// fill the session table.
//
// VPP drops the sessions of an interface whose ACL list changes. Therefore every interface has its
// own guard, which is bound once and changes in place.

// prepareGuards sets the content of the guards.
func (w *wanted) prepareGuards() {
	w.bindings.guards = make(map[uint32]*slot)
	if w.r.options.Orientation != Outputs {
		return
	}
	held := w.heldGuards()
	pieces := make(map[*cache.Table]entries.Piece)
	for _, n := range w.m.Interfaces {
		if pod, ok := w.ownership.pods[n.Index]; ok && w.ownership.judgesInput(n) {
			s := held[n.Index]
			if s == nil {
				s = w.slots.newSlot("i")
			}
			w.bindings.guards[n.Index], w.plan.live[s] = s, true
			w.guard(s, w.layout.Senders[pod], pieces)
		}
	}
}

// guard sets the content of the guard of a pod with a table. Pods with equal tables share the
// result.
func (w *wanted) guard(s *slot, t *cache.Table, pieces map[*cache.Table]entries.Piece) {
	if !w.needsGuard(s, t) {
		return
	}
	p, known := pieces[t]
	if !known {
		p = w.tables.expand.Guard(t, expand.Guards{Services: w.r.options.Services, Owned: w.r.flows.areOwned(), Sizes: w.r.bounds.guard})
		pieces[t] = p
	}
	s.want, s.table, s.indexes = []entries.Piece{p}, digestOfTable(t), s.indexes[:min(len(s.indexes), 1)]
}

// heldGuards returns the current guards by interface.
func (w *wanted) heldGuards() map[uint32]*slot {
	by := make(map[uint32]*slot)
	for _, s := range w.slots.byName {
		if s.isGuard() && len(s.indexes) > 0 {
			by[s.indexes[0]] = s
		}
	}
	out := make(map[uint32]*slot)
	for _, n := range w.m.Interfaces {
		for _, index := range n.Bound.In {
			if s := by[index]; s != nil && out[n.Index] == nil {
				out[n.Index] = s
				delete(by, index) // a guard belongs to one interface only
			}
		}
	}
	for n, s := range w.r.interfaces.guards { // another program may have unbound it
		if out[n] == nil && len(s.indexes) > 0 && by[s.indexes[0]] == s {
			out[n] = s
			delete(by, s.indexes[0])
		}
	}
	return out
}

func digestOfTable(t *cache.Table) renderer.Digest {
	if t == nil {
		return renderer.Digest{}
	}
	return t.Digest
}

// needsGuard reports whether the content of a guard may have to change.
func (w *wanted) needsGuard(s *slot, t *cache.Table) bool {
	return s.want == nil || w.inputDiffers || s.table != digestOfTable(t) || t != nil && w.tables.names(t.Sets)
}

// lookForServices logs when the vswitch translates addresses but Options.Services is empty: pods
// with a policy for what they send then cannot reach services.
func (r *Renderer) lookForServices(ctx context.Context) error {
	if r.options.Orientation != Outputs || len(r.options.Services) > 0 {
		return nil
	}
	command, err := r.link.Translates(ctx)
	if command != "" {
		r.options.Log.Warn("vpp translates addresses, but no service addresses are configured: pods with an egress policy cannot reach services; set --service-cidr",
			"command", command)
	}
	return err
}
