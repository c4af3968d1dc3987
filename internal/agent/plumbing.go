package agent

import (
	"context"
	"slices"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/plumbing"
	"github.com/sluice-net/sluice/plugins/policy"
)

// follower makes the watcher that knows the interfaces of pods. The embedded dataplane
// plugs pods in by itself.
func (a *Agent) follower() *plumbing.Watcher {
	if a.cfg.VPPSocket == "" && a.cfg.ACLTarget != targetLigato {
		return nil
	}
	return plumbing.New(plumbing.Config{
		Store: a.store, Prefix: a.cfg.EtcdPrefix, Node: a.cfg.Node, Log: a.log.With("plugin", "plumbing"),
		OnChange: func() { a.node.InterfacesChanged() }, OnProblem: a.metrics.problem,
		File: besides(a.cfg.StateFile, ".interfaces"), Needed: a.needed,
	})
}

// namespaceFollower makes the watcher that knows the application namespaces of pods, nil without
// session rules.
func (a *Agent) namespaceFollower() *plumbing.Watcher {
	if !slices.Contains(a.cfg.Renderers, rendererSession) {
		return nil
	}
	return plumbing.New(plumbing.Config{
		Store: a.store, Prefix: a.cfg.EtcdPrefix, Node: a.cfg.Node, AppNamespaces: true, Log: a.log.With("plugin", "plumbing"),
		OnChange: func() { a.node.Session.NamespacesChanged() }, OnProblem: a.metrics.problem,
		File: besides(a.cfg.StateFile, ".appns"), Needed: a.needed,
	})
}

// besides returns the path of a file beside another one, empty when there is none.
func besides(path, suffix string) string {
	if path == "" {
		return ""
	}
	return path + suffix
}

// plugged is a source that has nothing to tell before it is known which interfaces, or
// application namespaces, are those of pods: what is rendered before that would open them.
type plugged struct {
	policy.Source
	ready <-chan struct{}
}

// Next implements policy.Source.
func (s plugged) Next(ctx context.Context) (model.Changes, error) {
	select {
	case <-s.ready:
		return s.Source.Next(ctx)
	case <-ctx.Done():
		return model.Changes{}, ctx.Err()
	}
}
