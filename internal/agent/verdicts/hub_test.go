package verdicts

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// discard is a logger that discards everything.
var discard = slog.New(slog.DiscardHandler)

// flood is a dataplane that reports packets all the time.
type flood struct{}

func (flood) Report(Wanted) error { return nil }

func (flood) Events(ctx context.Context, f func(Event)) error {
	for ctx.Err() == nil {
		f(Event{Action: api.Deny, Reason: ReasonPolicy})
	}
	return ctx.Err()
}

// hubOf returns a hub of a dataplane in a cluster without pods.
func hubOf(sources ...Source) *Hub { return New(configOf(sources...)) }

func configOf(sources ...Source) Config {
	return Config{Sources: sources, Log: discard, Snapshot: func(context.Context) (*policy.Snapshot, error) { return &policy.Snapshot{}, nil }}
}

// filterOf returns the filter of an action.
func filterOf(action string) filter {
	f, err := newFilter(view.Watch{Action: action})
	if err != nil {
		panic(err) // the action is wrong
	}
	return f
}

func TestHubEndsAnyNumberOfTimes(t *testing.T) {
	for name, watch := range map[string]bool{"while somebody watches": true, "while nobody does": false} {
		t.Run(name, func(t *testing.T) {
			s := hubOf(flood{})
			leave := func() {}
			if watch {
				var err error
				if _, _, leave, err = s.join(filterOf(view.WatchDenied)); err != nil {
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
			if _, _, _, err := s.join(filterOf(view.WatchDenied)); !errors.Is(err, errEnded) {
				t.Errorf("who comes after the end gets %v, want %v", err, errEnded)
			}
		})
	}
	hubOf().End()
}

// TestHubWatchersComeAndGoDuringReports: many subscribers join and leave at once while the agent
// ends. No reader is left, and no subscriber waits for ever.
func TestHubWatchersComeAndGoDuringReports(t *testing.T) {
	s := hubOf(flood{})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				_, _, leave, err := s.join(filterOf([]string{view.WatchDenied, view.WatchAll}[i%2]))
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
