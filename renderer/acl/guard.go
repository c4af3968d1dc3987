package acl

import (
	"context"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/cache"
)

// A guard is the ACL, one for each interface of a pod, that denies as packets enter the vswitch
// what is certain to be denied: by the rules of the pod that sends, or by those of the pods of this
// node. The ACLs of outputs decide; the guard keeps packets that they will deny from making
// sessions, which would let the answers in, and would fill the table of sessions.
//
// VPP forgets the sessions of an interface whose list of ACLs changes. So every guard is an ACL of
// its own, is bound once, and changes in place.

// isGuard reports whether the slot is for a guard.
func (s *slot) isGuard() bool { return isNumbered(s.name, "i") }

// prepareGuards decides what the guards of pods hold.
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

// guard decides what the guard of a pod with a table holds. Pods with equal tables share what was
// found out.
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

// heldGuards returns the guards that interfaces have, by interface.
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
				delete(by, index) // it is of one interface
			}
		}
	}
	for n, s := range w.r.interfaces.guards { // somebody may have unbound it
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

// needsGuard reports whether a guard may have to hold something else than it does.
func (w *wanted) needsGuard(s *slot, t *cache.Table) bool {
	return s.want == nil || w.inputDiffers || s.table != digestOfTable(t) || t != nil && w.tables.names(t.Sets)
}

// lookForServices logs that the vswitch translates addresses while Options.Services names none:
// pods that policy restricts in what they send do not reach services then.
func (r *Renderer) lookForServices(ctx context.Context) error {
	if r.options.Orientation != Outputs || len(r.options.Services) > 0 {
		return nil
	}
	command, err := r.link.Translates(ctx)
	if command != "" {
		r.options.Log.Warn("vpp translates addresses, and those of services are not configured: pods with an egress policy do not reach services; set --service-cidr",
			"command", command)
	}
	return err
}
