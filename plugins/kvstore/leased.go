package kvstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// LeasedKey is a key on a lease: it exists as long as its process lives. Only one goroutine may use
// it.
type LeasedKey struct {
	conn  *connection
	key   string
	ttl   time.Duration
	lease clientv3.LeaseID
	kept  <-chan *clientv3.LeaseKeepAliveResponse
	stop  context.CancelFunc
}

// LeasedKey returns a key that does not exist before Put. ttl (at least one second) is how long the
// key exists after the last renewal by the process.
func (c *Client) LeasedKey(key string, ttl time.Duration) *LeasedKey {
	return &LeasedKey{conn: c.conn, key: key, ttl: ttl, stop: func() {}}
}

// Put stores the value for as long as ctx and the process last. It replaces a lost lease.
func (k *LeasedKey) Put(ctx context.Context, value []byte) error {
	if !k.isKept() {
		if err := k.lend(ctx); err != nil {
			return fmt.Errorf("publish the key of this process: %w", err)
		}
	}
	err := k.conn.call(ctx, callAttempts, func(ctx context.Context) error {
		_, err := k.conn.etcd.Put(ctx, k.key, string(value), clientv3.WithLease(k.lease))
		return err
	})
	if err != nil {
		k.stop()
		k.kept = nil // the store certainly knows a new lease
		return fmt.Errorf("publish the key of this process: %w", err)
	}
	return nil
}

// isKept reports whether the lease is kept alive.
func (k *LeasedKey) isKept() bool {
	for k.kept != nil {
		select {
		case _, ok := <-k.kept:
			if !ok {
				k.kept = nil
			}
		default:
			return true
		}
	}
	return false
}

// lend acquires a new lease and keeps it alive.
func (k *LeasedKey) lend(ctx context.Context) (err error) {
	if k.lease, err = k.conn.grant(ctx, k.ttl); err != nil {
		return err
	}
	k.stop()
	ctx, k.stop = context.WithCancel(ctx)
	k.kept, err = k.conn.etcd.KeepAlive(ctx, k.lease)
	return err
}

// Revoke deletes the key at once. It makes one attempt: the key expires anyway.
func (k *LeasedKey) Revoke(ctx context.Context) error {
	k.stop()
	if k.kept == nil {
		return nil
	}
	err := k.conn.call(context.WithoutCancel(ctx), 1, func(ctx context.Context) error {
		_, err := k.conn.etcd.Delete(ctx, k.key)
		return err
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
