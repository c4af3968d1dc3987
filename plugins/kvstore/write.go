package kvstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/api/model"
)

const (
	// By default a server accepts 128 operations and 1.5 MiB per transaction.
	maxTxnOps   = 100
	maxTxnBytes = 1 << 20
)

// Write puts the entries and then deletes the keys, in the given order. Each transaction of at most
// 100 operations is atomic, but the whole is not: after an error some transactions may be
// committed. Writing existing values again only creates a new revision, so the call may be repeated
// as long as no other client writes the same keys.
func (c *Client) Write(ctx context.Context, puts []model.Entry, deletes []string) error {
	return (&batch{conn: c.conn}).write(ctx, puts, deletes)
}

// batch is a transaction under construction. If a condition of its fence is not met, nothing of it
// is written, and the error wraps ErrNotLeading.
type batch struct {
	conn  *connection
	fence []clientv3.Cmp
	ops   []clientv3.Op
	keys  map[string]bool // the server rejects duplicate keys
	bytes int
	// revision is that of the newest transaction.
	revision int64
}

// write writes everything, in as many transactions as needed.
func (b *batch) write(ctx context.Context, puts []model.Entry, deletes []string) error {
	for _, e := range puts {
		if err := b.add(ctx, clientv3.OpPut(e.Key, string(e.Value)), e.Key, len(e.Value)); err != nil {
			return err
		}
	}
	for _, key := range deletes {
		if err := b.add(ctx, clientv3.OpDelete(key), key, 0); err != nil {
			return err
		}
	}
	return b.flush(ctx)
}

// add adds an operation to the batch; it first sends the batch if the operation does not fit.
func (b *batch) add(ctx context.Context, op clientv3.Op, key string, size int) error {
	size += len(key)
	if len(b.ops) == maxTxnOps || b.bytes+size > maxTxnBytes || b.keys[key] {
		if err := b.flush(ctx); err != nil {
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
func (b *batch) flush(ctx context.Context) error {
	if len(b.ops) == 0 {
		return nil
	}
	err := b.conn.call(ctx, callAttempts, func(ctx context.Context) error {
		resp, err := b.conn.etcd.Txn(ctx).If(b.fence...).Then(b.ops...).Commit()
		if err == nil && !resp.Succeeded {
			err = ErrNotLeading
		}
		if err == nil {
			b.revision = resp.Header.GetRevision()
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
