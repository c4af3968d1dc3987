package differential

import (
	"log/slog"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// TestPlaySequencesOnSessionRules asks the session rules of clusters whose pods are applications on
// the host dataplane about connections. Where a rule names more ports than they can, they may deny
// what it permits, and nothing else.
func TestPlaySequencesOnSessionRules(t *testing.T) {
	t.Parallel()
	w := worlds["two nodes"]
	rapid.Check(t, func(t *rapid.T) {
		f := node.NewHostStackFabric(slog.New(slog.DiscardHandler), !w.DenyNode)
		defer closing(t, f.Close)
		var old harness.Objects
		seed := rapid.Uint64().Draw(t, "seed")
		for i, step := range cluster.GenSequence(w.Config, stepsOfFabric).Draw(t, "sequence") {
			now := mustReflect(t, step.State)
			if err := f.Apply(t.Context(), now.Since(old, seed+uint64(i))); err != nil {
				t.Fatal(err)
			}
			old = now
			o, closed := oracle.New(step.State, oracle.AllowNodeTraffic(!w.DenyNode)), len(f.Unenforced()) > 0
			attempted := func(flow api.Flow) bool {
				if !(&backends.Session{}).Sees(flow) {
					return o.Allowed(flow) // not asked
				}
				return f.Ask(flow).Verdict == api.Permit || closed && o.Allowed(flow)
			}
			if flow, differ := difference(flowsOf(step.State, flowsPerStep, seed+uint64(i)), o.Allowed, attempted); differ {
				t.Fatalf("after %q: %s", step.What, disagreement(flow, o, f.Ask(flow).String(), step.State))
			}
		}
	})
}
