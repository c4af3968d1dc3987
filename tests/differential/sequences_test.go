package differential

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
)

const (
	stepsPerSequence = 8
	stepsWhenLong    = 40
	flowsPerStep     = 80
	flowsAtTheEnd    = 400
)

// TestRandomSequences brings one state after the other to running nodes.
func TestRandomSequences(t *testing.T) {
	t.Parallel()
	for name, cfg := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { checkSequence(t, cfg, true) })
		})
	}
	// A dataplane delivers to one of two pods, so verdicts mean nothing here.
	t.Run("shared addresses", func(t *testing.T) {
		t.Parallel()
		cfg := cluster.Small()
		cfg.SharedAddresses = true
		rapid.Check(t, func(t *rapid.T) { checkSequence(t, cfg, false) })
	})
}

// tester is what a test of rapid and one of the go tool have in common.
type tester interface {
	rapid.TB
	Context() context.Context
}

// sequence is a run of states through one fabric and one fleet.
type sequence struct {
	t      tester
	fabric *node.Fabric
	fleet  fleet
	state  objects
	asked  []api.Flow // by the step before
}

func checkSequence(t *rapid.T, cfg cluster.Config, verdicts bool) {
	n := stepsPerSequence
	if isLong() {
		n = stepsWhenLong
	}
	steps := cluster.GenSequence(cfg, n).Draw(t, "sequence")
	seed := rapid.Uint64().Draw(t, "seed")
	x := start(t, steps[0].State)
	defer closing(t, x.close)
	for i, step := range steps {
		last := i == len(steps)-1
		if !last && rapid.IntRange(0, 3).Draw(t, "squash") == 3 {
			continue // the next step comes together with this one
		}
		t.Logf("step %d: %s", i, step.What)
		x.apply(step.State, way(rapid.IntRange(0, int(ways)-1).Draw(t, "way")), seed)
		if verdicts {
			x.checkVerdicts(step.State, last, seed)
		}
		x.checkInstalled(step.State, seed)
		x.checkAgain(seed)
		seed++
	}
	x.checkRestart(seed)
}

func start(t tester, s cluster.State) *sequence {
	f, err := newFleet(s.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	x := &sequence{t: t, fleet: f, fabric: node.NewFabric(slog.New(slog.DiscardHandler), true)}
	// A node that has heard of nothing resyncs first, as all sources do.
	if err := f.apply(t.Context(), model.Changes{Resync: true}); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *sequence) close() error {
	return errors.Join(x.fabric.Close(), x.fleet.close())
}

// way is how a fleet hears of a state. A fabric hears of what changed.
type way int

const (
	asChanges    way = iota
	asEverything     // changes that name everything, with what did not change
	asResync
	ways
)

// apply brings the next state to all nodes.
func (x *sequence) apply(s cluster.State, how way, seed uint64) {
	next := mustReflect(x.t, s)
	changes := model.Changes{Deltas: next.since(x.state, seed)}
	if err := x.fabric.Apply(x.t.Context(), changes.Deltas); err != nil {
		x.t.Fatal(err)
	}
	switch how {
	case asEverything:
		deleted := slices.DeleteFunc(slices.Clone(changes.Deltas), func(d model.Delta) bool { return d.Value != nil })
		changes.Deltas = shuffled(append(deleted, next.all(seed)...), seed)
	case asResync:
		changes = model.Changes{Resync: true, Deltas: next.all(seed)}
	case asChanges, ways:
	}
	if err := x.fleet.apply(x.t.Context(), changes); err != nil {
		x.t.Fatal(err)
	}
	x.state = next
}

// checkVerdicts asks some flows of the state, at the end all of them as far as the
// bound allows. Packets of the flows of the step before come again, and must be
// judged by the new rules although they have sessions.
func (x *sequence) checkVerdicts(s cluster.State, last bool, seed uint64) {
	o := oracle.New(s)
	wires := x.fleet.wires()
	x.checkSessions(wires, "an established", o, s)
	x.asked = cluster.FlowSpace(s).Random(cluster.NewRand(seed), flowsPerStep)
	x.checkSessions(wires, "a new", o, s)
	flows := slices.Values(x.asked)
	if last {
		flows = flowsOf(s, flowsAtTheEnd, seed)
	}
	if flow, differ := difference(flows, o.Allowed, byFabric(x.fabric)); differ {
		x.t.Fatal(disagreement(flow, o, x.fabric.Ask(flow), s))
	}
}

// checkSessions sends packets that leave sessions behind. What answers an allowed
// flow must arrive, whatever the rules of the other direction say.
func (x *sequence) checkSessions(w wires, what string, o *oracle.Oracle, s cluster.State) {
	for _, f := range x.asked {
		allowed := o.Allowed(f)
		if w.first(f) != allowed {
			x.t.Fatalf("%s flow %s:\n%s%s\n%s", what, f, w.trace(f), o.Verdict(f), manifests(s))
		}
		if allowed && !w.reply(f) {
			x.t.Fatalf("the reply to %s flow %s is denied:\n%s\n%s", what, f, w.trace(f.Reverse()), manifests(s))
		}
	}
}

// checkInstalled compares every node with a new one that is told the same.
func (x *sequence) checkInstalled(s cluster.State, seed uint64) {
	fresh, err := newFleet(s.Nodes)
	if err != nil {
		x.t.Fatal(err)
	}
	defer closing(x.t, fresh.close)
	if err := fresh.apply(x.t.Context(), model.Changes{Resync: true, Deltas: x.state.all(seed + 1)}); err != nil {
		x.t.Fatal(err)
	}
	for _, name := range x.fleet.names() {
		got, err := x.fleet[name].inspect(x.t.Context())
		if err != nil {
			x.t.Fatal(err)
		}
		want, err := fresh[name].inspect(x.t.Context())
		if err != nil {
			x.t.Fatal(err)
		}
		if diff := got.diff(want); diff != "" {
			x.t.Fatalf("node %s is not what a new one is (-new +running):\n%s\n%s", name, diff, manifests(s))
		}
		if left := leftovers(x.fleet[name].Switch.ACLs()); left != nil {
			x.t.Fatalf("node %s has ACLs that nothing needs: %v", name, left)
		}
		for _, v := range x.fleet[name].told.Violations() {
			x.t.Errorf("node %s: the contract is violated: %s", name, v)
		}
	}
}

// checkAgain applies what is applied, in every way, and expects nothing to happen.
func (x *sequence) checkAgain(seed uint64) {
	before, told := x.fleet.imprints(), x.fleet.operations()
	ctx := x.t.Context()
	for what, do := range map[string]func() error{
		"as changes":    func() error { return x.fleet.apply(ctx, model.Changes{Deltas: x.state.all(seed)}) },
		"as a resync":   func() error { return x.fleet.apply(ctx, model.Changes{Resync: true, Deltas: x.state.all(seed)}) },
		"with a prompt": func() error { return x.fleet.prompt(ctx) },
	} {
		if err := do(); err != nil {
			x.t.Fatal(err)
		}
		if touched := x.fleet.touched(before); touched != "" {
			x.t.Fatalf("the same state %s is not nothing: %s", what, touched)
		}
		if now := x.fleet.operations(); now != told {
			x.t.Fatalf("the same state %s tells renderers %d things", what, now-told)
		}
	}
}

// checkRestart ends every agent and starts a new one over its dataplane.
func (x *sequence) checkRestart(seed uint64) {
	for _, name := range x.fleet.names() {
		w := x.fleet[name]
		before := imprintOf(w.Switch)
		want, err := tablesOf(w.ACL)
		if err != nil {
			x.t.Fatal(err)
		}
		got, err := w.restart(x.t.Context(), name, x.state, seed)
		if err != nil {
			x.t.Fatal(err)
		}
		if touched := before.touched(imprintOf(w.Switch)); touched != "" {
			x.t.Fatalf("node %s: a restart is not nothing: %s", name, touched)
		}
		if got != want {
			x.t.Fatalf("node %s has other tables after a restart:\n%s\nbefore:\n%s", name, got, want)
		}
	}
}
