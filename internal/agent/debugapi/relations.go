package debugapi

import (
	"context"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/internal/view"
)

// relations answers which policies select a pod, and which name it as a peer, by what is in the
// store. The filter has its whole name.
// No policy has to do with a pod that the store does not have.
func (a *Answers) relations(ctx context.Context, f Filter) (view.PodRelations, error) {
	state, err := a.Cluster.State(ctx)
	if err != nil {
		return view.PodRelations{}, err
	}
	id, spec := api.PodID{Namespace: f.namespace, Name: f.name}, a.Specification(state)
	return view.PodRelations{Selecting: spec.Selecting(id), Naming: spec.Naming(id)}, nil
}

// rulesOf returns the rules of a policy in words, and of all admin policies with the name. The
// filter has the whole name.
func (a *Answers) rulesOf(ctx context.Context, f Filter) ([]oracle.RuleText, error) {
	state, err := a.Cluster.State(ctx)
	if err != nil {
		return nil, err
	}
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
