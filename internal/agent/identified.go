package agent

import (
	"context"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/endpoints/keeper"
	"github.com/sluice-net/sluice/plugins/policy"
)

// identified is a source that says by which UIDs the state knows the pods of the node, before policy
// knows them so. Interfaces of other lives of these pods are blocked from then on.
type identified struct {
	policy.Source
	node   string // empty: all pods are its
	keeper *keeper.Keeper
}

// Next implements policy.Source.
func (s identified) Next(ctx context.Context) (model.Changes, error) {
	changes, err := s.Source.Next(ctx)
	if err != nil {
		return changes, err
	}
	uids := map[api.PodID]string{}
	for _, d := range changes.Deltas {
		if d.ID.Kind != model.KindPod {
			continue
		}
		p, ok := d.Value.(*model.Pod)
		id := api.PodID{Namespace: d.ID.Namespace, Name: d.ID.Name}
		switch local := ok && (s.node == "" || p.GetNodeName() == s.node); {
		case local:
			uids[id] = p.GetUid()
		case !changes.Resync: // gone, or elsewhere
			uids[id] = ""
		}
	}
	if len(uids) > 0 || changes.Resync {
		s.keeper.Identify(uids, changes.Resync)
	}
	return changes, nil
}
