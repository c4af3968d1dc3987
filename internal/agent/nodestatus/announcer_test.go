package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/view"
)

// reporting is an announcer in a bubble, the node that it reports on, and what it wrote.
type reporting struct {
	log strings.Builder

	mu      sync.Mutex
	node    view.NodeStatus
	changed chan struct{}
	refused error
	written []int64         // revisions
	at      []time.Duration // after the start
}

// reports runs an announcer during f.
func reports(t *testing.T, interval time.Duration, f func(r *reporting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &reporting{changed: make(chan struct{})}
		start := time.Now()
		a := publisher{
			interval: interval, log: slog.New(slog.NewTextHandler(&r.log, nil)),
			status: func(context.Context) (view.NodeStatus, error) {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.node, nil
			},
			watch: func() (<-chan struct{}, bool) {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.changed, true
			},
			publish: func(_ context.Context, value []byte) error {
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.refused != nil {
					return r.refused
				}
				var s view.NodeStatus
				err := json.Unmarshal(value, &s)
				r.written, r.at = append(r.written, s.Revision), append(r.at, time.Since(start))
				return err
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.run(ctx) }()
		synctest.Wait()
		f(r)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
}

// change gives the node another revision.
func (r *reporting) change(revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.node.Revision = revision
	close(r.changed)
	r.changed = make(chan struct{})
}

// refuse has the store refuse what is published; nil ends that.
func (r *reporting) refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = err
}

// state returns which revision was published last, when, and how often one was.
func (r *reporting) state() (revision int64, at time.Duration, n int) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n = len(r.written); n == 0 {
		return -1, 0, 0
	}
	return r.written[n-1], r.at[n-1], n
}

func TestPublisherPublishesChangeAtOnce(t *testing.T) {
	reports(t, 10*time.Second, func(r *reporting) {
		if revision, at, n := r.state(); revision != 0 || at != 0 || n != 1 {
			t.Errorf("at the start revision %d is published after %v, %d times", revision, at, n)
		}
		time.Sleep(time.Minute)
		for i := range 2 { // a change, and how it went
			begin := time.Minute + time.Duration(i)*announceSpread
			r.change(int64(i + 7))
			time.Sleep(announceSpread)
			if revision, at, _ := r.state(); revision != int64(i+7) || at <= begin || at > begin+announceSpread {
				t.Errorf("%v after the start revision %d is published at %v", begin, revision, at)
			}
		}
	})
}

func TestPublisherWritesOncePerInterval(t *testing.T) {
	reports(t, 10*time.Second, func(r *reporting) {
		time.Sleep(time.Minute)
		_, _, before := r.state()
		for i := range 600 { // a minute of changes
			r.change(int64(i + 1))
			time.Sleep(100 * time.Millisecond)
		}
		if _, _, n := r.state(); n-before < 6 || n-before > 6+announceBurst {
			t.Errorf("it wrote %d times in a minute of changes, want about 6", n-before)
		}
		time.Sleep(11 * time.Second)
		if revision, _, _ := r.state(); revision != 600 {
			t.Errorf("in the end revision %d is published, want 600", revision)
		}
	})
}

func TestPublisherWaitsForFirstState(t *testing.T) {
	for name, c := range map[string]struct {
		begins time.Duration
		want   string
	}{
		"a state soon":           {time.Second, "5 after 1"},
		"no state for very long": {time.Hour, "0 after 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				changed, written, last := make(chan struct{}), 0, int64(-1)
				begun := func() bool { return time.Since(begin) >= c.begins }
				a := publisher{
					interval: 10 * time.Second, log: slog.New(slog.DiscardHandler),
					watch: func() (<-chan struct{}, bool) { return changed, begun() },
					status: func(context.Context) (s view.NodeStatus, err error) {
						if begun() {
							s.Revision = 5
						}
						return s, nil
					},
					publish: func(_ context.Context, value []byte) error {
						var s view.NodeStatus
						written++
						err := json.Unmarshal(value, &s)
						last = s.Revision
						return err
					},
				}
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				defer time.AfterFunc(c.begins, func() { close(changed) }).Stop()
				if err := a.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("run: %v", err)
				}
				if got := fmt.Sprintf("%d after %d", last, written); got != c.want {
					t.Errorf("published is %s, want %s", got, c.want)
				}
			})
		})
	}
}

// loggedOutage is the error of a store that has logged it.
type loggedOutage struct{ error }

func (loggedOutage) Logged() bool { return true }

func TestPublisherLogsRefusalOnceAndNoOutage(t *testing.T) {
	for err, lines := range map[error]int{errors.New("permission denied"): 1, loggedOutage{errors.New("no answer")}: 0} {
		reports(t, 10*time.Second, func(r *reporting) {
			r.refuse(err)
			for i := range 5 {
				r.change(int64(i + 1))
				time.Sleep(time.Minute)
			}
			synctest.Wait()
			if got := strings.Count(r.log.String(), "\n"); got != lines {
				t.Errorf("%v: %d lines, want %d:\n%s", err, got, lines, r.log.String())
			}
			r.refuse(nil)
			time.Sleep(time.Minute)
			if revision, _, _ := r.state(); revision != 5 {
				t.Errorf("after it was refused revision %d is published", revision)
			}
		})
	}
}
