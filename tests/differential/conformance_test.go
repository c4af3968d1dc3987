package differential

import (
	"log/slog"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/tests/cluster"
	"github.com/sluice-net/sluice/tests/conformance"
)

// sourcePort is that of all probes: no policy can tell source ports apart.
const sourcePort = 49152

// TestPublicSuites replays recorded public suites on one running fabric each: what
// a step changes comes as changes, also from one case to the next.
func TestPublicSuites(t *testing.T) {
	t.Parallel()
	for _, file := range []string{conformance.Cyclonus, conformance.Kubernetes} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			suite := conformance.Need(t, file)
			r := replay{t: t, fabric: node.NewFabric(slog.New(slog.DiscardHandler), true), stride: 1}
			if testing.Short() {
				r.stride = 10
			}
			defer closing(t, r.fabric.Close)
			for _, c := range suite.Cases {
				for i, step := range c.Steps {
					r.step(c, i, step)
				}
			}
			t.Logf("%d cases, %d steps, %d changes, %d probes, %d mismatches", len(suite.Cases), r.steps, r.changes, r.probes, r.mismatches)
			if r.mismatches > 0 || r.probes < suite.Probes()/r.stride {
				t.Errorf("%d mismatches, %d of %d probes", r.mismatches, r.probes, suite.Probes())
			}
		})
	}
}

type replay struct {
	t      *testing.T
	fabric *node.Fabric
	state  objects
	stride int // of the probes that are asked

	steps, changes, probes, mismatches int
}

func (r *replay) step(c conformance.Case, i int, step conformance.Step) {
	next := mustReflect(r.t, cluster.State{Namespaces: step.Cluster.Namespaces, Pods: step.Cluster.Pods, Policies: step.NetworkPolicies})
	deltas := next.since(r.state, uint64(r.steps))
	if err := r.fabric.Apply(r.t.Context(), deltas); err != nil {
		r.t.Fatalf("case %s step %d: %v", c.ID, i, err)
	}
	r.state = next
	r.steps++
	r.changes += len(deltas)
	for n, p := range step.Probes {
		if n%r.stride == 0 {
			r.probe(c, i, p)
		}
	}
}

func (r *replay) probe(c conformance.Case, i int, p conformance.Probe) {
	r.probes++
	flow := p.Flow
	flow.SrcPort = sourcePort
	walk := r.fabric.Ask(flow)
	allow := p.Allow || p.Loopback() // which suites ask without meaning it
	if (walk.Verdict == api.Permit) == allow {
		return
	}
	if r.mismatches++; r.mismatches <= 10 {
		r.t.Errorf("case %s (%s) step %d, %s: %s (%s)", c.ID, c.Name, i, p, walk.Verdict, walk)
	}
}
