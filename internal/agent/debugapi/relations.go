package debugapi

import (
	"context"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/view"
)

// relations answers which policies select a pod, and which name it as a peer, by the state
// that the agent holds. The filter has its whole name.
// No policy has to do with a pod that is not there.
func (a *Answers) relations(ctx context.Context, f Filter) (view.PodRelations, error) {
	id := api.PodID{Namespace: f.namespace, Name: f.name}
	state, stale := a.Cluster.AboutPod(ctx, id)
	noteStale(ctx, stale)
	spec := a.Specification(state)
	return view.PodRelations{Selecting: spec.Selecting(id), Naming: spec.Naming(id)}, nil
}

// rulesOf returns the rules of a policy in words, and of all admin policies with the name. The
// filter has the whole name.
func (a *Answers) rulesOf(ctx context.Context, f Filter) ([]oracle.RuleText, error) {
	state, stale := a.Cluster.AboutPolicy(ctx, f.namespace, f.name)
	noteStale(ctx, stale)
	spec, kinds := a.Specification(state), []api.PolicyKind{api.NetworkPolicy}
	if f.namespace == "" {
		kinds = []api.PolicyKind{api.AdminNetworkPolicy, api.BaselineAdminNetworkPolicy, api.ClusterNetworkPolicy}
	}
	out := []oracle.RuleText{}
	for _, kind := range kinds {
		out = append(out, spec.Rules(api.PolicyID{Kind: kind, Namespace: f.namespace, Name: f.name})...)
	}
	return out, nil
}
