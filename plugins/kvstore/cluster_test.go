package kvstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd"
)

func TestWatchEndsWithoutLeader(t *testing.T) {
	members := etcd.Start(t, etcd.Options{Members: 3})
	c := dial(t, members.Endpoints()[0])
	ended := watching(t, c, c)
	members.Kill(1)
	members.Kill(2)
	if err := <-ended; !errors.Is(err, kvstore.ErrNoLeader) {
		t.Errorf("the watch ended with %v", err)
	}
}

func TestClientLosesNothingWhenMemberDies(t *testing.T) {
	members := etcd.Start(t, etcd.Options{Members: 3})
	c := dial(t, members.Endpoints()...)
	all := entries("/w/", 300)
	_, revision := list(t, c, "/w/")
	written := make(chan error, 1)
	go func() {
		for i, e := range all {
			if i == 100 {
				members.Kill(1)
			}
			if err := c.Write(t.Context(), all[i:i+1], nil); err != nil {
				written <- fmt.Errorf("%s: %w", e.Key, err)
				return
			}
		}
		written <- nil
	}()
	// A broken watch is restarted where it ended, which is possible while the revision is not
	// compacted. A repeated write may have taken effect already, so keys can come twice.
	got := map[string]bool{}
	for deadline := time.Now().Add(patience); len(got) < len(all); {
		entries, last, err := collectSome(c, "/w/", revision+1, len(all)-len(got))
		for _, e := range entries {
			got[e.Key] = true
		}
		if revision = max(revision, last); time.Now().After(deadline) {
			t.Fatalf("%d of %d keys arrived: %v", len(got), len(all), err)
		}
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
