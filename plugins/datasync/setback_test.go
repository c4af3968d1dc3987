package datasync_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// history is an etcd over a data directory that can be set back.
type history struct {
	*embedded.Server
	dir string
}

func begin(t *testing.T, dir string) history {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return history{s, dir}
}

func (h history) end(t *testing.T) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

// backup returns a copy of the data, without an interruption that is seen later.
func (h *history) backup(t *testing.T) (dir string) {
	t.Helper()
	h.end(t)
	dir = filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(dir, os.DirFS(h.dir)); err != nil {
		t.Fatal(err)
	}
	*h = begin(t, h.dir)
	return dir
}

// restore continues with a backup at a revision above the one that the store has now, and compacted
// up to there, as etcdutl snapshot restore --bump-revision --mark-compacted does.
func (h *history) restore(t *testing.T, dir string) {
	t.Helper()
	_, above, err := h.Client().List(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	h.end(t)
	*h = begin(t, dir)
	for revision := int64(0); revision <= above; {
		writeRaw(t, h.Client(), []model.Entry{{Key: "/elsewhere", Value: fmt.Append(nil, revision)}})
		if _, revision, err = h.Client().List(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatcherNoticesRestoredBackup: an older etcd at a raised revision, whose marker has the
// generation that is in force, changes nothing until it was compared with the cluster. No reflector
// is there meanwhile.
func TestWatcherNoticesRestoredBackup(t *testing.T) {
	policy := &model.NetworkPolicy{Namespace: "shop", Name: "web", IsolatesIngress: true}
	for name, c := range map[string]struct {
		change  func(t *testing.T, r *reflect.Reflector) // after the backup
		restart bool                                     // the agent, too
	}{
		"a new policy":                {func(t *testing.T, r *reflect.Reflector) { apply(t, r, policy) }, false},
		"a new policy, and a restart": {func(t *testing.T, r *reflect.Reflector) { apply(t, r, policy) }, true},
		"a policy that was changed": {func(t *testing.T, r *reflect.Reflector) {
			apply(t, r, &model.NetworkPolicy{Namespace: "shop", Name: "old", IsolatesIngress: true, IsolatesEgress: true})
		}, false},
		"a policy that was deleted": {func(t *testing.T, r *reflect.Reflector) {
			if _, err := r.Delete(t.Context(), []model.ID{{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "old"}}); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := begin(t, t.TempDir())
			defer func() { h.end(t) }()
			first := pods(3, "n1").add(&model.Namespace{Name: "shop"}, &model.NetworkPolicy{Namespace: "shop", Name: "old", IsolatesIngress: true})
			r := reflect.NewReflector(h.Client(), model.DefaultPrefix, quiet)
			if _, err := r.Replace(t.Context(), valuesOf(first)); err != nil {
				t.Fatal(err)
			}
			backup := h.backup(t)
			store := &replaceable{}
			store.set(h.Client())
			cfg := datasync.Config{Store: store, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}
			if c.restart {
				cfg.File = filepath.Join(t.TempDir(), "state")
			}
			var want state
			before := func(t *testing.T) *consumer {
				w := runBare(t, cfg)
				w.reach(t, first)
				c.change(t, reflect.NewReflector(h.Client(), model.DefaultPrefix, quiet))
				entries, revision, err := h.Client().List(t.Context(), model.Root(model.DefaultPrefix))
				if err != nil {
					t.Fatal(err)
				}
				w.await(t, "the change", func(s datasync.Status) bool { return s.Newest > 0 && s.Revision >= revision })
				want = stateOf(t, entries)
				w.reach(t, want)
				return w
			}
			var w *consumer
			if c.restart {
				t.Run("before", func(t *testing.T) { before(t) })
			} else {
				w = before(t)
			}
			h.restore(t, backup)
			store.set(h.Client())
			if c.restart {
				w = runBare(t, cfg)
				w.await(t, "the reason", func(s datasync.Status) bool { return strings.Contains(s.Incomplete, "etcd was set back") })
				w.reach(t, want) // from the file
			} else {
				w.await(t, "the reason", func(s datasync.Status) bool { return strings.Contains(s.Incomplete, "etcd was set back") })
				if n := len(w.changes); w.Status().Objects != len(want) || n == 0 {
					t.Errorf("in force are %d objects, want %d", w.Status().Objects, len(want))
				}
			}
			now := first
			now.add(newPod("later", "n1"))
			if _, err := reflect.NewReflector(h.Client(), model.DefaultPrefix, quiet).Replace(t.Context(), valuesOf(now)); err != nil {
				t.Fatal(err)
			}
			w.reach(t, now)
		})
	}
}

// TestWatcherBelievesStoreAfterDisconnection: nothing of what happens in a store that goes on needs
// a comparison: a restart of it, a compaction, changes and deletions that were not received.
func TestWatcherBelievesStoreAfterDisconnection(t *testing.T) {
	h := begin(t, t.TempDir())
	defer func() { h.end(t) }()
	want := pods(5, "n1").add(&model.Namespace{Name: "shop"}, &model.NetworkPolicy{Namespace: "shop", Name: "web"})
	reflector := func() *reflect.Reflector { return reflect.NewReflector(h.Client(), model.DefaultPrefix, quiet) }
	if _, err := reflector().Replace(t.Context(), valuesOf(want)); err != nil {
		t.Fatal(err)
	}
	store := &replaceable{}
	store.set(h.Client())
	w := runBare(t, datasync.Config{Store: store, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond})
	w.reach(t, want)
	for i, meanwhile := range []func(){
		func() {},
		func() {
			id := model.ID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "web"}
			if _, err := reflector().Delete(t.Context(), []model.ID{id}); err != nil {
				t.Fatal(err)
			}
			delete(want, id)
		},
		func() {},
		func() { apply(t, reflector(), newPod("new", "n1")); want.add(newPod("new", "n1")) },
	} {
		store.set(nil)
		w.await(t, "the end of the watch", func(s datasync.Status) bool { return !s.Following })
		h.end(t)
		h = begin(t, h.dir)
		meanwhile()
		store.set(h.Client())
		w.await(t, "a watch", func(s datasync.Status) bool { return s.Following })
		w.reach(t, want)
		if s := w.Status(); s.Incomplete != "" || s.Resyncs["incomplete"] != 0 {
			t.Errorf("after step %d the status is %+v", i, s)
		}
	}
}

func apply(t *testing.T, r *reflect.Reflector, m proto.Message) {
	t.Helper()
	if _, err := r.Apply(t.Context(), []proto.Message{m}); err != nil {
		t.Fatal(err)
	}
}

// stateOf returns the objects of a store.
func stateOf(t *testing.T, entries []model.Entry) state {
	t.Helper()
	out := state{}
	for _, e := range entries {
		if e.Key == model.MarkerKey(model.DefaultPrefix) {
			continue
		}
		id, err := model.ParseKey(model.DefaultPrefix, e.Key)
		if err != nil {
			t.Fatal(err)
		}
		if out[id], err = model.Decode(id, e.Value); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

var errReplaced = errors.New("the store was replaced")

// replaceable is a store that can be replaced, and be away.
type replaceable struct {
	mu     sync.Mutex
	client *kvstore.Client // nil: it is away
	cut    context.CancelFunc
	alive  context.Context // of watches
}

// set replaces the store, which ends its watches.
func (s *replaceable) set(c *kvstore.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut != nil {
		s.cut()
	}
	s.client = c
	s.alive, s.cut = context.WithCancel(context.Background())
}

func (s *replaceable) get() (*kvstore.Client, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client, s.alive
}

func (s *replaceable) List(ctx context.Context, prefix string) ([]model.Entry, int64, error) {
	c, _ := s.get()
	if c == nil {
		return nil, 0, errReplaced
	}
	return c.List(ctx, prefix)
}

func (s *replaceable) Watch(ctx context.Context, prefix string, from int64, deliver func([]model.Entry, int64)) error {
	c, alive := s.get()
	if c == nil {
		return errReplaced
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(alive, cancel)()
	if err := c.Watch(ctx, prefix, from, deliver); alive.Err() == nil {
		return err
	}
	return errReplaced
}
