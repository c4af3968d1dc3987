package agent

import (
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/explain"
)

// clusterState is what the store holds at one moment.
type clusterState struct{ explain.Cluster }

// decodeState decodes what the store holds. Where a value cannot be decoded it takes the one that is in
// force, if there is one, and leaves the object out otherwise; datasync reports it.
func decodeState(prefix string, entries []model.Entry, inForce func(key string) ([]byte, bool)) clusterState {
	var s clusterState
	for _, e := range entries {
		id, err := model.ParseKey(prefix, e.Key)
		if err != nil {
			continue
		}
		m, err := model.Decode(id, e.Value)
		if err != nil {
			value, ok := inForce(e.Key)
			if !ok {
				continue
			}
			if m, err = model.Decode(id, value); err != nil {
				continue // impossible: it is in force
			}
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

// noneInForce is for who does not follow the store.
func noneInForce(string) ([]byte, bool) { return nil, false }
