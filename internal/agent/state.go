package agent

import (
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/explain"
)

// clusterState is what the store holds at one moment.
type clusterState struct{ explain.Cluster }

// decodeState leaves out what cannot be decoded; datasync reports it.
func decodeState(prefix string, entries []model.Entry) clusterState {
	var s clusterState
	for _, e := range entries {
		id, err := model.ParseKey(prefix, e.Key)
		if err != nil {
			continue
		}
		m, err := model.Decode(id, e.Value)
		if err != nil {
			continue
		}
		switch m := m.(type) {
		case *model.Namespace:
			s.Namespaces = append(s.Namespaces, m)
		case *model.Pod:
			s.Pods = append(s.Pods, m)
		case *model.NetworkPolicy:
			s.Policies = append(s.Policies, m)
		case *model.Node:
			s.Nodes = append(s.Nodes, m)
		case *model.ClusterPolicy:
			s.ClusterPolicies = append(s.ClusterPolicies, m)
		case *model.Service:
			s.Services = append(s.Services, m)
		case *model.EndpointSlice:
			s.Slices = append(s.Slices, m)
		}
	}
	return s
}
