package harness_test

import (
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/explain/reason"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
	"github.com/sluice-net/sluice/tests/harness"
	"github.com/sluice-net/sluice/tests/harness/backends"
	"github.com/sluice-net/sluice/tests/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func start(t *testing.T, kind backends.Kind, s cluster.State) (*harness.Cluster, harness.Objects) {
	t.Helper()
	f, err := harness.New(kind, harness.NamesOf(s.Nodes), harness.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	objects, err := harness.Reflect(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), model.Changes{Resync: true, Deltas: objects.All(1)}); err != nil {
		t.Fatal(err)
	}
	return f, objects
}

func TestAFleetEnforcesAState(t *testing.T) {
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		s := cluster.Random(5, cluster.Small())
		f, objects := start(t, kind, s)
		o := oracle.New(s)
		denied := 0
		for _, flow := range cluster.FlowSpace(s).Random(cluster.NewRand(1), 500) {
			if right := o.Allowed(flow); f.Does(flow, right) != right {
				t.Fatalf("%s: %s%s", flow, f.Trace(flow), reason.Of(o.Verdict(flow)))
			}
			if !o.Allowed(flow) {
				denied++
			}
		}
		if denied == 0 || f.Operations() == 0 {
			t.Errorf("%d flows are denied after %d operations", denied, f.Operations())
		}
		fresh, _ := start(t, kind, s)
		if diff, err := f.Compare(t.Context(), fresh); diff != "" || err != nil {
			t.Errorf("%s %v", diff, err)
		}
		before := f.Operations()
		for _, resync := range []bool{true, false} {
			if err := f.Apply(t.Context(), model.Changes{Resync: resync, Deltas: objects.All(2)}); err != nil {
				t.Fatal(err)
			}
		}
		if n := f.Operations() - before; n != 0 {
			t.Errorf("the same state takes %d operations", n)
		}
	})
}

func TestARestartedNodeAdoptsWhatIsThere(t *testing.T) {
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		s := cluster.Random(5, cluster.Small())
		f, objects := start(t, kind, s)
		name := f.Names()[0]
		n := f.Node(name)
		before := n.Backend.Operations()
		if err := f.Restart(name); err != nil {
			t.Fatal(err)
		}
		if err := n.Plugin.Apply(t.Context(), model.Changes{Resync: true, Deltas: objects.All(3)}); err != nil {
			t.Fatal(err)
		}
		if ops := n.Backend.Operations() - before; ops != 0 {
			t.Errorf("a restart takes %d operations", ops)
		}
		fresh, _ := start(t, kind, s)
		if diff, err := f.Compare(t.Context(), fresh); diff != "" || err != nil {
			t.Errorf("%s %v", diff, err)
		}
	})
}

// TestSetsThatNoRuleNamesDoNotDangle has no policy at all, so no rule names the set of
// the node's addresses.
func TestSetsThatNoRuleNamesDoNotDangle(t *testing.T) {
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		s := cluster.Random(5, cluster.Small())
		s.Policies = nil
		f, _ := start(t, kind, s)
		for _, name := range f.Names() {
			if d := f.Node(name).Dangling(); d != nil {
				t.Errorf("node %s: %v", name, d)
			}
		}
	})
}
