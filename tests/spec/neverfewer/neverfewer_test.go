package neverfewer

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

var (
	seedCount = flag.Uint64("seeds", 0, "how many seeds are played; 0 is the usual number")
	seedFirst = flag.Uint64("first-seed", 1, "the first seed; the next ones count up")
)

// fewestJudged is how many cases are enough that everything happens.
const fewestJudged = 40

func TestMain(m *testing.M) { leaks.Main(m) }

// TestNeverFewer plays random cases on every renderer.
func TestNeverFewer(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			count := *seedCount
			switch {
			case count > 0:
			case testing.Short():
				count = fewestJudged / 4
			default:
				count = uint64(renderertest.Extent(fewestJudged, 300, 8000))
			}
			var sum counts
			for seed := *seedFirst; seed < *seedFirst+count; seed++ {
				c := draw(seed, k)
				n, v, err := c.run(t.Context(), k)
				sum.add(n)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if v != nil {
					small, v := minimise(t.Context(), c, k, v)
					t.Errorf("seed %d: %s\n%v\nrepeat it: go test -run 'NeverFewer/%s$' ./tests/spec/neverfewer -args -first-seed %d -seeds 1", seed, small, v, k.name, seed)
					break
				}
			}
			t.Logf("%d seeds from %d on: %+v", count, *seedFirst, sum)
			if !t.Failed() && count >= fewestJudged && (sum.passes == 0 || sum.drops == 0 || sum.failures == 0 || sum.stops == 0) {
				t.Errorf("too little was examined: %+v", sum)
			}
		})
	}
}

// timeToMinimise bounds how long a case is made smaller.
const timeToMinimise = 30 * time.Second

// minimise leaves out of a case what the violation of a layer does not need.
func minimise(ctx context.Context, c Case, k kind, v *violation) (Case, *violation) {
	ctx, cancel := context.WithTimeout(ctx, timeToMinimise)
	defer cancel()
	c.Steps = c.Steps[:v.step+1]
	for found := true; found && ctx.Err() == nil; {
		found = false
		for _, s := range smaller(c) {
			if ctx.Err() != nil {
				break
			}
			if _, w, err := s.run(ctx, k); err == nil && w != nil && w.where == v.where && ctx.Err() == nil {
				c, v, found = s, w, true
				c.Steps = c.Steps[:v.step+1]
				break
			}
		}
	}
	return c, v
}
