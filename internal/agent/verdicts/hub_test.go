package verdicts

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// discard is a logger that discards everything.
var discard = slog.New(slog.DiscardHandler)

// flood is a kernel that reports packets all the time.
type flood struct{}

func (flood) SetEventFilter(xdp.EventFilter) error { return nil }

func (flood) Explained(xdp.Event) (api.PodID, renderer.Decision) {
	return api.PodID{}, renderer.Decision{}
}

func (flood) Events(ctx context.Context, f func(xdp.Event)) error {
	for ctx.Err() == nil {
		f(xdp.Event{Reason: xdp.ReasonPolicy})
	}
	return ctx.Err()
}

func hubOf(kernel Source) *Hub {
	return New(kernel, xdp.EventFilter{PerSecond: 1}, func(context.Context, xdp.Event, api.PodID, renderer.Decision) view.PacketVerdict {
		return view.PacketVerdict{}
	}, discard)
}

func TestHubEndsAnyNumberOfTimes(t *testing.T) {
	for name, watch := range map[string]bool{"while somebody watches": true, "while nobody does": false} {
		t.Run(name, func(t *testing.T) {
			s := hubOf(flood{})
			leave := func() {}
			if watch {
				var err error
				if _, leave, err = s.join(false); err != nil {
					t.Fatal(err)
				}
			}
			var ends sync.WaitGroup
			for range 4 {
				ends.Go(s.End)
			}
			ends.Wait()
			leave()
			s.End()
			if _, _, err := s.join(false); !errors.Is(err, errEnded) {
				t.Errorf("who comes after the end gets %v, want %v", err, errEnded)
			}
		})
	}
	New(nil, xdp.EventFilter{}, nil, discard).End()
}

// TestHubWatchersComeAndGoDuringReports: many subscribers join and leave at once while the agent
// ends. No reader is left, and no subscriber waits for ever.
func TestHubWatchersComeAndGoDuringReports(t *testing.T) {
	s := hubOf(flood{})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				_, leave, err := s.join(i%2 == 0)
				if err != nil {
					if !errors.Is(err, errEnded) {
						t.Errorf("join: %v", err)
					}
					return
				}
				leave()
			}
			if i == 0 {
				s.End()
			}
		})
	}
	all.Wait()
	s.End()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		t.Error("a reader is left")
	}
}
