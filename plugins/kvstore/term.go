package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/clientv3util"

	"github.com/sluice-net/sluice/api/model"
)

// Term is the time in which one process leads: it alone writes. Its writes carry a fence, so that
// nothing is written after the term is over, even by a process that has not noticed yet. The key of
// the term is on a lease: it vanishes with the process, and its readers know whether there is an
// active leader. A Term is safe for concurrent use.
type Term struct {
	client   *Client
	key      string
	revision int64 // at which the key was created: it identifies the term
	lease    clientv3.LeaseID
	written  atomic.Int64

	stop context.CancelFunc // stops renewing the lease
	kept sync.WaitGroup
	over chan struct{} // closed when the lease is no longer renewed
}

// Lead waits until there is no leader under the key, and then becomes the leader. The value
// identifies the process for readers of the key. ttl (at least one second) is how long a process
// still counts as the leader after the last renewal. Lead waits while the store fails. It returns
// only the context's error.
func (c *Client) Lead(ctx context.Context, key string, value []byte, ttl time.Duration) (*Term, error) {
	e := election{c, key, value, ttl}
	for wait := 1; ; wait = min(wait+1, 6) {
		t, err := e.campaign(ctx)
		if err == nil {
			return t, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !errors.Is(err, ErrNotLeading) {
			c.log.Warn("cannot become the leader yet", "key", key, "error", err)
		}
		if !pause(ctx, callWait(wait)) {
			return nil, ctx.Err()
		}
	}
}

// election is a process that tries to become the leader.
type election struct {
	client *Client
	key    string
	value  []byte
	ttl    time.Duration
}

// campaign makes one attempt, which begins when the key is gone.
func (e election) campaign(ctx context.Context) (*Term, error) {
	if err := e.vacant(ctx); err != nil {
		return nil, err
	}
	lease, err := e.client.conn.grant(ctx, e.ttl)
	if err != nil {
		return nil, fmt.Errorf("lead %s: %w", e.key, err)
	}
	t := &Term{client: e.client, key: e.key, lease: lease, over: make(chan struct{})}
	if t.revision, err = e.claim(ctx, lease); err != nil {
		return nil, errors.Join(err, t.revoke(ctx))
	}
	return t, t.keep(ctx)
}

// vacant waits until the key does not exist.
func (e election) vacant(ctx context.Context) error {
	resp, err := e.client.conn.get(ctx, e.key, clientv3.WithKeysOnly())
	if err != nil || len(resp.Kvs) == 0 {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	held := true
	err = e.client.Watch(ctx, e.key, resp.Header.GetRevision()+1, func(entries []model.Entry, _ int64) {
		if isDeleted(entries, e.key) {
			held = false
			cancel()
		}
	})
	if !held {
		return nil
	}
	return err
}

// isDeleted reports whether changes delete a key.
func isDeleted(entries []model.Entry, key string) bool {
	return slices.ContainsFunc(entries, func(e model.Entry) bool { return e.Key == key && e.Value == nil })
}

// claim creates the key unless another process was faster. A repeated attempt that already took
// effect finds its own lease on the key.
func (e election) claim(ctx context.Context, lease clientv3.LeaseID) (int64, error) {
	var revision int64
	conn := e.client.conn
	err := conn.call(ctx, callAttempts, func(ctx context.Context) error {
		resp, err := conn.etcd.Txn(ctx).If(clientv3util.KeyMissing(e.key)).
			Then(clientv3.OpPut(e.key, string(e.value), clientv3.WithLease(lease))).Else(clientv3.OpGet(e.key)).Commit()
		switch {
		case err != nil:
			return err
		case resp.Succeeded:
			revision = resp.Header.GetRevision()
			return nil
		}
		for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
			if clientv3.LeaseID(kv.Lease) == lease {
				revision = kv.CreateRevision
				return nil
			}
		}
		return ErrNotLeading
	})
	return revision, err
}

// keep renews the lease until it is lost.
func (t *Term) keep(ctx context.Context) error {
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	signs, err := t.client.conn.etcd.KeepAlive(ctx, t.lease)
	if err != nil {
		t.stop()
		return errors.Join(fmt.Errorf("keep the lease of %s: %w", t.key, err), t.revoke(context.WithoutCancel(ctx)))
	}
	t.kept.Go(func() {
		defer close(t.over)
		for range signs { // ends when the lease has expired, even while the store does not answer
		}
	})
	return nil
}

// Over is closed when the lease was not renewed in time.
func (t *Term) Over() <-chan struct{} { return t.over }

// List calls List of the client.
func (t *Term) List(ctx context.Context, prefix string) ([]model.Entry, int64, error) {
	return t.client.List(ctx, prefix)
}

// Write calls Write of the client, but writes nothing when the term is over: then the error wraps
// ErrNotLeading.
func (t *Term) Write(ctx context.Context, puts []model.Entry, deletes []string) error {
	fence := clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.revision)
	b := &batch{conn: t.client.conn, fence: []clientv3.Cmp{fence}}
	err := b.write(ctx, puts, deletes)
	t.written.Store(max(t.written.Load(), b.revision))
	return err
}

// Written returns the revision of the last transaction of a Write; 0 before the first.
func (t *Term) Written() int64 { return t.written.Load() }

// Guard blocks while the term lasts and the store is certain to be the one in which it began. It
// always returns an error: the context's, one that wraps ErrNotLeading, or one of Watch, after
// which the store must be read again.
func (t *Term) Guard(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-t.over:
			cancel(fmt.Errorf("lead %s: the lease has expired: %w", t.key, ErrNotLeading))
		case <-ctx.Done():
		}
	}()
	held, err := t.verifyHeld(ctx)
	if err == nil {
		err = t.client.Watch(ctx, t.key, held+1, func(entries []model.Entry, _ int64) {
			if isDeleted(entries, t.key) {
				cancel(fmt.Errorf("lead %s: the key was deleted: %w", t.key, ErrNotLeading))
			}
		})
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// Check asks the store whether the term still lasts. If not, the error wraps ErrNotLeading. It is
// for changes outside the store, which cannot depend on the key as Write does.
func (t *Term) Check(ctx context.Context) error {
	_, err := t.verifyHeld(ctx)
	return err
}

// verifyHeld verifies that the key belongs to the term, and returns the revision of the store.
func (t *Term) verifyHeld(ctx context.Context) (revision int64, err error) {
	resp, err := t.client.conn.get(ctx, t.key, clientv3.WithKeysOnly())
	if err != nil {
		return 0, err
	}
	if len(resp.Kvs) != 1 || resp.Kvs[0].CreateRevision != t.revision {
		err = fmt.Errorf("lead %s: %w", t.key, ErrNotLeading)
	}
	return resp.Header.GetRevision(), err
}

// Resign ends the term at once, so that another process need not wait for the lease to expire. It
// may be called once.
func (t *Term) Resign(ctx context.Context) error {
	t.stop()
	t.kept.Wait()
	return t.revoke(ctx)
}

// revoke revokes the lease, which deletes the key. It makes one attempt: the lease expires anyway.
func (t *Term) revoke(ctx context.Context) error {
	return t.client.conn.call(context.WithoutCancel(ctx), 1, func(ctx context.Context) error {
		_, err := t.client.conn.etcd.Revoke(ctx, t.lease)
		return err
	})
}
