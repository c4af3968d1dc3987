package debugapi

import (
	"context"
	"log/slog"

	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/ui"
	"github.com/sluice-net/sluice/internal/view"
)

// Page returns what the page shows of the agent. A preview asks the specification alone, which
// takes no memory of dataplanes from the agent.
func (a *API) Page() ui.Source {
	name := "agent"
	if a.Answers.Name != "" {
		name += " on " + a.Answers.Name
	}
	return ui.Source{Name: name, State: a.state, Explain: bounded(a.Answers.explain), Agent: page{a}}
}

func (a *API) state(ctx context.Context) (explain.Manifests, error) {
	return bounded(a.Answers.manifests)(ctx, Filter{})
}

// manifests returns the state that the agent holds.
func (a *Answers) manifests(ctx context.Context, _ Filter) (explain.Manifests, error) {
	state, _ := a.Cluster.Whole(ctx) // the status says why it may lack changes
	m, err := explain.FromCluster(state.Cluster, slog.New(slog.DiscardHandler))
	m.DenyNode = !a.AllowNode
	return m, err
}

// page answers the page by the API.
type page struct{ *API }

// Pods implements ui.Agent.
func (p page) Pods(ctx context.Context, namespace, name string) ([]view.Pod, error) {
	return p.Lists.pods(ctx, Filter{namespace: namespace, name: name})
}

// Rules implements ui.Agent.
func (p page) Rules(ctx context.Context, namespace, name string) ([]view.Rule, error) {
	return p.Lists.rules(ctx, Filter{namespace: namespace, name: name})
}

// Status implements ui.Agent.
func (p page) Status(ctx context.Context) (view.Status, error) { return p.Lists.Status(ctx) }

// Nodes implements ui.Agent.
func (p page) Nodes(ctx context.Context) ([]view.NodeEnforcement, error) {
	return p.nodes(ctx, Filter{})
}

// Watch implements ui.Agent.
func (p page) Watch(ctx context.Context, q view.Watch, begun func(), send func(any) error) error {
	return p.Verdicts.Watch(ctx, q, begun, send)
}
