package differential

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/cluster"
)

// shapes are the kinds of clusters that are drawn.
var shapes = map[string]cluster.Config{
	"two nodes":  cluster.Small(),
	"one node":   {Namespaces: 2, Nodes: 1, Pods: 8, Policies: 8, IPv6: true, Odd: true},
	"four nodes": {Namespaces: 3, Nodes: 4, Pods: 14, Policies: 10, IPv6: true, Odd: true},
}

// flowsPerCluster bounds how many flows of one cluster are asked.
const flowsPerCluster = 700

// TestRandomClusters asks the dataplanes of all nodes, and what every node's plugin
// tells its renderers, about the flows of random clusters.
func TestRandomClusters(t *testing.T) {
	t.Parallel()
	for name, cfg := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				c := draw(t, cfg)
				c.checkPlugins(t)
				c.checkFabric(t)
			})
		})
	}
}

// TestSharedAddresses asks about clusters in which two live pods can have one
// address, as in the moment when it goes from one to the other. A dataplane
// delivers to one of them only; what renderers are told is about both.
func TestSharedAddresses(t *testing.T) {
	t.Parallel()
	cfg := cluster.Small()
	cfg.SharedAddresses = true
	rapid.Check(t, func(t *rapid.T) {
		draw(t, cfg).checkPlugins(t)
	})
}

// drawn is a cluster and all that is needed to ask about it.
type drawn struct {
	cluster.State
	state     objects
	oracle    *oracle.Oracle
	allowNode bool
	seed      uint64 // of flows, and of the order of objects
}

func draw(t *rapid.T, cfg cluster.Config) drawn {
	d := drawn{
		State: cluster.Gen(cfg).Draw(t, "state"), seed: rapid.Uint64().Draw(t, "seed"),
		allowNode: rapid.IntRange(0, 7).Draw(t, "deny node when 7") != 7,
	}
	d.state, d.oracle = mustReflect(t, d.State), oracle.New(d.State, oracle.AllowNodeTraffic(d.allowNode))
	return d
}

func mustReflect(t rapid.TB, s cluster.State) objects {
	t.Helper()
	state, err := reflect(s)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func (d drawn) checkFabric(t *rapid.T) {
	f := node.NewFabric(slog.New(slog.DiscardHandler), d.allowNode)
	defer closing(t, f.Close)
	if err := f.Apply(t.Context(), d.state.all(d.seed)); err != nil {
		t.Fatal(err)
	}
	if flow, differ := difference(flowsOf(d.State, flowsPerCluster, d.seed), d.oracle.Allowed, byFabric(f)); differ {
		t.Fatal(disagreement(flow, d.oracle, f.Ask(flow), d.State))
	}
}

func closing(t rapid.TB, close func() error) {
	if err := close(); err != nil {
		t.Error(err)
	}
}

// checkPlugins evaluates what renderers are told, rule by rule.
func (d drawn) checkPlugins(t *rapid.T) {
	recorders, err := record(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range recorders {
		for _, v := range r.Violations() {
			t.Errorf("node %s: the contract is violated: %s", name, v)
		}
	}
	if flow, differ := difference(flowsOf(d.State, flowsPerCluster, d.seed), d.oracle.Allowed, byRecorders(recorders)); differ {
		for _, name := range slices.Sorted(maps.Keys(recorders)) {
			t.Logf("node %s: %v\n%s", name, recorders[name].Explain(flow), recorders[name].Dump())
		}
		t.Fatalf("what renderers are told differs: %s\n%s\n%s", flow, d.oracle.Verdict(flow), manifests(d.State))
	}
}

// byRecorders asks the nodes of both ends: a Recorder restricts its own pods only.
func byRecorders(recorders map[string]*renderertest.Recorder) evaluation {
	return func(f api.Flow) bool {
		for _, r := range recorders {
			if r.Verdict(f) == api.Deny {
				return false
			}
		}
		return true
	}
}

// record tells a cluster to the plugin of every node and returns what each told its
// renderer.
func record(ctx context.Context, d drawn) (map[string]*renderertest.Recorder, error) {
	out := map[string]*renderertest.Recorder{}
	for _, n := range d.Nodes {
		r := renderertest.NewRecorder("recorder", nil)
		out[n.Name] = r
		p := policy.New(policy.Deps{Node: n.Name, DenyNode: !d.allowNode, Renderers: []renderer.Renderer{r}})
		err := errors.Join(p.Init(), p.AfterInit())
		if err == nil {
			err = p.Apply(ctx, model.Changes{Resync: true, Deltas: d.state.all(d.seed)})
		}
		if err = errors.Join(err, p.Close()); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return out, nil
}
