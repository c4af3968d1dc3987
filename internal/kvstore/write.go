package kvstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/api/model"
)

const (
	// A server takes 128 operations and 1.5 MiB per transaction unless it is told
	// otherwise.
	maxTxnOps   = 100
	maxTxnBytes = 1 << 20
)

// Write puts the entries and then deletes the keys, in the order given. It is
// atomic per transaction of at most 100 operations, not as a whole: after an
// error a first part may be written. Writing again what is already there only
// makes a new revision, so the whole call may be repeated as long as nobody else
// writes the same keys.
func (c *Client) Write(ctx context.Context, puts []model.Entry, deletes []string) error {
	return c.write(ctx, nil, puts, deletes)
}

// write is Write where every transaction has the same conditions. When one is not
// met, the error wraps ErrNotLeading.
func (c *Client) write(ctx context.Context, fence []clientv3.Cmp, puts []model.Entry, deletes []string) error {
	b := batch{fence: fence}
	for _, e := range puts {
		op := clientv3.OpPut(e.Key, string(e.Value))
		if err := c.add(ctx, &b, op, e.Key, len(e.Value)); err != nil {
			return err
		}
	}
	for _, key := range deletes {
		if err := c.add(ctx, &b, clientv3.OpDelete(key), key, 0); err != nil {
			return err
		}
	}
	return c.flush(ctx, &b)
}

// batch is a transaction in the making.
type batch struct {
	fence []clientv3.Cmp
	ops   []clientv3.Op
	keys  map[string]bool // the server refuses a key twice
	bytes int
}

// add puts an operation into the batch and sends the batch before that when the
// operation does not fit in.
func (c *Client) add(ctx context.Context, b *batch, op clientv3.Op, key string, size int) error {
	size += len(key)
	if len(b.ops) == maxTxnOps || b.bytes+size > maxTxnBytes || b.keys[key] {
		if err := c.flush(ctx, b); err != nil {
			return err
		}
	}
	if b.keys == nil {
		b.keys = make(map[string]bool, maxTxnOps)
	}
	b.ops = append(b.ops, op)
	b.keys[key] = true
	b.bytes += size
	return nil
}

// flush sends the batch and empties it.
func (c *Client) flush(ctx context.Context, b *batch) error {
	if len(b.ops) == 0 {
		return nil
	}
	err := c.call(ctx, callAttempts, func(ctx context.Context) error {
		resp, err := c.etcd.Txn(ctx).If(b.fence...).Then(b.ops...).Commit()
		if err == nil && !resp.Succeeded {
			err = ErrNotLeading
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write %d keys from %s on: %w", len(b.ops), b.ops[0].KeyBytes(), err)
	}
	b.ops, b.bytes = b.ops[:0], 0
	clear(b.keys)
	return nil
}
