package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/view"
)

// telling is an agent of node-1 that enforces the demo, and tells so.
func telling(t *testing.T) *Agent {
	t.Helper()
	return running(t, func(cfg *Config) { cfg.Node, cfg.StatusInterval = "node-1", 10*time.Millisecond })
}

// nodesAre waits until get nodes says of every node what is wanted.
func (a *Agent) nodesAre(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("nodes are %q, want %q", got, want)
		}
	}()
	a.eventually(t, "what nodes tell", func() bool {
		got = nil
		for _, n := range get[[]view.NodeEnforcement](t, a, "GET", "/v1/nodes", "") {
			got = append(got, fmt.Sprintf("%s %s", n.Node, n.Enforced))
		}
		return slices.Equal(got, want)
	})
}

// tells writes what another node tells.
func (a *Agent) tells(t *testing.T, s view.NodeStatus) {
	t.Helper()
	text, err := json.Marshal(s)
	if err == nil {
		err = a.store.Write(t.Context(), []model.Entry{{Key: model.StatusRoot(a.cfg.EtcdPrefix) + s.Node, Value: text}}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsKnownOfANodeThatTellsNothing(t *testing.T) {
	a := telling(t)
	a.nodesAre(t, "node-1 yes")
	a.apply(t, "{apiVersion: v1, kind: Node, metadata: {name: node-0}}")
	a.nodesAre(t, "node-0 unknown", "node-1 yes")
}

// TestNodesReportAChangeAtOnce has an interval in which nothing would be published twice.
func TestNodesReportAChangeAtOnce(t *testing.T) {
	a := running(t, func(cfg *Config) { cfg.Node, cfg.StatusInterval = "node-1", time.Hour })
	a.nodesAre(t, "node-1 yes")
	a.apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: more}}")
	a.nodesAre(t, "node-1 yes")
}

// TestADeletionIsToBeEnforcedByAllNodes: what is deleted is nowhere in the store, so that
// no revision there says that something changed.
func TestADeletionIsToBeEnforcedByAllNodes(t *testing.T) {
	a := telling(t)
	a.nodesAre(t, "node-1 yes")
	a.tells(t, view.NodeStatus{Node: "node-2", Following: true, Revision: a.node.Plugin.Status().Revision})
	a.nodesAre(t, "node-1 yes", "node-2 yes")
	policy := model.ID{Kind: model.KindNetworkPolicy, Namespace: "demo", Name: "server"}
	if _, err := a.reflector.Delete(t.Context(), []model.ID{policy}); err != nil {
		t.Fatal(err)
	}
	a.nodesAre(t, "node-1 yes", "node-2 pending")
	a.tells(t, view.NodeStatus{Node: "node-2", Following: true, Revision: a.node.Plugin.Status().Revision})
	a.nodesAre(t, "node-1 yes", "node-2 yes")
}
