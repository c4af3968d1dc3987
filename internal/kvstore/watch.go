package kvstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/sluice-net/sluice/api/model"
)

// Watch delivers every change of a key under the prefix, from the given revision
// on, until the context ends or the watch breaks. It always returns an error:
// the context's, or one that wraps ErrCompacted, ErrNoLeader, ErrDisconnected or
// ErrWentBack where it is one of these. After each of the others the caller has
// to List again.
//
// Deliver is called by one goroutine at a time and not after Watch returned. It
// gets the changes of one or several whole revisions in their order, a deleted
// key with a nil Value, and the last of these revisions; with no entries, the
// revision alone moved on. It should return soon: what it keeps waiting is
// buffered here. The entries are its own.
func (c *Client) Watch(ctx context.Context, prefix string, from int64, deliver func(entries []model.Entry, revision int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := c.guard(ctx, cancel); err != nil {
		return fmt.Errorf("watch %s: %w", prefix, err)
	}
	p := &probe{from: from, heads: make(chan int64)}
	p.reached.Store(from - 1)
	go c.probe(ctx, cancel, prefix, p)
	hand := func(entries []model.Entry, revision int64) {
		p.reached.Store(max(p.reached.Load(), revision))
		deliver(entries, revision)
	}
	responses := c.etcd.Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(), clientv3.WithRev(from),
		clientv3.WithCreatedNotify(), clientv3.WithProgressNotify(), clientv3.WithFragment())
	for {
		select {
		case resp, ok := <-responses:
			if !ok {
				return fmt.Errorf("watch %s: %w", prefix, c.ended(ctx))
			}
			if err := c.take(ctx, prefix, from, resp, hand); err != nil {
				return fmt.Errorf("watch %s from revision %d: %w", prefix, from, err)
			}
		case head := <-p.heads:
			if head >= p.reached.Load() {
				deliver(nil, head)
			}
		}
	}
}

const (
	// progressEvery is how often an idle watch asks how far the store is, so that its
	// owner knows that silence means that nothing has changed.
	progressEvery = 5 * time.Second
	// headEvery is how often a watch compares the store itself with what it has seen.
	// Behind a proxy that keeps its connections, nothing else would tell that the store
	// was set back to older data.
	headEvery = 6 // of progressEvery
	// missedEvery is how often a watch that is silent while the store moves on looks for
	// what it was not told: rarely, because the store looks at every key for it.
	missedEvery = 10 // of headEvery
)

// probe is what a watch and the goroutine that probes it share.
type probe struct {
	from    int64
	reached atomic.Int64
	heads   chan int64 // revisions of the store at which nothing has changed since from
}

// waits reports whether the store has reached no revision yet that the watch asks for.
// Until then the store sends no progress (progressIfSync of etcd), so that a store which
// nobody writes would be silent.
func (p *probe) waits() bool { return p.reached.Load() < p.from }

// probe asks for progress, and ends a watch that is ahead of its store, or deaf.
func (c *Client) probe(ctx context.Context, cancel context.CancelCauseFunc, prefix string, p *probe) {
	tick := time.NewTicker(c.probeEvery)
	defer tick.Stop()
	var quiet silence
	for n, idle := 1, true; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c.AskProgress(ctx)
		rarely := n%headEvery == 0
		if !rarely && (!idle || !p.waits()) {
			continue
		}
		before := p.reached.Load()
		head, err := c.head(ctx, prefix)
		if err == nil {
			idle = head == before
		}
		switch {
		case err != nil:
		case head < before:
			cancel(fmt.Errorf("etcd at %s is at revision %d, and was at %d: %w", c.name, head, before, ErrWentBack))
			return
		case rarely && quiet.suspicious(before, head) && c.missed(ctx, prefix, before) && p.reached.Load() == before:
			cancel(fmt.Errorf("etcd at %s has changes after revision %d: %w", c.name, before, ErrMissed))
			return
		case idle:
			select {
			case p.heads <- head:
			case <-ctx.Done():
				return
			}
		}
	}
}

// AskProgress has the store bring all watches of this client to its newest revision, though
// nothing has changed for them. A store with a watch that lags leaves that unanswered.
func (c *Client) AskProgress(ctx context.Context) {
	// A failure is that of the watches, too, which report it.
	_ = c.etcd.RequestProgress(clientv3.WithRequireLeader(ctx))
}

// silence is a watch that stays at a revision while the store moves on. Most often what
// moves is elsewhere; but a proxy may have joined the watch with one that it had lost
// (etcd issue 21813), and would be silent for ever.
type silence struct {
	at    int64
	heads int // comparisons with the store since
}

// suspicious says whether it is time to look for what was not told.
func (s *silence) suspicious(at, head int64) bool {
	if at != s.at || head == at {
		*s = silence{at: at}
		return false
	}
	s.heads++
	return s.heads%missedEvery == 1
}

// missed says whether a key below the prefix was written after a revision. Deletions
// leave no key to find.
func (c *Client) missed(ctx context.Context, prefix string, after int64) (found bool) {
	err := c.call(ctx, callAttempts, func(ctx context.Context) error {
		resp, err := c.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1), clientv3.WithMinModRev(after+1))
		found = err == nil && len(resp.Kvs) > 0
		return err
	})
	return err == nil && found
}

// take hands one response over, or says why the watch cannot go on.
func (c *Client) take(ctx context.Context, prefix string, from int64, resp clientv3.WatchResponse, deliver func([]model.Entry, int64)) error {
	switch {
	case ctx.Err() != nil:
		return c.ended(ctx)
	case resp.Err() != nil:
		return c.explain(ctx, resp.Err())
	case resp.Created:
		return c.verify(ctx, prefix, from, resp.Header.GetRevision())
	case resp.IsProgressNotify():
		deliver(nil, resp.Header.GetRevision())
	case len(resp.Events) > 0:
		entries := make([]model.Entry, len(resp.Events))
		for i, ev := range resp.Events {
			entries[i].Key = string(ev.Kv.Key)
			if ev.Type != clientv3.EventTypeDelete {
				entries[i].Value = present(ev.Kv.Value)
			}
		}
		// The header's revision may be ahead of events that are still to come.
		deliver(entries, resp.Events[len(resp.Events)-1].Kv.ModRevision)
	}
	return nil
}

// verify makes sure that the store has reached the revision before the first one
// that is watched for. A store that lost its data would stay silent until it got
// there. A member that lags is asked again, through the majority.
func (c *Client) verify(ctx context.Context, prefix string, from, revision int64) error {
	if revision >= from-1 {
		return nil
	}
	revision, err := c.head(ctx, prefix)
	if err != nil {
		return err
	}
	if revision < from-1 {
		return fmt.Errorf("etcd at %s is at revision %d: %w", c.name, revision, ErrWentBack)
	}
	return nil
}

// guard ends the watch when no member is connected any more. The library would
// connect again and go on at the revision where it was, without a way to tell
// that the store was replaced meanwhile. That one of several members went away
// is left to the library: the others are the same store.
func (c *Client) guard(ctx context.Context, cancel context.CancelCauseFunc) error {
	conn := c.etcd.ActiveConnection()
	if conn == nil {
		return nil // in process
	}
	if conn.GetState() != connectivity.Ready {
		return c.away(fmt.Errorf("etcd at %s: %w", c.name, ErrDisconnected))
	}
	go func() {
		if conn.WaitForStateChange(ctx, connectivity.Ready) {
			cancel(ErrDisconnected)
		}
	}()
	return nil
}

// ended says why a watch ended without a word of the store.
func (c *Client) ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, ErrDisconnected) {
		return c.away(fmt.Errorf("etcd at %s: %w", c.name, ErrDisconnected))
	}
	return cause
}
