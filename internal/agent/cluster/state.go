// Package cluster reads the state of the cluster from etcd for the debug API, and waits until the
// nodes enforce a change.
package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/explain"
	"github.com/sluice-net/sluice/internal/term"
)

// State is what the store holds at one moment.
type State struct{ explain.Cluster }

// Decode decodes what the store holds. Where a value cannot be decoded it takes the one that is in
// force, if there is one, and leaves the object out otherwise; datasync reports it.
func Decode(prefix string, entries []model.Entry, inForce func(key string) ([]byte, bool)) State {
	var s State
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
		s.Add(m)
	}
	return s
}

// NoneInForce is for who does not follow the store.
func NoneInForce(string) ([]byte, bool) { return nil, false }

// Counts returns how many objects of each kind the state has, as text.
func (s State) Counts() string {
	nodes := map[string]bool{}
	for _, p := range s.Pods {
		if p.GetNodeName() != "" {
			nodes[p.GetNodeName()] = true
		}
	}
	text := fmt.Sprintf("%s, %s, %s", term.Count(len(s.Namespaces), "namespace"), term.Count(len(s.Pods), "pod"), term.Count(len(s.Policies)+len(s.ClusterPolicies), "policy"))
	if len(nodes) > 1 {
		text += fmt.Sprintf(" (pods of %d nodes: %s)", len(nodes), strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))
	}
	return text
}
