package preview

import (
	"testing"

	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/described"
)

// TestJudgeSaysWhatTheSpecificationSays about every flow on the edges of random clusters.
func TestJudgeSaysWhatTheSpecificationSays(t *testing.T) {
	seeds, allowed, asked := uint64(16), 0, 0
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		cfg := []cluster.Config{cluster.Small(), cluster.SmallWithSharedAddresses(), cluster.SmallWithAudit()}[seed%3]
		if seed%4 > 0 {
			cfg.Admin = 0
		}
		m := described.Of(cluster.Random(seed, cfg))
		judge, spec := Judge(m), oracle.New(m.State())
		for _, f := range cluster.Flows(m.State()) {
			want := spec.Allowed(f)
			if asked++; want {
				allowed++
			}
			if judge(f) != want {
				t.Fatalf("seed %d: %s is allowed %t, want %t", seed, f, !want, want)
			}
		}
	}
	if !testing.Short() && (allowed < 1000 || asked-allowed < 1000) {
		t.Errorf("%d flows, %d allowed: too few to mean anything", asked, allowed)
	}
}
