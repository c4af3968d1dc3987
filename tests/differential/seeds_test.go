package differential

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/harness"
	"github.com/sluice-net/sluice/tests/harness/backends"
)

const (
	slowSeeds    = 20
	seedPlayers  = 2
	strideOfSeed = 2 // as tests/soak, which repeats a seed and reduces what it finds
)

// TestPlaySeeds plays the sequences of the first seeds, every one in a world of its own.
func TestPlaySeeds(t *testing.T) {
	t.Parallel()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		limit := uint64(renderertest.Extent(40, 200, 20_000)) // tests/soak plays as many as one likes
		if kind.Slow && !renderertest.Whole() {
			limit = slowSeeds
		}
		if testing.Short() {
			limit /= 4
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

func playSeed(t *testing.T, kind backends.Kind, seed uint64) {
	o := Options{Kind: kind, Stride: strideOfSeed}
	c, _, err := PlaySeed(t.Context(), o, seed)
	if d := harness.ViolationOf(err); d != nil {
		c, d = Minimise(t.Context(), c, o, d, timeToMinimise)
		err = d
	}
	if err != nil {
		t.Errorf("seed %d: %s\n%s", seed, c, err)
	}
}
