package kvstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

const patience = time.Minute

// collect watches until n entries have come.
func collect(t testing.TB, c *kvstore.Client, prefix string, from int64, n int) ([]model.Entry, int64) {
	t.Helper()
	got, last, err := collectSome(c, prefix, from, n)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("after %d of %d entries: %v", len(got), n, err)
	}
	return got, last
}

// collectSome watches until n entries have come, or the watch breaks.
func collectSome(c *kvstore.Client, prefix string, from int64, n int) (got []model.Entry, last int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = c.Watch(ctx, prefix, from, func(entries []model.Entry, revision int64) {
		got, last = append(got, entries...), revision
		if len(got) >= n {
			cancel()
		}
	})
	return got, last, err
}

// watching runs a watch that has received its first change, and returns the channel for its end.
func watching(t testing.TB, c *kvstore.Client, writer *kvstore.Client) <-chan error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	_, revision := list(t, c, "/")
	seen, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		defer cancel()
		ended <- c.Watch(ctx, "/", revision+1, func([]model.Entry, int64) {
			select {
			case seen <- struct{}{}:
			default:
			}
		})
	}()
	write(t, writer, []model.Entry{{Key: "/watching"}})
	select {
	case <-seen:
	case <-ctx.Done():
		t.Fatal("the watch saw nothing")
	}
	t.Cleanup(cancel)
	return ended
}

func TestWatchDeliversEverythingInOrder(t *testing.T) {
	s := server(t, embedded.Config{})
	for name, c := range map[string]*kvstore.Client{"over the network": dial(t, s.Endpoints()...), "in process": s.Client()} {
		t.Run(name, func(t *testing.T) {
			_, revision := list(t, c, "/")
			all := entries("/w/", 2500)
			want := append(append([]model.Entry{}, all...), model.Entry{Key: all[3].Key})
			written := make(chan error, 1)
			go func() {
				written <- s.Client().Write(context.Background(), append([]model.Entry{{Key: "/other"}}, all...), []string{all[3].Key})
			}()
			got, last := collect(t, c, "/w/", revision+1, len(want))
			if err := <-written; err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("want - got +\n%s", diff)
			}
			if _, head := list(t, c, "/w/"); last != head {
				t.Errorf("the last revision delivered is %d, the store is at %d", last, head)
			}
		})
	}
}

func TestWatchFromCompactedRevisionFails(t *testing.T) {
	s := server(t, embedded.Config{})
	c := dial(t, s.Endpoints()...)
	write(t, c, entries("/", 300))
	write(t, c, entries("/", 300))
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := c.Watch(t.Context(), "/", 2, func([]model.Entry, int64) { t.Error("something was delivered") })
	if !errors.Is(err, kvstore.ErrCompacted) {
		t.Errorf("the watch ended with %v", err)
	}
	var named interface{ Reason() string }
	if !errors.As(err, &named) || named.Reason() != "compacted" {
		t.Errorf("the error %v has no reason", err)
	}
}

func TestWatchFromFutureMeansStoreWentBack(t *testing.T) {
	c := dial(t, server(t, embedded.Config{}).Endpoints()...)
	write(t, c, []model.Entry{{Key: "/a"}}) // revision 2
	err := c.Watch(t.Context(), "/", 1000, func([]model.Entry, int64) { t.Error("something was delivered") })
	if !errors.Is(err, kvstore.ErrWentBack) {
		t.Errorf("the watch ended with %v", err)
	}
}

func TestWatchEndsWhenServerEnds(t *testing.T) {
	dir := t.TempDir()
	s := server(t, embedded.Config{Dir: dir})
	c := dial(t, s.Endpoints()...)
	addr := s.Endpoints()[0]
	ended := watching(t, c, s.Client())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, kvstore.ErrDisconnected) {
		t.Errorf("the watch ended with %v", err)
	}
	if err := c.Watch(t.Context(), "/", 2, func([]model.Entry, int64) {}); !errors.Is(err, kvstore.ErrDisconnected) {
		t.Errorf("a watch without a connection ended with %v", err)
	}
	again := server(t, embedded.Config{Dir: dir, ClientURL: "http://" + addr})
	if got, _ := list(t, c, "/"); len(got) != 1 { // the same client, connected again
		t.Errorf("after the restart: %v", got)
	}
	ended = watching(t, c, again.Client())
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, kvstore.ErrDisconnected) {
		t.Errorf("the watch of a closed client ended with %v", err)
	}
}

// deaf is a watcher that swallows changes, like a proxy that has attached the watch to one that it
// had lost.
type deaf struct{ clientv3.Watcher }

func (d deaf) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	out := make(chan clientv3.WatchResponse)
	go func() {
		defer close(out)
		for r := range d.Watcher.Watch(ctx, key, opts...) {
			if len(r.Events) > 0 || r.IsProgressNotify() {
				continue
			}
			select {
			case out <- r:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

func TestWatchWithoutProgressEnds(t *testing.T) {
	s := server(t, embedded.Config{})
	library, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	library.Watcher = deaf{library.Watcher}
	c := kvstore.FromClient(library, "deaf", quiet)
	defer closing(t, c)
	c.ProbeEvery(5 * time.Millisecond)
	_, revision := list(t, c, "/w/")
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { ended <- c.Watch(ctx, "/w/", revision+1, func([]model.Entry, int64) {}) }()

	for i := 0; ; i++ {
		key := "/else" // what happens elsewhere is no reason
		if i > 100 {
			key = "/w/x"
		}
		write(t, s.Client(), put(key))
		select {
		case err := <-ended:
			if i < 100 || !errors.Is(err, kvstore.ErrMissed) {
				t.Errorf("after %d changes the watch ended with %v", i, err)
			}
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
