package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/cockroachdb/datadriven"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// worldOfB1 is the file with the world of bug B1.
const worldOfB1 = "bugs/B01-an-isolated-pod-without-a-table.txt"

// stateOf runs a file and returns the state that it ends with.
func stateOf(t *testing.T, file string, kind backends.Kind) cluster.State {
	t.Helper()
	r := &runner{kind: kind, options: Options{Flows: 1}}
	datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
		out, err := r.run(t.Context(), command{TestData: d})
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		return out
	})
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	return r.world.state
}

// started starts a subject and ends it with the test.
func started(t *testing.T, kind backends.Kind, s cluster.State) *subject {
	t.Helper()
	out := &subject{kind: kind, flows: 100}
	if err := out.start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := out.close(); err != nil {
			t.Error(err)
		}
	})
	return out
}

func often(kind backends.Kind, n int) int {
	if renderertest.Few() || kind.Slow {
		return n / 20
	}
	return n
}

// TestContiv33TablesDoNotDependOnOrder sends the world of bug B1 in 1000 orders, at once and
// object by object.
func TestContiv33TablesDoNotDependOnOrder(t *testing.T) {
	t.Parallel()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		s := started(t, kind, stateOf(t, worldOfB1, kind))
		want := inspected(t, s.running)
		world := netip.MustParseAddr("8.8.8.8")
		for seed := range uint64(often(kind, 1000)) {
			f, err := harness.New(kind, []string{"n1"}, harness.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := tellInOrder(t.Context(), f, s.objects.All(seed), seed%2 == 0); err != nil {
				t.Fatal(err)
			}
			if diff := inspected(t, f).Diff(want); diff != "" {
				t.Fatalf("seed %d: other tables (-first +this):\n%s", seed, diff)
			}
			for _, pod := range []string{"10.1.1.1", "10.1.1.2"} {
				if f.Allowed(api.Flow{Src: world, Dst: netip.MustParseAddr(pod), Protocol: api.TCP, SrcPort: sourcePort, DstPort: 80}) {
					t.Fatalf("seed %d: %s is open", seed, pod)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func tellInOrder(ctx context.Context, f *harness.Cluster, deltas []model.Delta, atOnce bool) error {
	if atOnce {
		return f.Apply(ctx, model.Changes{Resync: true, Deltas: deltas})
	}
	if err := f.Apply(ctx, model.Changes{Resync: true}); err != nil {
		return err
	}
	for _, d := range deltas {
		if err := f.Apply(ctx, model.Changes{Deltas: []model.Delta{d}}); err != nil {
			return err
		}
	}
	return nil
}

func inspected(t *testing.T, f *harness.Cluster) harness.Installed {
	t.Helper()
	out, err := f.Node(f.Names()[0]).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestContiv35UpdatesLeaveNothing changes one policy for two pods, which share
// one table all the time, and then takes it away.
func TestContiv35UpdatesLeaveNothing(t *testing.T) {
	t.Parallel()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		w := newWorld()
		lines, err := parseLines("node n1 192.168.0.1\nnamespace shop\npod shop/a 10.1.1.1 app=a\npod shop/b 10.1.1.2 app=a")
		if err == nil {
			err = w.change(lines)
		}
		if err != nil {
			t.Fatal(err)
		}
		s := started(t, kind, w.state)
		empty := inspected(t, s.running)
		for i := range often(kind, 10000) {
			next := w.state
			next.Policies = []*networkingv1.NetworkPolicy{updated(i)}
			if err := s.apply(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			stack, ok := s.running.Node("n1").Backend.(backends.Tabled)
			if ok && (len(stack.Tables()) != 1 || len(stack.Tables()[0].Pods) != 2) {
				t.Fatalf("after %d updates: %v", i+1, stack.Tables())
			}
		}
		if err := s.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.apply(t.Context(), w.state); err != nil {
			t.Fatal(err)
		}
		if diff := inspected(t, s.running).Diff(empty); diff != "" {
			t.Errorf("something is left: %s", diff)
		}
		if err := s.check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// updated is the policy of an update: other ports every time.
func updated(i int) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{}
	np.Namespace, np.Name = "shop", "a"
	first, last := intstr.FromInt32(int32(1+i)), int32(1+i+i%7)
	np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &first, EndPort: &last}}}}
	return np
}

// TestContiv36AgentConvergesFromStaleState replaces agents over dataplanes that hold one
// random state, and sends them another one.
func TestContiv36AgentConvergesFromStaleState(t *testing.T) {
	t.Parallel()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		for seed := range uint64(often(kind, 60)) {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				s := started(t, kind, cluster.Random(3*seed, cluster.Small()))
				for i, name := range s.running.Names() {
					if _, err := s.restart(t.Context(), name, cluster.Random(3*seed+1+uint64(i%2), cluster.Small())); err != nil {
						t.Fatal(err)
					}
					if err := s.check(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	})
}

func TestFlowLimitCountsOwnFlows(t *testing.T) {
	for seed := range uint64(20) {
		space := cluster.FlowSpace(cluster.Random(seed, cluster.Small()))
		if got, want := space.Size(), len(slices.Collect(space.All())); got != want {
			t.Errorf("seed %d: the size is %d, but there are %d flows", seed, got, want)
		}
	}
}
