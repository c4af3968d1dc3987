package differential

import (
	"flag"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// "make soak" sets these.
var (
	seedCount   = flag.Uint64("seeds", 0, "how many seeds are played; 0 is the usual number")
	seedFirst   = flag.Uint64("first-seed", 1, "the first seed; the next ones count up")
	seedPlayers = flag.Int("players", 2, "how many seeds are played at the same time on each backend")
)

const (
	slowSeeds    = 20
	fewestJudged = 40 // seeds of which the sums are known
	strideOfSeed = 2
	seedsPerLine = 1000
)

// seedsOf returns how many seeds are played on a kind of backend.
func seedsOf(kind backends.Kind) uint64 {
	switch {
	case *seedCount > 0:
		return *seedCount
	case kind.Slow && !renderertest.Whole():
		return slowSeeds
	case testing.Short():
		return fewestJudged / 4
	}
	return uint64(renderertest.Extent(fewestJudged, 200, 20_000))
}

// players play seeds of one kind of backend.
type players struct {
	kind  backends.Kind
	count uint64

	mu   sync.Mutex
	next uint64 // seeds that were given out
	sum  Counts
}

// TestPlaySeeds plays the sequences of the first seeds, every one in a world of its own, and makes
// sure that they are about something. What diverges is reduced.
func TestPlaySeeds(t *testing.T) {
	t.Parallel()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		p := &players{kind: kind, count: seedsOf(kind)}
		var group sync.WaitGroup
		for range *seedPlayers {
			group.Go(func() {
				for seed, ok := p.draw(t); ok; seed, ok = p.draw(t) {
					p.play(t, seed)
				}
			})
		}
		group.Wait()
		t.Logf("seeds from %d on: %+v", *seedFirst, p.sum)
		if !t.Failed() && p.count >= fewestJudged {
			judge(t, p.sum)
		}
	})
}

// draw returns the next seed, until all are played or one has failed.
func (p *players) draw(t *testing.T) (seed uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.count || t.Failed() {
		return 0, false
	}
	if p.next > 0 && p.next%seedsPerLine == 0 {
		t.Logf("%d of %d seeds", p.next, p.count)
	}
	p.next++
	return *seedFirst + p.next - 1, true
}

func (p *players) play(t *testing.T, seed uint64) {
	o := Options{Kind: p.kind, Stride: strideOfSeed}
	c, counts, err := PlaySeed(t.Context(), o, seed)
	p.mu.Lock()
	p.sum.Add(counts)
	p.mu.Unlock()
	if d := harness.ViolationOf(err); d != nil {
		c, d = Minimise(t.Context(), c, o, d, timeToMinimise)
		err = d
	}
	if err != nil {
		t.Errorf("seed %d: %s\n%s\nrepeat it: SLUICE_STACK=%s go test -run PlaySeeds ./tests/spec/differential -args -first-seed %d -seeds 1",
			seed, c, err, p.kind.Name, seed)
	}
}

// judge makes sure that every action happens often enough, and that both verdicts do.
func judge(t *testing.T, c Counts) {
	t.Helper()
	if c.Events < 8*c.Sequences {
		t.Errorf("%d sequences have %d events", c.Sequences, c.Events)
	}
	for _, name := range Actions() {
		if c.Actions[name] < c.Sequences/20 {
			t.Errorf("%s happened %d times only", name, c.Actions[name])
		}
	}
	if share := float64(c.Denied) / float64(c.Verdicts); share < 0.15 || share > 0.85 {
		t.Errorf("%.2f of the verdicts are denials", share)
	}
	if c.Failures < c.Sequences/10 || c.Between < c.Sequences || c.Fresh < 5*c.Sequences || c.Restarts < c.Sequences/2 || c.Again < 3*c.Events {
		t.Errorf("too little was checked: %+v", c)
	}
}
