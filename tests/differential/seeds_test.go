package differential

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/tests/stacks"
)

const (
	seeds        = 200 // of each kind; tests/soak plays thousands
	shortSeeds   = 40
	dearSeeds    = 20
	longSeeds    = 20_000
	seedPlayers  = 2
	strideOfSeed = 2 // as tests/soak, which repeats a seed and reduces what it finds
)

// TestSeeds plays the sequences of the first seeds, every one in a world of its own.
func TestSeeds(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, kind stacks.Kind) {
		limit := uint64(seeds)
		switch {
		case isLong():
			limit = longSeeds
		case kind.Dear:
			limit = dearSeeds
		case testing.Short():
			limit = shortSeeds
		}
		var next atomic.Uint64
		var players sync.WaitGroup
		for range seedPlayers {
			players.Go(func() {
				for seed := next.Add(1); seed <= limit && !t.Failed(); seed = next.Add(1) {
					playSeed(t, kind, seed)
				}
			})
		}
		players.Wait()
	})
}

func playSeed(t *testing.T, kind stacks.Kind, seed uint64) {
	o := Options{Kind: kind, Stride: strideOfSeed}
	c, _, err := PlaySeed(t.Context(), o, seed)
	if d := divergenceOf(err); d != nil {
		c, d = Minimise(t.Context(), c, o, d, timeToMinimise)
		err = d
	}
	if err != nil {
		t.Errorf("seed %d: %s\n%s", seed, c, err)
	}
}
