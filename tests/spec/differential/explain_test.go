package differential

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

const flowsExplained = 600

// TestPlayExplanations asks the renderers of all nodes what they do with a flow and why,
// and compares the verdict and the policies that are named with the oracle's.
func TestPlayExplanations(t *testing.T) {
	t.Parallel()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		t.Parallel()
		explained := 0
		rapid.Check(t, func(t *rapid.T) {
			d := draw(t, kind, World{Config: cluster.SmallWithAudit()})
			defer closing(t, d.machine.Close)
			f := d.machine.fleet
			e := f.Expect(d.machine.State())
			for flow := range flowsOf(d.machine.State(), flowsExplained, d.seed) {
				if err := e.Explained(f, flow); err != nil {
					t.Fatalf("%s\n%s", err, harness.Manifests(d.machine.State()))
				}
			}
			explained += f.Examined.Explained
		})
		if kind.Name == "acl" && explained == 0 {
			t.Error("nothing was explained")
		}
	})
}
