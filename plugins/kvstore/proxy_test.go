package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

func TestWatchesBehindProxyLoseNothing(t *testing.T) {
	members := etcd.Start(t, etcd.Options{})
	writer := dial(t, members.Endpoints()...)
	proxy, _ := members.Proxy(t)
	const readers, keys = 40, 300
	_, revision := list(t, writer, "/w/")
	type result struct {
		entries []model.Entry
		breaks  int
		err     error
	}
	results := make(chan result, readers)
	started := make(chan struct{}, readers)
	for range readers {
		c := dial(t, proxy)
		list(t, c, "/w/") // like real watchers: a connection without an answer may count as lost
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var got []model.Entry
			var err error
			seen, breaks := revision, -1
			// The proxy now and then ends a watch that it joins with another one.
			for ; ctx.Err() == nil; breaks++ {
				err = c.Watch(ctx, "/w/", seen+1, func(entries []model.Entry, at int64) {
					if len(entries) == 0 {
						return
					}
					if len(got) == 0 {
						started <- struct{}{}
					}
					seen = at
					if got = append(got, entries...); len(got) >= keys {
						cancel()
					}
				})
			}
			results <- result{got, breaks, err}
		}()
	}
	all := entries("/w/", keys)
	write(t, writer, all[:1])
	for range readers {
		<-started
	}
	if n := members.Watches(t, 0); n > readers/4 {
		t.Errorf("%d watches behind the proxy are %d of the store", readers, n)
	} else {
		t.Logf("%d watches behind the proxy are %d of the store", readers, n)
	}
	for i := range all[1:] {
		write(t, writer, all[i+1:i+2])
	}
	broken := 0
	for range readers {
		r := <-results
		broken += r.breaks
		if len(r.entries) != keys || !errors.Is(r.err, context.Canceled) {
			t.Errorf("%d of %d changes arrived: %v", len(r.entries), keys, r.err)
			continue
		}
		for i, e := range r.entries {
			if e.Key != all[i].Key {
				t.Fatalf("change %d is of %s, want %s", i, e.Key, all[i].Key)
			}
		}
	}
	if broken > readers {
		t.Errorf("the watches broke %d times", broken)
	}
	t.Logf("the watches broke %d times", broken)
}

// TestWatchNoticesStoreSetBackBehindProxy keeps the connection to the proxy while the store
// behind it is restored from a backup.
func TestWatchNoticesStoreSetBackBehindProxy(t *testing.T) {
	members := etcd.Start(t, etcd.Options{})
	direct := dial(t, members.Endpoints()...)
	write(t, direct, entries("/w/", 10))
	restore := members.Save()
	if err := programs.Poll(patience, func() error { _, err := direct.Status(t.Context()); return err }); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries("/w/", 20) {
		write(t, direct, []model.Entry{e})
	}
	proxy, _ := members.Proxy(t)
	c := dial(t, proxy)
	c.ProbeEvery(20 * time.Millisecond)
	_, revision := list(t, c, "/w/")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended := make(chan error, 1)
	heard := make(chan struct{}, 1)
	go func() {
		ended <- c.Watch(ctx, "/w/", revision+1, func([]model.Entry, int64) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
	}()
	write(t, direct, put("/w/x"))
	<-heard
	restore()
	if err := <-ended; !errors.Is(err, kvstore.ErrWentBack) && !errors.Is(err, kvstore.ErrNoLeader) && !errors.Is(err, kvstore.ErrUnavailable) {
		t.Errorf("the watch ended with %v", err)
	} else {
		t.Logf("the watch ended: %v", err)
	}
}

func TestWatchGetsProgressWhenIdle(t *testing.T) {
	for name, c := range map[string]*kvstore.Client{
		"over the network": dial(t, etcd.Start(t, etcd.Options{}).Endpoints()...),
		"in the process":   server(t, embedded.Config{}).Client(),
	} {
		t.Run(name, func(t *testing.T) {
			c.ProbeEvery(10 * time.Millisecond)
			write(t, c, entries("/elsewhere/", 5))
			_, head := list(t, c, "/w/")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var problem error
			heard := 0
			err := c.Watch(ctx, "/w/", 1, func(entries []model.Entry, revision int64) {
				if len(entries) > 0 || revision != head {
					problem = fmt.Errorf("it heard %v at %d, want nothing at %d", entries, revision, head)
				}
				if heard++; heard == 10 { // beyond a comparison of revisions
					cancel()
				}
			})
			if problem != nil || !errors.Is(err, context.Canceled) {
				t.Error(problem, err)
			}
		})
	}
}

// TestWatchGetsProgressOfUnwrittenStore: a store that has not reached the first revision
// of a watch sends it no progress.
func TestWatchGetsProgressOfUnwrittenStore(t *testing.T) {
	for name, c := range map[string]*kvstore.Client{
		"over the network": dial(t, etcd.Start(t, etcd.Options{}).Endpoints()...),
		"in the process":   server(t, embedded.Config{}).Client(),
	} {
		t.Run(name, func(t *testing.T) {
			c.ProbeEvery(10 * time.Millisecond)
			_, head := list(t, c, "/w/")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var heard []int64
			err := c.Watch(ctx, "/w/", head+1, func(entries []model.Entry, revision int64) {
				if heard = append(heard, revision); len(entries) > 0 {
					cancel()
				}
				if len(heard) == 20 { // the watch continues with what is written
					write(t, c, []model.Entry{{Key: "/w/a"}})
				}
			})
			if !errors.Is(err, context.Canceled) || len(heard) < 21 || heard[0] != head || !slices.IsSorted(heard) {
				t.Errorf("it heard of the revisions %v, the store was at %d: %v", heard, head, err)
			}
		})
	}
}
