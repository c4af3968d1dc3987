package follow_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/follow"
)

// outage is the error of a store that logs it.
type outage struct{ error }

func (outage) Logged() bool { return true }

// absent is a store that does not answer until a time. Its watch may break at another time, after
// which it does not answer for a while.
type absent struct {
	err    error
	until  time.Time
	breaks time.Time
	away   time.Duration
}

func (a *absent) List(context.Context, string) ([]model.Entry, int64, error) {
	if time.Now().Before(a.until) {
		return nil, 0, a.err
	}
	return nil, 1, nil
}

func (a *absent) Watch(ctx context.Context, _ string, _ int64, _ func([]model.Entry, int64)) error {
	if d := time.Until(a.breaks); d > 0 {
		select {
		case <-time.After(d):
			a.until = time.Now().Add(a.away)
			return a.err
		case <-ctx.Done():
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// logOf follows a store for a time and returns the log without debug messages.
func logOf(t *testing.T, s follow.Store, d time.Duration) string {
	t.Helper()
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	err := follow.Run(ctx, follow.Config{
		Store: s, What: "interfaces", Log: log, Grace: -1,
		Snapshot: func(follow.Snapshot) {}, Deliver: func([]model.Entry, int64) {},
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("run: %v", err)
	}
	return text.String()
}

func TestRunLogsFailureOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &absent{err: errors.New("permission denied"), until: time.Now().Add(10 * time.Minute)}
		text := logOf(t, s, time.Hour)
		if n := strings.Count(text, "level=WARN"); n < 9 || n > 10 || !strings.Contains(text, "of=interfaces") || !strings.Contains(text, "permission denied") {
			t.Errorf("%d lines for 10 minutes without an answer:\n%s", n, text)
		}
		if n := strings.Count(text, "store was read"); n != 1 {
			t.Errorf("%d lines that the store was read:\n%s", n, text)
		}
	})
}

// TestRunLeavesOutageLogToStore: the store logs one line for all its followers.
func TestRunLeavesOutageLogToStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &absent{err: outage{errors.New("no answer")}, breaks: time.Now().Add(time.Minute), away: 10 * time.Minute}
		text := logOf(t, s, time.Hour)
		if n := strings.Count(text, "\n"); n != 1 || !strings.Contains(text, "level=INFO msg=\"store was read\"") {
			t.Errorf("the log has %d lines, want that of the start alone:\n%s", n, text)
		}
	})
}

func TestRunLogsLostWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &absent{err: errors.New("compacted"), breaks: time.Now().Add(time.Minute)}
		text := logOf(t, s, 30*time.Minute)
		if n := strings.Count(text, "level=WARN"); n != 1 || !strings.Contains(text, "watch lost") || !strings.Contains(text, "error=compacted") {
			t.Errorf("the log has %d warnings, want one of the watch:\n%s", n, text)
		}
	})
}
