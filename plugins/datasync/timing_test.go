package datasync_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/tests/lab/marked"
)

// script is a store with scripted answers, to test timing on a fake clock. Everything about the
// behaviour of etcd is tested with etcd.
type script struct {
	list  func() ([]model.Entry, int64, error)
	watch func(ctx context.Context) error
}

func (s *script) List(context.Context, string) ([]model.Entry, int64, error) { return s.list() }

func (s *script) Watch(ctx context.Context, _ string, _ int64, _ func([]model.Entry, int64)) error {
	return s.watch(ctx)
}

func TestRunBacksOffAndResetsAfterSuccess(t *testing.T) {
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
		w := datasync.New(datasync.Config{Store: marked.Store(s), Log: quiet})
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
