package reflect

import (
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/memstore"
)

// BenchmarkReflector measures the cost of state that is there already.
func BenchmarkReflector(b *testing.B) {
	const n = 10_000
	s := memstore.New()
	r := NewReflector(s, memstore.Prefix, discard())
	msgs := manyPods(n)
	if _, err := r.Replace(b.Context(), msgs); err != nil {
		b.Fatal(err)
	}
	check := func(b *testing.B, stats Stats, err error, want int) {
		if err != nil || stats != (Stats{Unchanged: want}) {
			b.Fatal(stats, err)
		}
	}
	b.Run("replace", func(b *testing.B) {
		for b.Loop() {
			stats, err := r.Replace(b.Context(), msgs)
			check(b, stats, err, n)
		}
	})
	b.Run("encode one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := model.Encode(msgs[0]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
