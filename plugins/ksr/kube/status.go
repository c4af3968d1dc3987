package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// ClusterPolicy is a ClusterNetworkPolicy of the API server.
type ClusterPolicy struct {
	Name       string
	UID        types.UID
	Generation int64
	// Value is what the sink got: of a policy that is refused as a whole what takes its place if no
	// older version of it is known; nil for nothing.
	Value    proto.Message
	Refused  bool
	Problems []api.Problem
}

// clusterPolicies are the policies whose status can be written.
type clusterPolicies struct {
	changes int                 // so far
	served  schema.GroupVersion // in which they are followed
	all     map[string]ClusterPolicy
}

// ClusterPolicies returns the policies by their names, and a number that changes with them.
func (s *Source) ClusterPolicies() ([]ClusterPolicy, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Values(s.policies.all))
	slices.SortFunc(all, func(a, b ClusterPolicy) int { return strings.Compare(a.Name, b.Name) })
	return all, s.policies.changes
}

// changePolicies changes what is known of policies.
func (s *Source) changePolicies(change func(*clusterPolicies)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.policies.all == nil {
		s.policies.all = map[string]ClusterPolicy{}
	}
	s.policies.changes++
	change(&s.policies)
}

// clusterPolicyOf returns what is known of a policy, or false for an object of another kind.
func clusterPolicyOf(id model.ID, obj any, value proto.Message, refused bool, problems []api.Problem) (ClusterPolicy, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || id.Kind != model.KindClusterNetworkPolicy {
		return ClusterPolicy{}, false
	}
	return ClusterPolicy{Name: id.Name, UID: u.GetUID(), Generation: u.GetGeneration(), Value: value, Refused: refused, Problems: problems}, true
}

// fieldManager is whose conditions these are at the API server.
const fieldManager = "sluice-ksr"

func (s *Source) policyClient() dynamic.ResourceInterface {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients.custom.Resource(s.policies.served.WithResource("clusternetworkpolicies"))
}

// Conditions asks the API server for the conditions of all ClusterNetworkPolicies, by their UIDs.
func (s *Source) Conditions(ctx context.Context) (map[types.UID][]metav1.Condition, error) {
	list, err := s.policyClient().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the conditions of ClusterNetworkPolicies: %w", err)
	}
	all := map[types.UID][]metav1.Condition{}
	for _, u := range list.Items {
		var o struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
			return nil, fmt.Errorf("read the conditions of ClusterNetworkPolicy %s: %w", u.GetName(), err)
		}
		all[u.GetUID()] = o.Status.Conditions
	}
	return all, nil
}

// SetConditions writes conditions of a ClusterNetworkPolicy; one that has its name since is none. Those of
// others stay.
func (s *Source) SetConditions(ctx context.Context, p ClusterPolicy, conditions []metav1.Condition) error {
	s.mu.Lock()
	version := s.policies.served
	s.mu.Unlock()
	body, err := json.Marshal(map[string]any{
		"apiVersion": version.String(), "kind": model.KindClusterNetworkPolicy.String(),
		"metadata": map[string]any{"name": p.Name, "uid": p.UID}, "status": map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("encode the conditions of ClusterNetworkPolicy %s: %w", p.Name, err)
	}
	force := true
	if _, err = s.policyClient().Patch(ctx, p.Name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: fieldManager, Force: &force}, "status"); err != nil {
		return fmt.Errorf("write the conditions of ClusterNetworkPolicy %s: %w", p.Name, err)
	}
	return nil
}
