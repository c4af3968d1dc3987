package datasync_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/datasync"
)

// script is a store that answers as it is told, to tell what happens when on a
// clock that is not real. Everything about what etcd does is tested with etcd.
type script struct {
	list  func() ([]model.Entry, int64, error)
	watch func(ctx context.Context) error
}

func (s *script) List(context.Context, string) ([]model.Entry, int64, error) { return s.list() }

func (s *script) Watch(ctx context.Context, _ string, _ int64, _ func([]model.Entry, int64)) error {
	return s.watch(ctx)
}

func waits(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestAttemptsBackOffAndStartOverAfterAGoodTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		s := &script{
			list: func() ([]model.Entry, int64, error) {
				at = append(at, time.Since(begin))
				if len(at) <= 10 {
					return nil, 0, errors.New("no")
				}
				return nil, 1, nil
			},
			watch: func(context.Context) error {
				if len(at) > 11 {
					return errors.New("again")
				}
				<-time.After(time.Hour)
				return errors.New("cut")
			},
		}
		w := datasync.New(datasync.Config{Store: s, Log: quiet})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Minute)
		defer cancel()
		if err := w.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("run: %v", err)
		}
		want := 50 * time.Millisecond
		for i := 1; i < len(at) && at[i] < time.Hour+30*time.Second; i++ {
			gap := at[i] - at[i-1]
			if i == 11 {
				gap, want = gap-time.Hour, 50*time.Millisecond // started over
			}
			if gap < want/2 || gap > want {
				t.Errorf("attempt %d came after %v, want half to all of %v", i+1, gap, want)
			}
			want = min(2*want, 5*time.Second)
		}
		if len(at) < 15 {
			t.Errorf("only %d attempts", len(at))
		}
	})
}

func TestTheTimeOfGrace(t *testing.T) {
	two := entriesOf(t, pods(2, "n1"))
	type read struct {
		entries  []model.Entry
		revision int64
	}
	for name, c := range map[string]struct {
		grace time.Duration
		reads []read // one after the other; the last one is for ever
		after map[time.Duration]int
	}{
		"an older store ends it with what it has": {
			0, []read{{two, 100}, {two[:1], 7}},
			map[time.Duration]int{time.Second: 2, 59 * time.Second: 2, 61 * time.Second: 1},
		},
		"an empty store never ends it": {
			0, []read{{two, 100}, {nil, 200}},
			map[time.Duration]int{time.Second: 2, 61 * time.Second: 2, time.Hour: 2},
		},
		"a newer store has what it has": {
			0, []read{{two, 100}, {two[1:], 101}},
			map[time.Duration]int{time.Second: 1},
		},
		"there is none when it is not wanted": {
			-1, []read{{two, 100}, {nil, 2}},
			map[time.Duration]int{time.Second: 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				s := &script{
					list: func() ([]model.Entry, int64, error) {
						r := c.reads[min(n, len(c.reads)-1)]
						n++
						return r.entries, r.revision, nil
					},
					watch: func(ctx context.Context) error {
						if n < len(c.reads) {
							return errors.New("cut")
						}
						return waits(ctx)
					},
				}
				for at, objects := range c.after {
					n = 0
					w := datasync.New(datasync.Config{Store: s, Log: quiet, Grace: c.grace})
					ctx, cancel := context.WithTimeout(t.Context(), at)
					_ = w.Run(ctx) // until the time is over
					cancel()
					changes, err := w.Next(t.Context())
					if err != nil || !changes.Resync || len(changes.Deltas) != objects {
						t.Errorf("after %v there are %d objects, want %d: %v", at, len(changes.Deltas), objects, err)
					}
				}
			})
		})
	}
}
