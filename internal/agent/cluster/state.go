// Package cluster reads the state of the cluster for the debug API: the whole of it, or the part that
// a question is about. It also waits until the node enforces a change.
package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/lib/term"
)

// State is what the store holds at one moment.
type State struct{ explain.Cluster }

// Decode decodes a state. It leaves out what cannot be decoded; datasync reports that.
func Decode(prefix string, entries []model.Entry) State {
	var s State
	for _, e := range entries {
		id, err := model.ParseKey(prefix, e.Key)
		if err != nil {
			continue
		}
		if m, err := model.Decode(id, e.Value); err == nil {
			s.Add(m)
		}
	}
	return s
}

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
