package datasync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/marked"
)

// faulty is a real store whose calls fail or are delayed at chosen moments.
type faulty struct {
	datasync.Store
	beforeList  func(call int) error // nil: nothing happens
	beforeWatch func(call int) error

	mu             sync.Mutex
	lists, watches int
	cut            context.CancelCauseFunc // of the running watch
}

func (f *faulty) List(ctx context.Context, prefix string) ([]model.Entry, int64, error) {
	f.mu.Lock()
	f.lists++
	call := f.lists
	f.mu.Unlock()
	if f.beforeList != nil {
		if err := f.beforeList(call); err != nil {
			return nil, 0, err
		}
	}
	return f.Store.List(ctx, prefix)
}

func (f *faulty) Watch(ctx context.Context, prefix string, from int64, deliver func([]model.Entry, int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.mu.Lock()
	f.watches++
	call := f.watches
	f.cut = cancel
	f.mu.Unlock()
	if f.beforeWatch != nil {
		if err := f.beforeWatch(call); err != nil {
			return err
		}
	}
	err := f.Store.Watch(ctx, prefix, from, deliver)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// listed returns how often the store was asked for everything.
func (f *faulty) listed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists
}

// breakWatch ends the current watch of a consumer with an error, or the first one once it runs.
func (f *faulty) breakWatch(t testing.TB, c *consumer, err error) {
	t.Helper()
	c.await(t, "a watch", func(datasync.Status) bool { return f.breaks(err) })
}

func (f *faulty) breaks(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut == nil {
		return false
	}
	f.cut(err)
	return true
}

func TestWatcherResyncsAfterCompaction(t *testing.T) {
	s := inprocess.Start(t, embedded.Config{})
	client := s.Client()
	write(t, client, pods(3, "n1"))
	store := &faulty{Store: client, beforeWatch: func(call int) error {
		if call > 1 {
			return nil
		}
		write(t, client, pods(4, "n2"), keyOf("pod-00000"))
		return s.Compact(t.Context())
	}}
	c := run(t, datasync.Config{Store: store})
	want := pods(4, "n2")
	delete(want, podID("pod-00000"))
	c.reach(t, want)
	c.await(t, "the status after one resync", func(s datasync.Status) bool {
		return s.Resyncs["compacted"] == 1 && s.Reason == "compacted"
	})
}

func TestWatcherSurvivesFailureAtEveryCall(t *testing.T) {
	client := inprocess.Start(t, embedded.Config{}).Client()
	want := pods(3, "n1")
	write(t, client, want)
	store := &faulty{
		Store: client,
		beforeList: func(call int) error {
			if call == 1 || call == 2 || call == 4 {
				return fmt.Errorf("list %d fails", call)
			}
			return nil
		},
		beforeWatch: func(call int) error {
			if call == 1 || call == 2 {
				return fmt.Errorf("watch %d fails", call)
			}
			return nil
		},
	}
	c := run(t, datasync.Config{Store: store, MinBackoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond})
	c.reach(t, want)
	c.await(t, "the third watch", func(s datasync.Status) bool { return s.Resyncs["watch_failed"] == 2 })
	write(t, client, state{}.add(newPod("late", "n1")))
	c.reach(t, want.add(newPod("late", "n1")))
	c.await(t, "the status after the failures", func(s datasync.Status) bool { return s.Resyncs["start"] == 1 && s.LastError != "" })
}

// TestWatcherLosesNothingWhenWatchesBreak writes all the time and breaks the watch at random
// moments: in the end the consumer has the content of the store.
func TestWatcherLosesNothingWhenWatchesBreak(t *testing.T) {
	client := inprocess.Start(t, embedded.Config{}).Client()
	write(t, client, pods(20, "n0"))
	store := &faulty{Store: client}
	c := run(t, datasync.Config{Store: store, MinBackoff: time.Microsecond, MaxBackoff: time.Millisecond})
	c.next(t)
	r := rand.New(rand.NewPCG(1, 2))
	want := pods(20, "n0")
	for i := range 400 {
		name := fmt.Sprintf("pod-%05d", r.IntN(20))
		if r.IntN(4) == 0 {
			write(t, client, state{}, keyOf(name))
			delete(want, podID(name))
		} else {
			write(t, client, state{}.add(newPod(name, fmt.Sprint("n", i))))
			want.add(newPod(name, fmt.Sprint("n", i)))
		}
		if r.IntN(15) == 0 {
			store.breakWatch(t, c, errors.New("cut"))
		}
		if r.IntN(10) == 0 && len(c.changes) < 10 {
			c.next(t)
		}
	}
	c.reach(t, want)
}

// restarted runs a server, a client over the network and a watcher that has seen
// some pods; then it stops the server and starts it again at the same address.
func restarted(t *testing.T, cfg datasync.Config, firstDir, secondDir string) (*consumer, *kvstore.Client) {
	t.Helper()
	first := inprocess.Start(t, embedded.Config{Dir: firstDir, ClientURL: inprocess.Loopback})
	write(t, first.Client(), pods(5, "n1").add(&model.NetworkPolicy{Namespace: "shop", Name: "web"}))
	cfg.Store = dial(t, first)
	c := run(t, cfg)
	c.reach(t, pods(5, "n1").add(&model.NetworkPolicy{Namespace: "shop", Name: "web"}))
	address := first.Endpoints()[0]
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c.await(t, "the loss of the store", func(s datasync.Status) bool { return !s.Following })
	second := inprocess.Start(t, embedded.Config{Dir: secondDir, ClientURL: "http://" + address})
	return c, second.Client()
}

func TestWatcherLosesNothingWhenStoreRestarts(t *testing.T) {
	dir := t.TempDir()
	c, writer := restarted(t, datasync.Config{}, dir, dir)
	want := pods(5, "n1").add(&model.NetworkPolicy{Namespace: "shop", Name: "web"}, newPod("new", "n2"))
	write(t, writer, state{}.add(newPod("new", "n2")))
	c.reach(t, want)
	write(t, writer, state{}.add(newPod("new", "n3")))
	c.reach(t, want.add(newPod("new", "n3")))
	c.await(t, "the status after one reconnection", func(s datasync.Status) bool {
		return s.Resyncs["disconnected"] == 1 && s.Incomplete == ""
	})
}

func TestNextEndsWithContextAndRun(t *testing.T) {
	client := inprocess.Start(t, embedded.Config{}).Client()
	write(t, client, pods(1, "n1"))
	w := datasync.New(datasync.Config{Store: marked.Store(client), Log: quiet})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	if _, err := w.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	done, stop := context.WithCancel(t.Context())
	stop()
	if _, err := w.Next(done); !errors.Is(err, context.Canceled) {
		t.Errorf("next with a context that ended: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v", err)
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, datasync.ErrStopped) {
		t.Errorf("next after run: %v", err)
	}
	if err := w.Run(t.Context()); err == nil {
		t.Error("it ran twice")
	}
}
