package kvstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// LeasedKey is a key that exists as long as its process lives: it is on a lease. It
// belongs to one goroutine.
type LeasedKey struct {
	conn  *connection
	key   string
	ttl   time.Duration
	lease clientv3.LeaseID
	kept  <-chan *clientv3.LeaseKeepAliveResponse
	stop  context.CancelFunc
}

// LeasedKey returns a key that does not exist before Put. The time to live is how long after the
// last sign of life of the process the key is there; at least a second.
func (c *Client) LeasedKey(key string, ttl time.Duration) *LeasedKey {
	return &LeasedKey{conn: c.conn, key: key, ttl: ttl, stop: func() {}}
}

// Put puts the value, for as long as ctx and the process last. A lease that was lost
// meanwhile is replaced.
func (k *LeasedKey) Put(ctx context.Context, value []byte) error {
	if !k.isKept() {
		if err := k.lend(ctx); err != nil {
			return fmt.Errorf("tell of this process: %w", err)
		}
	}
	err := k.conn.call(ctx, callAttempts, func(ctx context.Context) error {
		_, err := k.conn.etcd.Put(ctx, k.key, string(value), clientv3.WithLease(k.lease))
		return err
	})
	if err != nil {
		k.stop()
		k.kept = nil // a new lease is sure to be one that the store knows
		return fmt.Errorf("tell of this process: %w", err)
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

// lend takes a new lease and keeps it alive.
func (k *LeasedKey) lend(ctx context.Context) (err error) {
	if k.lease, err = k.conn.grant(ctx, k.ttl); err != nil {
		return err
	}
	k.stop()
	ctx, k.stop = context.WithCancel(ctx)
	k.kept, err = k.conn.etcd.KeepAlive(ctx, k.lease)
	return err
}

// Revoke takes the key away at once. One try: it vanishes by itself.
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
