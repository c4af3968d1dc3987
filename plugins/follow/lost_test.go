package follow_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/bindings"
	"github.com/sluice-net/sluice/plugins/follow"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// state is what a store has at one moment: pods by name.
type state struct {
	pods     []string
	revision int64
}

// store has a sequence of states; each but the last breaks the watch after a second.
type store struct {
	states  []state
	entryOf func(pod string) model.Entry
	lists   int
}

func (s *store) List(context.Context, string) (entries []model.Entry, revision int64, err error) {
	now := s.states[min(s.lists, len(s.states)-1)]
	s.lists++
	for _, pod := range now.pods {
		entries = append(entries, s.entryOf(pod))
	}
	return entries, now.revision, nil
}

func (s *store) Watch(ctx context.Context, _ string, _ int64, _ func([]model.Entry, int64)) error {
	broken := time.After(time.Second)
	if s.lists >= len(s.states) {
		broken = nil
	}
	select {
	case <-broken:
		return errors.New("the watch broke")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watcher is one follower of a store: it runs, and knows pods.
type watcher struct {
	entryOf func(t *testing.T, pod string) model.Entry
	follow  func(t *testing.T, s follow.Store, grace time.Duration) (run func(context.Context) error, known func() []string)
}

// watchers are all whose state may not go with that of a store.
var watchers = map[string]watcher{
	"bindings": {
		entryOf: func(_ *testing.T, pod string) model.Entry {
			return model.Entry{Key: model.InterfaceKey(model.DefaultPrefix, "n1", "shop", pod, "tap-"+pod), Value: []byte{}}
		},
		follow: func(_ *testing.T, s follow.Store, grace time.Duration) (func(context.Context) error, func() []string) {
			w := bindings.New(bindings.Config{Store: s, Node: "n1", Log: quiet, Grace: grace})
			return w.Run, func() (known []string) {
				for _, pod := range []string{"a", "b", "c"} {
					if len(w.InterfacesOf(api.PodID{Namespace: "shop", Name: pod})) > 0 {
						known = append(known, pod)
					}
				}
				return known
			}
		},
	},
}

// TestRunKeepsStateWhenStoreLosesData: all followers treat an emptied or restored
// store alike.
func TestRunKeepsStateWhenStoreLosesData(t *testing.T) {
	full := state{[]string{"a", "b"}, 100}
	for name, c := range map[string]struct {
		grace time.Duration
		then  []state
		known map[time.Duration][]string // at times after the start
	}{
		"set back": {
			0, []state{{[]string{"a"}, 7}},
			map[time.Duration][]string{10 * time.Second: {"a", "b"}, 59 * time.Second: {"a", "b"}, 2 * time.Minute: {"a"}},
		},
		"set back, then broken again": {
			0, []state{{[]string{"a"}, 7}, {[]string{"c"}, 8}},
			map[time.Duration][]string{10 * time.Second: {"a", "b", "c"}, 2 * time.Minute: {"c"}},
		},
		"wiped": {
			0, []state{{nil, 7}},
			map[time.Duration][]string{10 * time.Second: {"a", "b"}, 2 * time.Minute: {"a", "b"}, time.Hour: {"a", "b"}},
		},
		"wiped, and written by others beyond its old revision": {
			0, []state{{nil, 200}},
			map[time.Duration][]string{10 * time.Second: {"a", "b"}, 2 * time.Minute: {"a", "b"}, time.Hour: {"a", "b"}},
		},
		"wiped, and filled in the end": {
			0, []state{{nil, 7}, {[]string{"c"}, 20}},
			map[time.Duration][]string{1500 * time.Millisecond: {"a", "b"}, 10 * time.Second: {"a", "b", "c"}, 2 * time.Minute: {"c"}},
		},
		"newer, and without some": {
			0, []state{{[]string{"b"}, 101}},
			map[time.Duration][]string{10 * time.Second: {"b"}},
		},
		"no grace period": {
			-1, []state{{nil, 7}},
			map[time.Duration][]string{10 * time.Second: nil},
		},
	} {
		for user, w := range watchers {
			t.Run(user+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &store{states: append([]state{full}, c.then...), entryOf: func(pod string) model.Entry { return w.entryOf(t, pod) }}
					run, known := w.follow(t, s, c.grace)
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- run(ctx) }()
					begin := time.Now()
					for _, at := range slices.Sorted(maps.Keys(c.known)) {
						time.Sleep(time.Until(begin.Add(at)))
						synctest.Wait()
						if got := known(); !slices.Equal(got, c.known[at]) {
							t.Errorf("after %v %v are known, want %v", at, got, c.known[at])
						}
					}
					cancel()
					if err := <-ended; !errors.Is(err, context.Canceled) {
						t.Errorf("run: %v", err)
					}
				})
			})
		}
	}
}
