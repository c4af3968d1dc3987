package bindings_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/bindings"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const node = "n1"

var (
	web = api.PodID{Namespace: "shop", Name: "web"}
	db  = api.PodID{Namespace: "shop", Name: "db"}
)

func key(pod api.PodID, name string) model.Entry {
	return model.Entry{Key: model.InterfaceKey(model.DefaultPrefix, node, pod.Namespace, pod.Name, name), Value: []byte{}}
}

// follow runs a watcher until the test ends. Every change of its answers is a token.
func follow(t *testing.T, cfg bindings.Config) (w *bindings.Watcher, changed chan struct{}) {
	t.Helper()
	changed = make(chan struct{}, 100)
	cfg.Node, cfg.Log, cfg.OnChange = node, slog.New(slog.DiscardHandler), func() { changed <- struct{}{} }
	w = bindings.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	<-w.Ready()
	return w, changed
}

func want(t *testing.T, w *bindings.Watcher, pod api.PodID, names ...string) {
	t.Helper()
	if got := w.InterfacesOf(pod); !slices.Equal(got, names) {
		t.Errorf("%s has %v, want %v", pod, got, names)
	}
	for _, name := range names {
		if !w.IsPodInterface(name) {
			t.Errorf("%s is no interface of a pod", name)
		}
	}
}

func TestInterfacesOfFollowsStore(t *testing.T) {
	s := inprocess.Start(t, embedded.Config{})
	write := func(puts []model.Entry, deletes ...string) {
		t.Helper()
		if err := s.Client().Write(t.Context(), puts, deletes); err != nil {
			t.Fatal(err)
		}
	}
	other := model.Entry{Key: model.InterfaceKey(model.DefaultPrefix, "n2", "shop", "web", "memif9/9"), Value: []byte{}}
	write([]model.Entry{key(web, "memif0/1"), key(web, "host-eth1"), other})
	w, changed := follow(t, bindings.Config{Store: s.Client()})
	want(t, w, web, "host-eth1", "memif0/1")
	want(t, w, db)
	if w.IsPodInterface("memif9/9") {
		t.Error("an interface of another node is one of this node")
	}
	<-changed
	write([]model.Entry{key(db, "tap3")}, key(web, "host-eth1").Key)
	for len(w.InterfacesOf(db)) == 0 || len(w.InterfacesOf(web)) != 1 {
		<-changed
	}
	want(t, w, web, "memif0/1")
	want(t, w, db, "tap3")
	if w.IsPodInterface("host-eth1") {
		t.Error("an interface that was taken away is still that of a pod")
	}
}

// TestAppNamespacesOfFollowsStore has both kinds of keys in one store.
func TestAppNamespacesOfFollowsStore(t *testing.T) {
	s := inprocess.Start(t, embedded.Config{})
	space := func(pod api.PodID, id string) model.Entry {
		return model.Entry{Key: model.AppNamespaceKey(model.DefaultPrefix, node, pod.Namespace, pod.Name, id), Value: []byte{}}
	}
	if err := s.Client().Write(t.Context(), []model.Entry{key(web, "tap1"), space(web, "apps/7"), space(db, "apps/8"), space(web, "apps/9")}, nil); err != nil {
		t.Fatal(err)
	}
	spaces, changed := follow(t, bindings.Config{Store: s.Client(), AppNamespaces: true})
	interfaces, _ := follow(t, bindings.Config{Store: s.Client()})
	if got := spaces.AppNamespacesOf(web); !slices.Equal(got, []string{"apps/7", "apps/9"}) {
		t.Errorf("%s has %v", web, got)
	}
	want(t, interfaces, web, "tap1")
	want(t, interfaces, db)
	if err := s.Client().Write(t.Context(), nil, []string{space(db, "apps/8").Key}); err != nil {
		t.Fatal(err)
	}
	for len(spaces.AppNamespacesOf(db)) > 0 {
		<-changed
	}
}

// states is a store that has one state after the other; each but the last breaks the
// watch after a second.
type states struct {
	entries   [][]model.Entry
	revisions []int64
	lists     int
}

func (s *states) List(context.Context, string) ([]model.Entry, int64, error) {
	i := min(s.lists, len(s.entries)-1)
	s.lists++
	return s.entries[i], s.revisions[i], nil
}

func (s *states) Watch(ctx context.Context, _ string, _ int64, _ func([]model.Entry, int64)) error {
	if s.lists >= len(s.entries) {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(time.Second):
		return errors.New("the watch broke")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestWatcherKeepsBindingsOfEmptyStoreForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &states{entries: [][]model.Entry{{key(web, "tap1"), key(db, "tap2")}, {key(db, "tap2")}, {key(db, "tap2")}}, revisions: []int64{100, 7, 8}}
		w, _ := follow(t, bindings.Config{Store: s, Grace: time.Minute})
		time.Sleep(30 * time.Second)
		want(t, w, web, "tap1")
		want(t, w, db, "tap2")
		time.Sleep(time.Minute)
		want(t, w, web)
		want(t, w, db, "tap2")
	})
}

func TestWatcherRemovesBindingsDeletedDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &states{entries: [][]model.Entry{{key(web, "tap1"), key(db, "tap2")}, {key(db, "tap2")}}, revisions: []int64{100, 101}}
		w, _ := follow(t, bindings.Config{Store: s})
		time.Sleep(10 * time.Second)
		want(t, w, web)
		want(t, w, db, "tap2")
	})
}

func TestWatcherReportsUnreadableKeyOnce(t *testing.T) {
	root := model.InterfaceRoot(model.DefaultPrefix, node)
	bad := []model.Entry{{Key: root + "shop/web", Value: []byte{}}, {Key: root + "shop//tap1", Value: []byte{}}, {Key: root + "shop/web/" + strings.Repeat("x", 64), Value: []byte{}}}
	synctest.Test(t, func(t *testing.T) {
		s := &states{entries: [][]model.Entry{append(bad, key(db, "tap2")), append(bad, key(db, "tap2"))}, revisions: []int64{1, 2}}
		var problems []api.Problem
		w, _ := follow(t, bindings.Config{Store: s, OnProblem: func(p api.Problem) { problems = append(problems, p) }})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(problems) != len(bad) || problems[0].Source == "" {
			t.Errorf("%d problems, want %d: %v", len(problems), len(bad), problems)
		}
		want(t, w, db, "tap2")
	})
}
