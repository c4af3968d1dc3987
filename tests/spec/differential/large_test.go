package differential

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// large is big enough for the indexes that small clusters do without: a namespace with many groups
// of pods is searched by label, sets have many members, tables many entries. Sequences of this size
// are drawn by seeds, because they are too long to read.
func large() cluster.Config {
	return cluster.Config{Namespaces: 2, Nodes: 3, Pods: 110, Policies: 16, Admin: 8, IPv6: true, Odd: true, Audit: true}
}

const (
	largeSteps  = 30
	largeStride = 10 // steps from one comparison to the next
	largeFlows  = 80
)

// TestPlayLargeSequences changes large clusters step by step.
func TestPlayLargeSequences(t *testing.T) {
	t.Parallel()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		sequences := renderertest.Extent(1, 2, 40)
		if kind.Slow && !renderertest.Whole() {
			sequences = 1
		}
		for seed := range uint64(sequences) {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				t.Parallel()
				checkLarge(t, Options{Kind: kind, Stride: largeStride, Flows: largeFlows}, seed)
			})
		}
	})
}

func checkLarge(t *testing.T, o Options, seed uint64) {
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, m.Close)
	var before cluster.State
	for i, step := range cluster.RandomSequence(seed, large(), largeSteps) {
		e := Event{Action: step.Action, What: step.What, Edits: cluster.Between(before, step.State), Seed: seed + uint64(i)}
		if err := m.Do(t.Context(), e); err != nil {
			t.Fatalf("step %d, %s: %s", i, e, err)
		}
		before = step.State
	}
	if err := m.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}
