package datasync_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/datasync"
)

// telling is a store with one pod, whose watch reports the changes that a test chooses.
type telling struct {
	t     *testing.T
	words chan func(deliver func([]model.Entry, int64))
}

func (s telling) List(context.Context, string) ([]model.Entry, int64, error) {
	return entriesOf(s.t, pods(1, "n")), 5, nil
}

func (s telling) Watch(ctx context.Context, _ string, _ int64, deliver func([]model.Entry, int64)) error {
	for {
		select {
		case say := <-s.words:
			say(deliver)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestPublishedKeepsLastChangeOfObject: a snapshot, changes elsewhere and writes without a
// difference do not count. A deletion does.
func TestPublishedKeepsLastChangeOfObject(t *testing.T) {
	s := telling{t: t, words: make(chan func(func([]model.Entry, int64)))}
	c := run(t, datasync.Config{Store: s})
	c.await(t, "the whole state", func(s datasync.Status) bool { return s.Revision == 5 && s.Changed == 0 })
	same := entriesOf(t, pods(1, "n"))
	for i, word := range []struct {
		entries  []model.Entry
		revision int64
		changed  int64
	}{
		{nil, 6, 0},
		{same, 7, 0},
		{entriesOf(t, pods(1, "m")), 8, 8},
		{nil, 9, 8},
		{[]model.Entry{{Key: same[0].Key}}, 10, 10},
		{[]model.Entry{{Key: same[0].Key}}, 11, 10},
	} {
		s.words <- func(deliver func([]model.Entry, int64)) { deliver(word.entries, word.revision) }
		c.await(t, "what is published", func(s datasync.Status) bool { return s.Revision == word.revision })
		if got := c.Status().Changed; got != word.changed {
			t.Errorf("behind word %d the last change is of revision %d, want %d", i, got, word.changed)
		}
	}
}

// TestAwaitReturnsAtRevision: the consumer does not see revisions that changed nothing,
// so waiting for it to reach one of them would never end.
func TestAwaitReturnsAtRevision(t *testing.T) {
	s := telling{t: t, words: make(chan func(func([]model.Entry, int64)))}
	c := run(t, datasync.Config{Store: s})
	if got, err := c.Await(t.Context(), 5); got != 5 || err != nil {
		t.Errorf("the whole state: %d, %v", got, err)
	}
	same := entriesOf(t, pods(1, "n"))
	for _, word := range []struct {
		entries  []model.Entry
		revision int64
		want     int64
	}{
		{nil, 6, 5},
		{same, 7, 5},
		{entriesOf(t, pods(1, "m")), 8, 8},
		{nil, 9, 8},
	} {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Await(ended, word.revision); !errors.Is(err, context.Canceled) {
			t.Errorf("revision %d is not read yet: %v", word.revision, err)
		}
		s.words <- func(deliver func([]model.Entry, int64)) { deliver(word.entries, word.revision) }
		if got, err := c.Await(t.Context(), word.revision); got != word.want || err != nil {
			t.Errorf("revision %d brings the consumer to %d, want %d: %v", word.revision, got, word.want, err)
		}
	}
}
