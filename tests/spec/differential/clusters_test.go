package differential

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// flowsPerCluster bounds how many flows of one cluster are asked.
const flowsPerCluster = 700

// TestPlayRandomClusters asks the stacks of all nodes, and what every node's plugin tells
// its renderers, about the flows of single states.
func TestPlayRandomClusters(t *testing.T) {
	t.Parallel()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		needTime(t, kind)
		for name, w := range worlds {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(t *rapid.T) {
					c := draw(t, kind, w)
					defer closing(t, c.machine.Close)
					c.check(t)
				})
			})
		}
	})
}

// drawn is a cluster and all that is needed to ask about it.
type drawn struct {
	machine *Machine // that received the state at once
	oracle  *oracle.Oracle
	seed    uint64 // of flows
}

func draw(t *rapid.T, kind backends.Kind, w World) drawn {
	s := cluster.Gen(w.Config).Draw(t, "state")
	d := drawn{seed: rapid.Uint64().Draw(t, "seed"), oracle: oracle.New(s, oracle.AllowNodeTraffic(!w.DenyNode))}
	var err error
	if d.machine, err = New(w.Options(Options{Kind: kind})); err != nil {
		t.Fatal(err)
	}
	if err := d.machine.Do(t.Context(), Event{What: "start", Edits: cluster.Objects(s), Seed: d.seed}); err != nil {
		t.Fatalf("%v\n%s", err, harness.Manifests(s))
	}
	return d
}

// check asks about more flows than an event is followed by.
func (d drawn) check(t *rapid.T) {
	s := harness.State{Expected: d.machine.fleet.Expect(d.machine.State()), Seed: d.seed, Flows: slices.Collect(d.flows())}
	s.Except = []harness.Invariant{harness.Fresh, harness.Again} // the machine has asked
	if err := d.machine.fleet.Check(t.Context(), s); err != nil {
		t.Fatalf("%s\n%s", err, harness.Manifests(d.machine.State()))
	}
}

func (d drawn) flows() iter.Seq[api.Flow] { return flowsOf(d.machine.State(), flowsPerCluster, d.seed) }

const (
	stepsOfFabric = 6
	flowsPerStep  = 100
)

// TestPlaySequencesOnFabrics tests the clusters that policy tests run on: nodes come with their
// pods, and the state is never sent as a whole.
func TestPlaySequencesOnFabrics(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"two nodes", "deny node"} {
		w := worlds[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				f := node.NewFabric(slog.New(slog.DiscardHandler), !w.DenyNode)
				defer closing(t, f.Close)
				var old harness.Objects
				seed := rapid.Uint64().Draw(t, "seed")
				for i, step := range cluster.GenSequence(w.Config, stepsOfFabric).Draw(t, "sequence") {
					old = checkFabric(t, f, old, step, w, seed+uint64(i))
				}
			})
		})
	}
}

// tester is what a test of rapid and one of the go tool have in common.
type tester interface {
	rapid.TB
	Context() context.Context
}

func checkFabric(t tester, f *node.Fabric, old harness.Objects, step cluster.Step, w World, seed uint64) harness.Objects {
	now := mustReflect(t, step.State)
	if err := f.Apply(t.Context(), now.Since(old, seed)); err != nil {
		t.Fatal(err)
	}
	o := oracle.New(step.State, oracle.AllowNodeTraffic(!w.DenyNode))
	if flow, differ := difference(flowsOf(step.State, flowsPerStep, seed), o.Allowed, byFabric(f)); differ {
		t.Fatalf("after %q: %s", step.What, disagreement(flow, o, walkText(f.Ask(flow)), step.State))
	}
	return now
}

func mustReflect(t rapid.TB, s cluster.State) harness.Objects {
	t.Helper()
	objects, err := harness.Reflect(s)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// flowsOf returns all flows of a state when they are few enough, else as many as
// the bound says, drawn by a seed.
func flowsOf(s cluster.State, bound int, seed uint64) iter.Seq[api.Flow] {
	space := cluster.FlowSpace(s)
	if renderertest.Whole() || space.Size() <= bound {
		return space.All()
	}
	return slices.Values(space.Random(cluster.NewRand(seed), bound))
}
