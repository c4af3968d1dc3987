package kvstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sluice-net/sluice/api/model"
)

// defaultPageSize is a compromise: the server walks the rest of the range once
// per page to count it, and holds a page in memory per client that asks.
const defaultPageSize = 2000

// List returns every key under the prefix, in order, and the revision of the
// store at which all of them were read. Large states are read in pages; when the
// revision is compacted between two pages the error wraps ErrCompacted and the
// call is to be repeated. Values are the caller's; none is nil.
func (c *Client) List(ctx context.Context, prefix string) ([]model.Entry, int64, error) {
	var (
		entries  []model.Entry
		revision int64
		next     = prefix
		end      = clientv3.GetPrefixRangeEnd(prefix)
	)
	for more := true; more; {
		page, err := c.page(ctx, next, end, revision)
		if err != nil {
			return nil, 0, fmt.Errorf("list %s: %w", prefix, err)
		}
		if revision == 0 { // the first page fixes the revision of all
			revision = page.Header.GetRevision()
			entries = make([]model.Entry, 0, page.Count)
		}
		for _, kv := range page.Kvs {
			entries = append(entries, model.Entry{Key: string(kv.Key), Value: present(kv.Value)})
		}
		more = page.More && len(page.Kvs) > 0
		if more {
			next = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		}
	}
	return entries, revision, nil
}

// page reads the keys from first on. Revision 0 is the newest one.
func (c *Client) page(ctx context.Context, first, end string, revision int64) (*clientv3.GetResponse, error) {
	var page *clientv3.GetResponse
	err := c.call(ctx, callAttempts, func(ctx context.Context) (err error) {
		page, err = c.etcd.Get(ctx, first, clientv3.WithRange(end),
			clientv3.WithLimit(c.pageSize), clientv3.WithRev(revision))
		return err
	})
	return page, err
}

// head returns the newest revision of the store. The key need not exist, but the
// user must be allowed to read it.
func (c *Client) head(ctx context.Context, key string) (int64, error) {
	var revision int64
	err := c.call(ctx, callAttempts, func(ctx context.Context) error {
		resp, err := c.etcd.Get(ctx, key, clientv3.WithKeysOnly())
		if err == nil {
			revision = resp.Header.GetRevision()
		}
		return err
	})
	return revision, err
}

// present keeps an empty value apart from a deleted key, which has none.
func present(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}
