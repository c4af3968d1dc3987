package acl

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
)

// ErrNATOrder is returned by Apply when the vswitch translates addresses where ACLs then do not
// see the addresses that rules name. That is sources ahead of uplink ACLs, or, with Split,
// destinations behind the ACLs of pod interfaces. Everything else is installed.
var ErrNATOrder = errors.New("address translation hides addresses from policy")

// checkNATOrder finds the interfaces where address translation defeats the tables. The global table
// names pods by their addresses and is evaluated where packets leave by an uplink, so neither the
// pod's interface nor the uplink may translate the source before. With Split, tables name the
// destinations of a pod and are evaluated on input, so the destination must not be translated
// afterwards. Local tables decide about what pods receive; translation does not affect them.
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
	if r.order == nil { // the set of nodes is fixed when the vswitch starts
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

// natOrderError describes the conflict and the remedy.
func natOrderError(o Orientation, conflicts []string) error {
	if o == Split {
		return fmt.Errorf("%w: destinations at %s: rules for what these pods send cannot match; use orientation outputs", ErrNATOrder, renderer.Summary(conflicts))
	}
	return fmt.Errorf("%w: sources at %s: rules for what pods send to other nodes cannot match; translate behind the ACLs of the uplink "+
		"(nat44-ei with output-feature), or outside of this vswitch, or use orientation split, which keeps established flows", ErrNATOrder, renderer.Summary(conflicts))
}
