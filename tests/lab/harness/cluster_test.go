package harness_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/lab/leaks"
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
	if err := f.Apply(t.Context(), objects.Changes(true, 1)); err != nil {
		t.Fatal(err)
	}
	return f, objects
}

// checked examines every invariant of a state that a cluster received.
func checked(t *testing.T, f *harness.Cluster, s cluster.State, objects harness.Objects, flows int) {
	t.Helper()
	asked := cluster.FlowSpace(s).Random(cluster.NewRand(1), flows)
	if err := f.Check(t.Context(), harness.State{Expected: f.Expect(s), Objects: objects, Flows: asked, All: true}); err != nil {
		t.Error(err)
	}
}

func TestClusterEnforcesState(t *testing.T) {
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		s := cluster.Random(5, cluster.Small())
		f, objects := start(t, kind, s)
		checked(t, f, s, objects, 500)
		if f.Examined.Denied == 0 || f.Examined.Again != 3 || f.Operations() == 0 {
			t.Errorf("%+v after %d operations", f.Examined, f.Operations())
		}
	})
}

func TestClusterRestartAdoptsInstalledRules(t *testing.T) {
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		s := cluster.Random(5, cluster.Small())
		f, objects := start(t, kind, s)
		name := f.Names()[0]
		n := f.Node(name)
		before := n.Backend.Operations()
		if err := f.Restart(name); err != nil {
			t.Fatal(err)
		}
		if err := n.Plugin.Apply(t.Context(), objects.Changes(true, 3)); err != nil {
			t.Fatal(err)
		}
		if ops := n.Backend.Operations() - before; ops != 0 {
			t.Errorf("a restart takes %d operations", ops)
		}
		checked(t, f, s, objects, 100)
	})
}

// TestCheckIgnoresUnnamedSets has no policy at all, so no rule names the set of
// the node's addresses.
func TestCheckIgnoresUnnamedSets(t *testing.T) {
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		s := cluster.Random(5, cluster.Small())
		s.Policies = nil
		f, objects := start(t, kind, s)
		checked(t, f, s, objects, 100)
	})
}

// lying is a backend whose renderer gives no reasons.
type lying struct{ backends.Backend }

func (l lying) Renderer() renderer.Renderer { return liar{l.Backend.Renderer()} }

type liar struct{ renderer.Renderer }

func (liar) Explain(api.Flow) []renderer.Decision { return []renderer.Decision{{Action: api.Deny}} }

func newLying(prompt func()) (backends.Backend, error) {
	s, err := backends.All[0].New(prompt)
	return lying{s}, err
}

// A change that the recorder of a node receives, but that the plugin did not send.
func render(t *testing.T, n *harness.Node, change func(*renderer.Changes)) {
	t.Helper()
	changes := renderer.Changes{}
	change(&changes)
	if err := n.Desired.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
}

// TestCheckNamesInvariant breaks what no fault of a dataplane can break; tests/spec/differential does
// that to all others.
func TestCheckNamesInvariant(t *testing.T) {
	s := cluster.Random(5, cluster.Small())
	sound := backends.All[0]
	for want, tt := range map[harness.Invariant]struct {
		kind backends.Kind
		harm func(*harness.Node)
	}{
		harness.Explained: {backends.Kind{Name: "lying", New: newLying}, nil},
		harness.Desired: {sound, func(n *harness.Node) {
			render(t, n, func(changes *renderer.Changes) {
				for pod, cfg := range n.Desired.Pods() {
					changes.Render(pod, renderer.PodConfig{IPs: cfg.IPs})
				}
			})
		}},
		harness.Contract: {sound, func(n *harness.Node) {
			render(t, n, func(changes *renderer.Changes) {
				changes.UpdateSet(api.NodeSet+1, nil, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
			})
		}},
	} {
		f, objects := start(t, tt.kind, s)
		if tt.harm != nil {
			for _, name := range f.Names() {
				tt.harm(f.Node(name))
			}
		}
		asked := cluster.FlowSpace(s).Random(cluster.NewRand(1), 500)
		err := f.Check(t.Context(), harness.State{Expected: f.Expect(s), Objects: objects, Flows: asked})
		if v := harness.ViolationOf(err); v == nil || v.Invariant != want {
			t.Errorf("want a violation of %s, found %v", want, err)
		}
	}
}
