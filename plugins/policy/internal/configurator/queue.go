package configurator

import (
	"time"

	"github.com/sluice-net/sluice/renderer"
)

// queue is what came for a renderer while its Apply went on, until the next one takes it.
type queue struct {
	since   time.Time // when the oldest of it came
	changes renderer.Merger
}

// earliest returns the earlier one of two times; a zero time is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
