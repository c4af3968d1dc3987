package differential

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// fleet is the nodes of a cluster that can be looked into. A Fabric answers with
// packets; a fleet that is told the same shows what is installed.
type fleet map[string]watched

// watched is one node. Its plugin tells a Recorder what it tells the dataplane.
type watched struct {
	*node.Node
	told *renderertest.Recorder
}

// newFleet starts a node for each Node object.
func newFleet(nodes []*corev1.Node) (fleet, error) {
	f := fleet{}
	for _, n := range nodes {
		told := renderertest.NewRecorder("recorder", nil)
		started, err := node.New(node.Config{Name: n.Name, AllowNode: true, Renderers: []renderer.Renderer{told}})
		if err != nil {
			return f, errors.Join(err, f.close())
		}
		w := watched{started, told}
		f[n.Name] = w
		if err := w.Start(); err != nil {
			return f, errors.Join(err, f.close())
		}
	}
	return f, nil
}

// names returns the names of the nodes, sorted.
func (f fleet) names() []string { return slices.Sorted(maps.Keys(f)) }

// apply tells every node and waits until all enforce it.
func (f fleet) apply(ctx context.Context, c model.Changes) error {
	for _, name := range f.names() {
		if err := f[name].Apply(ctx, c); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}

func (f fleet) close() error {
	var errs []error
	for _, w := range f {
		errs = append(errs, w.Close())
	}
	return errors.Join(errs...)
}

// prompt lets the renderers of a node look again at their stacks, and returns when
// they have. The loop commits once more before it builds a snapshot, and it builds
// one because the transaction in between makes the last one old.
func (w watched) prompt(ctx context.Context) error {
	w.Plugin.Prompt()
	if err := w.Apply(ctx, model.Changes{}); err != nil {
		return err
	}
	_, err := w.Plugin.Snapshot(ctx)
	return err
}

// restart replaces the plugin and the renderer of a node by new ones over the same
// dataplane, tells them a state and returns what they have made of it.
func (w watched) restart(ctx context.Context, name string, state objects, seed uint64) (tables string, err error) {
	if err := errors.Join(w.Plugin.Close(), w.ACL.Close()); err != nil {
		return "", err
	}
	r, err := acl.New(acl.Options{Adapter: w.Switch.Adapter()})
	if err != nil {
		return "", err
	}
	p := policy.New(policy.Deps{Node: name, Renderers: []renderer.Renderer{r}})
	defer func() { err = errors.Join(err, p.Close(), r.Close()) }()
	if err := errors.Join(p.Init(), p.AfterInit()); err != nil {
		return "", err
	}
	if err := p.Apply(ctx, model.Changes{Resync: true, Deltas: state.all(seed)}); err != nil {
		return "", err
	}
	return tablesOf(r)
}

// prompt lets the renderers of every node look at their stacks.
func (f fleet) prompt(ctx context.Context) error {
	for _, name := range f.names() {
		if err := f[name].prompt(ctx); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}

// operations counts what all renderers were told that changed anything.
func (f fleet) operations() int {
	n := 0
	for _, w := range f {
		n += w.told.Operations()
	}
	return n
}
