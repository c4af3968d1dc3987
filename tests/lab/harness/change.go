package harness

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
)

// errFailed ends the waiting for a transaction that failed.
var errFailed = errors.New("the transaction failed")

// Grow starts a node of another name, which has received nothing yet.
func (f *Cluster) Grow(name string) error {
	if f.nodes[name] != nil {
		return fmt.Errorf("node %s is there already", name)
	}
	n, err := newNode(name, f.kind, f.options)
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	f.nodes[name] = n
	return nil
}

// Replace ends a node with its dataplane and starts an empty one of its name, which has received
// nothing yet.
func (f *Cluster) Replace(name string) error {
	old := f.nodes[name]
	delete(f.nodes, name)
	return errors.Join(old.close(), f.Grow(name))
}

// Try is Apply on one node, but it returns as well when a renderer failed. The node
// then waits for a Prompt, or for the next changes, to try the rest again: fleets have
// no timers.
func (n *Node) Try(ctx context.Context, c model.Changes) (enforced bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n.trial.Store(&trial{seen: n.Plugin.Status().Seen + 1, fail: cancel})
	defer n.trial.Store(nil)
	err = n.Plugin.Apply(ctx, c)
	if errors.Is(context.Cause(ctx), errFailed) || errors.Is(err, renderer.ErrRefused) {
		return false, nil
	}
	return err == nil, err
}

// TryAgain prompts the renderers of the node once, and reports whether the node now enforces its
// desired state.
func (n *Node) TryAgain(ctx context.Context) (enforced bool, err error) {
	n.Plugin.Prompt()
	return n.Try(ctx, model.Changes{})
}

// trial is a Try under way.
type trial struct {
	seen int64 // the transaction that it waits for
	fail context.CancelCauseFunc
}

// observe receives every transaction from the event loop.
func (n *Node) observe(s policy.Status) {
	if t := n.trial.Load(); t != nil && s.Seen >= t.seen && s.BusySince.IsZero() && !s.InSync() {
		t.fail(errFailed)
	}
}
