package follow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/follow"
)

// slow is a store that answers slowly, or returns the error of an unreachable store slowly.
type slow struct {
	takes time.Duration
	err   error
}

func (s slow) List(ctx context.Context, _ string) ([]model.Entry, int64, error) {
	select {
	case <-time.After(s.takes):
		return nil, 1, s.err
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

func (s slow) Watch(ctx context.Context, _ string, _ int64, _ func([]model.Entry, int64)) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestRunLoadsSavedStateWhenNeeded: the saved state is used at once if nothing is in force, and not
// at all otherwise. The clock is fake.
func TestRunLoadsSavedStateWhenNeeded(t *testing.T) {
	away := errors.New("the store is away")
	const never = time.Hour
	for _, tc := range []struct {
		name     string
		store    slow
		needed   time.Duration // when it is
		recalled time.Duration // when it is to be
	}{
		{"a store that hangs", slow{8 * time.Second, away}, 0, 500 * time.Millisecond},
		{"a store that fails at once", slow{0, away}, 0, 0},
		{"a store that answers soon", slow{400 * time.Millisecond, nil}, 0, never},
		{"the need arises while the store hangs", slow{8 * time.Second, away}, 3 * time.Second, 3 * time.Second},
		{"the need arises in a pause", slow{0, away}, 93 * time.Second, 93 * time.Second},
		{"no need", slow{time.Second, away}, never, never},
		{"the need arises after the store was read", slow{0, nil}, time.Second, never},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, recalled, needed := time.Now(), never, make(chan struct{})
				if time.AfterFunc(tc.needed, func() { close(needed) }); tc.needed == 0 {
					synctest.Wait()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				err := follow.Run(ctx, follow.Config{
					Store: tc.store, Log: quiet, Grace: -1, MinBackoff: time.Minute, MaxBackoff: time.Minute,
					Snapshot: func(follow.Snapshot) {}, Deliver: func([]model.Entry, int64) {},
					Recall: func() (int64, bool) { recalled = time.Since(began); return 1, true }, Needed: needed,
				})
				if !errors.Is(err, context.DeadlineExceeded) || recalled != tc.recalled {
					t.Errorf("recalled after %s, want %s (%v)", recalled, tc.recalled, err)
				}
			})
		})
	}
}
