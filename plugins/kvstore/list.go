package kvstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/api/model"
)

// defaultPageSize is a compromise: for each page the server walks the rest of the range to count
// it, and it holds one page in memory per client.
const defaultPageSize = 2000

// mostPages bounds what is counted: of a large range a page has its share, so that the work of the
// server is linear.
const mostPages = 32

// List returns every key under the prefix, in order, and the revision of the store at which it read
// them. It reads large states in pages; if the revision is compacted between two pages, the error
// wraps ErrCompacted and the call must be repeated. The caller owns the values; none is nil.
func (c *Client) List(ctx context.Context, prefix string) ([]model.Entry, int64, error) {
	var (
		entries  []model.Entry
		revision int64
		size     = c.pageSize
		next     = prefix
		end      = clientv3.GetPrefixRangeEnd(prefix)
	)
	for more := true; more; {
		page, err := c.conn.get(ctx, next, clientv3.WithRange(end), clientv3.WithLimit(size), clientv3.WithRev(revision))
		if err != nil {
			return nil, 0, fmt.Errorf("list %s: %w", prefix, err)
		}
		if revision == 0 { // the first page determines the revision of all
			revision = page.Header.GetRevision()
			entries = make([]model.Entry, 0, page.Count)
			size = max(size, page.Count/mostPages)
		}
		for _, kv := range page.Kvs {
			entries = append(entries, model.Entry{Key: string(kv.Key), Value: present(kv.Value), Revision: kv.ModRevision})
		}
		more = page.More && len(page.Kvs) > 0
		if more {
			next = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		}
	}
	return entries, revision, nil
}

// Revision returns the revision at which a key was last written; 0 if it does not exist.
func (c *Client) Revision(ctx context.Context, key string) (int64, error) {
	return c.written(ctx, key)
}

// Newest returns the newest revision at which an existing key under the prefix was written; 0 if
// there is none.
func (c *Client) Newest(ctx context.Context, prefix string) (int64, error) {
	return c.written(ctx, prefix, append(clientv3.WithLastRev(), clientv3.WithPrefix())...)
}

func (c *Client) written(ctx context.Context, key string, opts ...clientv3.OpOption) (int64, error) {
	resp, err := c.conn.get(ctx, key, append(opts, clientv3.WithKeysOnly())...)
	if err != nil || len(resp.Kvs) == 0 {
		return 0, err
	}
	return resp.Kvs[0].ModRevision, nil
}

// present distinguishes an empty value from a deleted key, whose value is nil.
func present(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}
