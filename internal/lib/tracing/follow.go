package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-net/sluice/plugins/policy"
)

func random() (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1) // never 0, which is no ID
	return id
}

// maxOpen bounds the changes of which it is waited that they are enforced; older ones are left out.
const maxOpen = 1024

// Follow sends a span for every change that a node receives, once it enforces it, until ctx ends.
// Watch is that of the policy plugin. The first state is none.
func (t *Tracer) Follow(ctx context.Context, node string, cluster func() string, watch func() (policy.Status, <-chan struct{})) error {
	type received struct {
		revision int64
		at       time.Time
	}
	s, changed := watch()
	last, open := s.Seen, []received(nil)
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		s, changed = watch()
		if s.Seen < last {
			open = nil // of a store that began anew
		}
		if s.Seen > last && last > 0 {
			open = append(open, received{s.Seen, time.Now()})
			open = open[max(0, len(open)-maxOpen):]
		}
		last = s.Seen
		for len(open) > 0 && open[0].revision <= s.Revision {
			t.Enforced(Change{cluster(), open[0].revision}, open[0].at, node)
			open = open[1:]
		}
	}
}
