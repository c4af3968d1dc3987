package kvstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Beacon is a key that tells of a process for as long as it lives: it is on a lease. It
// belongs to one goroutine.
type Beacon struct {
	client *Client
	key    string
	ttl    time.Duration
	lease  clientv3.LeaseID
	kept   <-chan *clientv3.LeaseKeepAliveResponse
	stop   context.CancelFunc
}

// Beacon returns one that does not shine yet. The time to live is how long after the
// last sign of life of the process the key is there; at least a second.
func (c *Client) Beacon(key string, ttl time.Duration) *Beacon {
	return &Beacon{client: c, key: key, ttl: ttl, stop: func() {}}
}

// Shine puts the value, for as long as ctx and the process last. A lease that was lost
// meanwhile is replaced.
func (b *Beacon) Shine(ctx context.Context, value []byte) error {
	if !b.lit() {
		if err := b.light(ctx); err != nil {
			return fmt.Errorf("tell of this process: %w", err)
		}
	}
	err := b.client.call(ctx, callAttempts, func(ctx context.Context) error {
		_, err := b.client.etcd.Put(ctx, b.key, string(value), clientv3.WithLease(b.lease))
		return err
	})
	if err != nil {
		b.stop()
		b.kept = nil // a new lease is sure to be one that the store knows
		return fmt.Errorf("tell of this process: %w", err)
	}
	return nil
}

// lit says whether the lease is kept alive.
func (b *Beacon) lit() bool {
	for b.kept != nil {
		select {
		case _, ok := <-b.kept:
			if !ok {
				b.kept = nil
			}
		default:
			return true
		}
	}
	return false
}

func (b *Beacon) light(ctx context.Context) error {
	err := b.client.call(ctx, callAttempts, func(ctx context.Context) error {
		lease, err := b.client.etcd.Grant(ctx, max(1, int64(b.ttl/time.Second)))
		if err == nil {
			b.lease = lease.ID
		}
		return err
	})
	if err != nil {
		return err
	}
	b.stop()
	ctx, b.stop = context.WithCancel(ctx)
	b.kept, err = b.client.etcd.KeepAlive(ctx, b.lease)
	return err
}

// Douse takes the key away at once. One try: it vanishes by itself.
func (b *Beacon) Douse(ctx context.Context) error {
	b.stop()
	if b.kept == nil {
		return nil
	}
	err := b.client.call(context.WithoutCancel(ctx), 1, func(ctx context.Context) error {
		_, err := b.client.etcd.Delete(ctx, b.key)
		return err
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Revision returns the revision at which a key was written last; 0 when it does not
// exist.
func (c *Client) Revision(ctx context.Context, key string) (revision int64, err error) {
	err = c.call(ctx, callAttempts, func(ctx context.Context) error {
		resp, err := c.etcd.Get(ctx, key, clientv3.WithKeysOnly())
		if err == nil && len(resp.Kvs) > 0 {
			revision = resp.Kvs[0].ModRevision
		}
		return err
	})
	return revision, err
}

// Newest returns the newest revision at which a key under the prefix was written that
// exists; 0 when there is none.
func (c *Client) Newest(ctx context.Context, prefix string) (revision int64, err error) {
	err = c.call(ctx, callAttempts, func(ctx context.Context) error {
		resp, err := c.etcd.Get(ctx, prefix, append(clientv3.WithLastRev(), clientv3.WithPrefix(), clientv3.WithKeysOnly())...)
		if err == nil && len(resp.Kvs) > 0 {
			revision = resp.Kvs[0].ModRevision
		}
		return err
	})
	return revision, err
}
