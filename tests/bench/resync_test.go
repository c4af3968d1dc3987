package bench

import (
	"testing"
)

// BenchmarkResync measures a whole state from decoded objects to the end of the
// first commit, by a plugin that has just started. For the vswitch that includes
// making the interfaces of the pods.
func BenchmarkResync(b *testing.B) {
	for _, s := range append(shapes, shape{pods: 2000, policies: 1000, local: 110, both: true}, shape{pods: 2000, policies: 1000, local: 1000, both: true}) {
		for _, k := range subjects {
			b.Run(s.String()+"/"+string(k), func(b *testing.B) {
				in := s.world().resync(b)
				x := firstStates(b, k, node0, in)
				x.reportSize(b)
				x.check(b, s.world())
				x.close()
			})
		}
	}
}

// BenchmarkEqualResync measures a resync of a state that is known already. It must
// change nothing below.
func BenchmarkEqualResync(b *testing.B) {
	for _, s := range shapes {
		for _, k := range subjects {
			b.Run(s.String()+"/"+string(k), func(b *testing.B) {
				in := s.world().resync(b)
				x := running(b, k)
				x.apply(in)
				before := x.operations()
				m := newMeter(b)
				m.reset()
				for b.Loop() {
					x.apply(in)
				}
				m.stop()
				m.report(b.N)
				if n := x.operations() - before; n > 0 {
					b.Errorf("an equal state caused %d operations", n)
				}
				x.check(b, s.world())
			})
		}
	}
}
