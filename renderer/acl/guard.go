package acl

import (
	"context"
	"maps"
	"slices"
	"strings"

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

// isInput reports whether the ACLs of the slot are in input lists that hold the guards.
func (s *slot) isInput() bool { return s.name == infraSlot || s.name == reflectSlot || s.isGuard() }

// prepareGuards decides what the guards of pods hold.
func (w *wanted) prepareGuards() {
	w.guards = make(map[uint32]*slot)
	if w.r.options.Orientation != Outputs {
		return
	}
	held := w.heldGuards()
	pieces := make(map[*cache.Table]entries.Piece)
	for _, n := range w.m.Interfaces {
		if pod, ok := w.who.pods[n.Index]; ok && w.who.judgesInput(n) {
			s := held[n.Index]
			if s == nil {
				s = w.slots.newSlot("i")
			}
			w.guards[n.Index], w.live[s] = s, true
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
		p = w.expand.Guard(t, expand.Guards{Services: w.r.options.Services, Owned: w.r.ownsSessions(), Sizes: w.r.bounds.guard})
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
	for n, s := range w.r.guards { // somebody may have unbound it
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
	return s.want == nil || w.inputDiffers || s.table != digestOfTable(t) || t != nil && w.names(t.Sets)
}

// translations are the commands that list which addresses VPP translates to others, and what stands
// in every line of it (plugins/cnat/cnat_translation.c, plugins/nat/nat44-ed and nat44-ei).
var translations = map[string]string{
	"show cnat translation": "->", "show nat44 static mappings": "external", "show nat44 ei static mappings": "external",
}

// lookForServices logs that the vswitch translates addresses while Options.Services names none:
// pods that policy restricts in what they send do not reach services then.
func (r *Renderer) lookForServices(ctx context.Context) error {
	if r.options.Orientation != Outputs || len(r.options.Services) > 0 {
		return nil
	}
	for _, command := range slices.Sorted(maps.Keys(translations)) {
		out, err := r.link.Ask(ctx, command)
		if err != nil {
			return err
		}
		if strings.Contains(out, translations[command]) {
			r.log.Warn("vpp translates addresses, and those of services are not configured: pods with an egress policy do not reach services; set --service-cidr",
				"command", command)
			return nil
		}
	}
	return nil
}

// inputs returns which ACLs of inputs change in place.
func (w *wanted) inputs() (out []change) {
	for _, s := range w.sorted() {
		if !s.isInput() || len(s.indexes) == 0 {
			continue
		}
		if h := w.m.ACLs[s.indexes[0]]; h != nil && h.Piece.Digest != s.want[0].Digest {
			out = append(out, change{place: place{s, 0}, piece: s.want[0]})
		}
	}
	return out
}

// changeInputs changes the ACLs of inputs in place. VPP would take every session that packets made
// as they entered for outdated, and with them the flows that pods have opened. So sessions are not
// looked at again for these changes: what they deny, outputs deny, too.
//
// When something fails between, the next commit reads everything and sets it anew.
func (w *wanted) changeInputs(ctx context.Context) error {
	changes := w.inputs()
	if len(changes) == 0 {
		return nil
	}
	revoke := w.r.options.Established == Revoke
	if revoke {
		if _, err := w.r.setting(ctx, reclassify(false)); err != nil {
			return err
		}
	}
	if err := w.change(ctx, changes); err != nil || !revoke {
		return err
	}
	_, err := w.r.setting(ctx, reclassify(true))
	return err
}
