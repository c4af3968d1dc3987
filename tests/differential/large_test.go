package differential

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/tests/cluster"
)

// large is big enough for the indexes that small clusters do without: a namespace
// with many groups of pods is searched by label, sets have many members, tables
// many entries. Sequences of this size are drawn by seeds: nobody reads them.
func large() cluster.Config {
	return cluster.Config{Namespaces: 2, Nodes: 3, Pods: 110, Policies: 16, IPv6: true, Odd: true}
}

const (
	largeSequences = 2
	largeSteps     = 30
	largeStride    = 10 // steps from one comparison to the next
)

// TestLargeSequences changes large clusters step by step.
func TestLargeSequences(t *testing.T) {
	t.Parallel()
	sequences := uint64(largeSequences)
	switch {
	case isLong():
		sequences *= 20
	case testing.Short():
		sequences = 1
	}
	for seed := range sequences {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			checkLarge(t, seed)
		})
	}
}

func checkLarge(t *testing.T, seed uint64) {
	steps := cluster.RandomSequence(seed, large(), largeSteps)
	x := start(t, steps[0].State)
	defer closing(t, x.close)
	for i, step := range steps {
		x.apply(step.State, asChanges, seed+uint64(i))
		x.checkVerdicts(step.State, false, seed+uint64(i))
		if i%largeStride == 0 {
			x.checkInstalled(step.State, seed+uint64(i))
			x.checkAgain(seed + uint64(i))
		}
	}
	x.checkRestart(seed)
}
