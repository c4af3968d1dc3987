package replay

import (
	"testing"

	"github.com/sluice-net/sluice/tests/spec/conformance"
)

// share is how much is asked of a kind: with the addresses that the suite gives, and with others.
func share(k Kind) (given, moved Options) {
	if k.Slow || testing.Short() {
		return Options{Stride: 13, Resync: 32, ResyncStride: 23}, Options{Stride: 31, Resync: 64, ResyncStride: 23}
	}
	return Options{Stride: 3, Resync: 8, ResyncStride: 7}, Options{Stride: 13, Resync: 32, ResyncStride: 7}
}

// TestSuitesAreReplayed replays every case of the public suites on every subject. A part of
// the probes is asked in every step; "make conformance" asks all.
func TestSuitesAreReplayed(t *testing.T) {
	t.Parallel()
	for _, file := range conformance.Policies {
		suite := conformance.Need(t, file)
		for _, kind := range Chosen(t) {
			t.Run(file+" "+kind.Name, func(t *testing.T) {
				t.Parallel()
				kind := kind.Need(t)
				given, moved := share(kind)
				for i, a := range conformance.Addressings {
					options := moved
					if i == 0 {
						options = given
					}
					r, err := Run(t.Context(), file, suite, a, kind, options)
					if err != nil {
						t.Fatal(err)
					}
					t.Log(r.Summary())
					for _, m := range r.Reports {
						t.Error(m)
					}
					if r.Mismatches > 0 || r.Cases != len(suite.Cases) || len(r.Skipped) > 0 {
						t.Errorf("%d mismatches, %d of %d cases, skipped %v", r.Mismatches, r.Cases, len(suite.Cases), r.Skipped)
					}
				}
			})
		}
	}
}
