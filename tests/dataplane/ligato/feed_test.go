package ligato

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/ligato/cn-infra/datasync/kvdbsync/local"
	"github.com/ligato/cn-infra/datasync/syncbase"
	"github.com/ligato/cn-infra/db/keyval"
	vpp_acl "github.com/ligato/vpp-agent/api/models/vpp/acl"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// feed replaces the agent's etcd plugin: it follows the keys of the agent in etcd and gives the
// orchestrator one event per key, in the order of etcd.
type feed struct {
	etcd     *kvstore.Client
	prefix   string // of the agent, up to its label
	registry *syncbase.Registry

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	applied int64 // revision
	errs    []error
}

func (f *feed) String() string { return "feed" }
func (f *feed) Init() error    { return nil }

// AfterInit begins to follow.
func (f *feed) AfterInit() error {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.done.Go(func() {
		err := f.etcd.Watch(ctx, f.prefix, 1, func(entries []model.Entry, revision int64) {
			for _, e := range entries {
				f.note(f.one(ctx, e), 0)
			}
			f.note(nil, revision)
		})
		if !errors.Is(err, context.Canceled) {
			f.note(err, 0)
		}
	})
	return nil
}

func (f *feed) Close() error {
	f.cancel()
	f.done.Wait()
	return nil
}

// one sends an event about one key to the orchestrator.
func (f *feed) one(ctx context.Context, e model.Entry) error {
	key := strings.TrimPrefix(e.Key, f.prefix)
	changes := local.NewProtoTxn(f.registry.PropagateChanges)
	if e.Value == nil {
		return changes.Delete(key).Commit(ctx)
	}
	var value vpp_acl.ACL
	if err := (&keyval.SerializerJSON{}).Unmarshal(e.Value, &value); err != nil {
		return err
	}
	return changes.Put(key, &value).Commit(ctx)
}

func (f *feed) note(err error, revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.applied = max(f.applied, revision); err != nil {
		f.errs = append(f.errs, err)
	}
}

func (f *feed) state() (applied int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applied, errors.Join(f.errs...)
}
