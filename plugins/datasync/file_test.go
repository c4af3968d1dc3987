package datasync_test

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

var errAway = errors.New("the store is away")

// saved returns the file of a watcher that has seen the state and ended.
func saved(t *testing.T, s state) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state")
	t.Run("watcher that saves", func(t *testing.T) {
		client := inprocess.Start(t, embedded.Config{}).Client()
		write(t, client, pods(9, "old"))
		c := run(t, datasync.Config{Store: client, File: path})
		c.reach(t, pods(9, "old"))
		gone := []string{}
		for id := range pods(9, "old") {
			if s[id] == nil {
				gone = append(gone, keyOf(id.Name))
			}
		}
		write(t, client, s, gone...)
		c.reach(t, s)
	})
	return path
}

// away is a store that does not answer as long as it is gone.
func away(t *testing.T) (store *faulty, client *kvstore.Client, gone *atomic.Bool) {
	t.Helper()
	gone = new(atomic.Bool)
	gone.Store(true)
	client = inprocess.Start(t, embedded.Config{}).Client()
	store = &faulty{Store: client, beforeList: func(int) error {
		if gone.Load() {
			return errAway
		}
		return nil
	}}
	return store, client, gone
}

func TestWatcherUsesSavedStateUntilStoreAnswers(t *testing.T) {
	path := saved(t, pods(4, "n1"))
	store, client, gone := away(t)
	c := run(t, datasync.Config{Store: store, File: path, MinBackoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond})
	c.reach(t, pods(4, "n1"))
	c.await(t, "the status that the store is away", func(s datasync.Status) bool {
		return !s.Saved.IsZero() && !s.Following && s.LastError != "" && s.Revision != 0
	})
	write(t, client, pods(2, "n2"))
	gone.Store(false)
	c.reach(t, pods(2, "n2"))
	c.await(t, "the status that the store was read", func(s datasync.Status) bool { return s.Saved.IsZero() && s.Following })

	// Once the store was read, the file is older than what is in force.
	gone.Store(true)
	before := store.listed()
	store.breakWatch(t, c, errAway)
	c.await(t, "another look at the store", func(datasync.Status) bool { return store.listed() > before+1 })
	if s := c.Status(); !s.Saved.IsZero() {
		t.Errorf("status is %+v", s)
	}
	write(t, client, pods(3, "n3"))
	gone.Store(false)
	c.reach(t, pods(3, "n3"))
	if n := len(c.changes); n > 4 {
		t.Errorf("there were %d changes: %v", n, c.changes)
	}
}
