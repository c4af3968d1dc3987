package datasync_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/kvstore"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/datasync"
)

var errAway = errors.New("the store is away")

// saved returns the file of a watcher that has seen the state and ended.
func saved(t *testing.T, s state) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state")
	t.Run("watcher that saves", func(t *testing.T) {
		client := startServer(t, embedded.Config{}).Client()
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

// away is a store that does not answer before it is let.
func away(t *testing.T) (store *faulty, client *kvstore.Client, back func()) {
	t.Helper()
	here := make(chan struct{})
	client = startServer(t, embedded.Config{}).Client()
	store = &faulty{Store: client, beforeList: func(int) error {
		select {
		case <-here:
			return nil
		default:
			return errAway
		}
	}}
	return store, client, func() { close(here) }
}

func TestTheSavedStateIsInForceUntilTheStoreAnswers(t *testing.T) {
	path := saved(t, pods(4, "n1"))
	store, client, back := away(t)
	c := run(t, datasync.Config{Store: store, File: path, MinBackoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond, Grace: -1})
	c.reach(t, pods(4, "n1"))
	if s := c.Status(); s.Saved.IsZero() || s.Following || s.LastError == "" || s.Revision == 0 {
		t.Errorf("status is %+v", s)
	}
	write(t, client, pods(2, "n2"))
	back()
	c.reach(t, pods(2, "n2"))
	if s := c.Status(); !s.Saved.IsZero() || !s.Following {
		t.Errorf("status is %+v", s)
	}
	if n := len(c.changes); n > 3 {
		t.Errorf("there were %d changes: %v", n, c.changes)
	}
}
