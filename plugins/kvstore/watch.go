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

const (
	// progressEvery is the interval at which an idle watch requests the revision of the store, so
	// that its owner knows that nothing has changed.
	progressEvery = 5 * time.Second
	// headEvery is how often a watch compares the revision of the store with what it has seen.
	// Behind a proxy that keeps its connections, this is the only way to detect that the store was
	// restored to older data.
	headEvery = 6 // of progressEvery
	// missedEvery is how often a watch that receives nothing while the revision advances looks for
	// missed changes: rarely, because the store scans every key for it.
	missedEvery = 10 // of headEvery
)

// Watch delivers every change of a key under the prefix, from the given revision on, until the
// context ends or the watch breaks. It always returns an error: the context's, or another one,
// which wraps ErrCompacted, ErrNoLeader, ErrDisconnected or ErrWentBack in these cases. After any
// error but the context's the caller must List again.
//
// Watch calls deliver from one goroutine at a time, and not after it returned. deliver receives the
// changes of one or several complete revisions in order, and the last of these revisions. A deleted
// key has a nil Value. Without entries, only the revision has advanced. It should return soon:
// changes are buffered meanwhile. It owns the entries.
func (c *Client) Watch(ctx context.Context, prefix string, from int64, deliver func(entries []model.Entry, revision int64)) error {
	w := &watch{conn: c.conn, prefix: prefix, from: from, every: c.probeEvery, deliver: deliver, heads: make(chan int64)}
	w.reached.Store(from - 1)
	return w.run(ctx)
}

// AskProgress makes the store advance all watches of this client to its newest revision, even if
// nothing has changed for them. A store does not answer while one of its watches lags.
func (c *Client) AskProgress(ctx context.Context) { c.conn.askProgress(ctx) }

func (c *connection) askProgress(ctx context.Context) {
	// The watches report a failure, too.
	_ = c.etcd.RequestProgress(clientv3.WithRequireLeader(ctx))
}

// watch is one Watch: a goroutine that receives responses of the store, and one that probes it.
type watch struct {
	conn    *connection
	prefix  string
	from    int64
	every   time.Duration // between requests for progress
	deliver func(entries []model.Entry, revision int64)
	reached atomic.Int64 // last delivered revision
	heads   chan int64   // revisions of the store at which nothing has changed since from
}

func (w *watch) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := w.guard(ctx, cancel); err != nil {
		return fmt.Errorf("watch %s: %w", w.prefix, err)
	}
	go w.probe(ctx, cancel)
	responses := w.conn.etcd.Watch(clientv3.WithRequireLeader(ctx), w.prefix, clientv3.WithPrefix(), clientv3.WithRev(w.from),
		clientv3.WithCreatedNotify(), clientv3.WithProgressNotify(), clientv3.WithFragment())
	for {
		select {
		case resp, ok := <-responses:
			if !ok {
				return fmt.Errorf("watch %s: %w", w.prefix, w.ended(ctx))
			}
			if err := w.handleResponse(ctx, resp); err != nil {
				return fmt.Errorf("watch %s from revision %d: %w", w.prefix, w.from, err)
			}
		case head := <-w.heads:
			if head >= w.reached.Load() {
				w.deliver(nil, head)
			}
		}
	}
}

// guard ends the watch when no member is connected any more. The library would reconnect and
// continue at its last revision, and could not detect that the store was replaced meanwhile. The
// library handles the loss of one of several members: the others are the same store.
func (w *watch) guard(ctx context.Context, cancel context.CancelCauseFunc) error {
	conn := w.conn.etcd.ActiveConnection()
	if conn == nil {
		return nil // in process
	}
	if conn.GetState() != connectivity.Ready {
		return w.disconnected()
	}
	go func() {
		if conn.WaitForStateChange(ctx, connectivity.Ready) {
			cancel(ErrDisconnected)
		}
	}()
	return nil
}

func (w *watch) disconnected() error {
	return w.conn.away(fmt.Errorf("etcd at %s: %w", w.conn.name, ErrDisconnected))
}

// ended explains why a watch ended without a response of the store.
func (w *watch) ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, ErrDisconnected) {
		return w.disconnected()
	}
	return cause
}

// handleResponse handles one response, or explains why the watch cannot continue.
func (w *watch) handleResponse(ctx context.Context, resp clientv3.WatchResponse) error {
	switch {
	case ctx.Err() != nil:
		return w.ended(ctx)
	case resp.Err() != nil:
		return w.conn.explain(ctx, resp.Err())
	case resp.Created:
		return w.verify(ctx, resp.Header.GetRevision())
	case resp.IsProgressNotify():
		w.hand(nil, resp.Header.GetRevision())
	case len(resp.Events) > 0:
		entries := make([]model.Entry, len(resp.Events))
		for i, ev := range resp.Events {
			entries[i].Key = string(ev.Kv.Key)
			if ev.Type != clientv3.EventTypeDelete {
				entries[i].Value = present(ev.Kv.Value)
			}
		}
		// The revision in the header may be ahead of events that have not arrived yet.
		w.hand(entries, resp.Events[len(resp.Events)-1].Kv.ModRevision)
	}
	return nil
}

func (w *watch) hand(entries []model.Entry, revision int64) {
	w.reached.Store(max(w.reached.Load(), revision))
	w.deliver(entries, revision)
}

// verify verifies that the store has reached the revision before the first watched one. Otherwise a
// store that lost its data would stay silent until then. If a member lags, it asks again, through
// the majority.
func (w *watch) verify(ctx context.Context, revision int64) error {
	if revision >= w.from-1 {
		return nil
	}
	revision, err := w.conn.head(ctx, w.prefix)
	if err != nil {
		return err
	}
	if revision < w.from-1 {
		return fmt.Errorf("etcd at %s is at revision %d: %w", w.conn.name, revision, ErrWentBack)
	}
	return nil
}

// waits reports whether the store has not reached the first watched revision yet. Until then the
// store sends no progress (progressIfSync of etcd), so an idle store would be silent.
func (w *watch) waits() bool { return w.reached.Load() < w.from }

// probe requests progress, and ends a watch that is ahead of its store or misses changes.
func (w *watch) probe(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	var quiet silence
	for n, idle := 1, true; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		w.conn.askProgress(ctx)
		rarely := n%headEvery == 0
		if !rarely && (!idle || !w.waits()) {
			continue
		}
		before := w.reached.Load()
		head, err := w.conn.head(ctx, w.prefix)
		if err == nil {
			idle = head == before
		}
		switch {
		case err != nil:
		case head < before:
			cancel(fmt.Errorf("etcd at %s is at revision %d, and was at %d: %w", w.conn.name, head, before, ErrWentBack))
			return
		case rarely && quiet.suspicious(before, head) && w.missed(ctx, before) && w.reached.Load() == before:
			cancel(fmt.Errorf("etcd at %s has changes after revision %d: %w", w.conn.name, before, ErrMissed))
			return
		case idle:
			select {
			case w.heads <- head:
			case <-ctx.Done():
				return
			}
		}
	}
}

// missed reports whether a key below the prefix was written after a revision. It cannot find
// deletions.
func (w *watch) missed(ctx context.Context, after int64) bool {
	resp, err := w.conn.get(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1), clientv3.WithMinModRev(after+1))
	return err == nil && len(resp.Kvs) > 0
}

// silence tracks a watch that stays at a revision while that of the store advances. Usually other
// keys change; but a proxy may have attached the watch to one that it had lost (etcd issue 21813),
// and would then be silent forever.
type silence struct {
	revision int64
	heads    int // number of comparisons with the store since
}

// suspicious reports whether it is time to look for missed changes.
func (s *silence) suspicious(at, head int64) bool {
	if at != s.revision || head == at {
		*s = silence{revision: at}
		return false
	}
	s.heads++
	return s.heads%missedEvery == 1
}
