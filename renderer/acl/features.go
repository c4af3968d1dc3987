package acl

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// ErrNATOrder is returned by Commit when the vswitch translates addresses so that ACLs do
// not see those that rules name: sources before the ACLs of uplinks, or with Split
// destinations behind those of pods' interfaces. Everything else was installed.
var ErrNATOrder = errors.New("the vswitch translates addresses that policy must see")

// checkNATOrder finds the interfaces where tables cannot do their work. The global table
// names pods by their addresses and is asked about what leaves uplinks: so a pod's
// address must not be another one by then, neither since the pod's interface nor at the
// uplink itself. With Split, tables name whom a pod sends to and are asked as that
// enters: so the destination must not become another one later. What pods get is judged
// by local tables, which translation does not disturb.
func (w *wanted) checkNATOrder(ctx context.Context) error {
	r := w.r
	r.interfaces.natConflicts = nil
	kind, asks := mirror.TranslatesSource, w.layout.Global != nil
	if r.options.Orientation == Split {
		kind, asks = mirror.TranslatesDestination, len(w.ownership.senders) > 0
	}
	if !asks {
		return nil
	}
	if r.order == nil { // what nodes there are is settled when the vswitch starts
		order, err := r.link.Features(ctx, "show features verbose")
		if err != nil {
			return err
		}
		r.order = order
	}
	if !r.order.Translators(kind) {
		return nil
	}
	for _, n := range w.m.Interfaces {
		if !w.ownership.uplinks[n.Index] && len(w.ownership.owned[n.Index]) == 0 {
			continue
		}
		on, err := r.link.Features(ctx, "show interface features "+n.Name)
		if err != nil {
			return err
		}
		if node := w.natConflictAt(n, on, r.order); node != "" {
			r.interfaces.natConflicts = append(r.interfaces.natConflicts, n.Name+" by "+node)
		}
	}
	return nil
}

// natConflictAt returns the node of an interface that hides addresses from a table.
func (w *wanted) natConflictAt(n *mirror.Interface, on, order mirror.Features) string {
	if w.r.options.Orientation == Split {
		if w.ownership.senders[n.Index] == nil {
			return ""
		}
		for _, a := range mirror.InputArcs {
			if node := on.Behind(a, order); node != "" {
				return node
			}
		}
		return ""
	}
	if w.ownership.uplinks[n.Index] {
		for _, a := range mirror.OutputArcs {
			if node := on.AheadOf(a, order); node != "" {
				return node
			}
		}
		return ""
	}
	for _, a := range mirror.InputArcs {
		if node := on.Anywhere(a); node != "" {
			return node
		}
	}
	return ""
}

// natOrderError says what is wrong, and what can be done about it.
func natOrderError(o Orientation, blind []string) error {
	if o == Split {
		return fmt.Errorf("%w: destinations, at %s; rules for what these pods send cannot match there. Use orientation outputs", ErrNATOrder, renderer.Summary(blind))
	}
	return fmt.Errorf("%w: sources, at %s; rules of pods for what leaves the node cannot match there. Translate behind the ACLs of the uplink "+
		"(nat44-ei with output-feature), or outside of this vswitch, or use orientation split, which keeps established flows", ErrNATOrder, renderer.Summary(blind))
}
