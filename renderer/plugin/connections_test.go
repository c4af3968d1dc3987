package plugin

import (
	"errors"
	"testing"

	"github.com/sluice-net/sluice/renderer"
)

// TestFlowsIsPowerOfTwo: the program takes the index of a bucket from bits of a hash.
func TestFlowsIsPowerOfTwo(t *testing.T) {
	for places, want := range map[uint32]int{0: 0, 1: 4, 4: 4, 5: 8, 64: 64, 65: 128, 262144: 262144, 1 << 23: 1 << 23} {
		if got := Flows(places); got != want {
			t.Errorf("%d places are %d, want %d", places, got, want)
		}
	}
}

// TestTableIsFullUntilMorePlacesAreFree checks the hysteresis between the two limits.
func TestTableIsFullUntilMorePlacesAreFree(t *testing.T) {
	var f fullness
	for i, x := range []struct {
		used uint64
		full bool
	}{{0, false}, {949, false}, {950, true}, {900, true}, {899, false}, {949, false}, {1000, true}} {
		f.update(renderer.Sessions{Used: x.used, Max: 1000})
		if err := f.err(); errors.Is(err, renderer.ErrConnectionsFull) != x.full {
			t.Errorf("step %d: with %d of 1000 it says %v", i, x.used, err)
		}
	}
}
