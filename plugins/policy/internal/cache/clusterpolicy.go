package cache

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

func (x *policies) applyCluster(id model.ID, m *model.ClusterPolicy, w update) []api.Problem {
	policyID := clusterPolicyID(id)
	if m == nil {
		x.dropCluster(policyID, w)
		return nil
	}
	spec, problems := x.selectors.parseClusterPolicy(id, m)
	if spec == nil { // its place in the order of evaluation is unknown: keep the last valid version
		if p := x.cluster[policyID]; p != nil {
			p.epoch = w.epoch
		}
		return problems
	}
	p := x.cluster[policyID]
	if p == nil {
		p = &policy{}
		x.cluster[policyID] = p
	}
	p.epoch = w.epoch
	old := p.spec
	if old != nil && equalSpecs(old, spec) {
		x.selectors.releasePolicy(spec)
		return problems
	}
	p.spec = spec
	x.subjects.add(spec)
	x.subjects.remove(old)
	w.PolicyChanged(old, spec)
	x.selectors.releasePolicy(old)
	return problems
}

func (x *policies) dropCluster(id api.PolicyID, w update) {
	p := x.cluster[id]
	if p == nil {
		return
	}
	delete(x.cluster, id)
	x.subjects.remove(p.spec)
	w.PolicyChanged(p.spec, nil)
	x.selectors.releasePolicy(p.spec)
}
