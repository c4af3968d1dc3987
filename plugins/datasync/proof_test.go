package datasync_test

import (
	"context"
	"errors"
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
	"github.com/sluice-net/sluice/plugins/statefile"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

// scene is what a store holds at one moment.
type scene struct {
	pods     int
	extra    []model.Entry
	marker   *model.Marker // nil: there is none
	revision int64
}

// stage is a store that a test sets from one scene to the next.
type stage struct {
	t     *testing.T
	mu    sync.Mutex
	now   scene
	moved chan struct{} // closed by the next scene
	lists int
}

func newStage(t *testing.T, s scene) *stage {
	return &stage{t: t, now: s, moved: make(chan struct{})}
}

func (s *stage) set(to scene) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = to
	close(s.moved)
	s.moved = make(chan struct{})
}

func markerEntry(t testing.TB, m *model.Marker) model.Entry {
	t.Helper()
	value, err := model.EncodeMarker(m)
	if err != nil {
		t.Fatal(err)
	}
	return model.Entry{Key: model.MarkerKey(model.DefaultPrefix), Value: value}
}

func (s *stage) List(context.Context, string) ([]model.Entry, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	entries := append(entriesOf(s.t, pods(s.now.pods, "n1")), s.now.extra...)
	if s.now.marker != nil {
		entries = append(entries, markerEntry(s.t, s.now.marker))
	}
	return entries, s.now.revision, nil
}

// Watch breaks with the next scene; a watch of the marker delivers it.
func (s *stage) Watch(ctx context.Context, prefix string, from int64, deliver func([]model.Entry, int64)) error {
	s.mu.Lock()
	moved, before := s.moved, s.now.revision != from-1
	s.mu.Unlock()
	if !before {
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if prefix == model.MarkerKey(model.DefaultPrefix) {
		deliver([]model.Entry{{Key: prefix, Value: []byte{}}}, 1)
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New("cut")
}

func marker(cluster string, generation int64, pods int) *model.Marker {
	return &model.Marker{Cluster: cluster, Generation: generation, Counts: model.Counts{model.KindPod: pods}}
}

func accepted(m *model.Marker) *model.Marker {
	m.Accepted = m.Generation
	return m
}

var shop = []model.Entry{{Key: model.Key(model.DefaultPrefix, model.ID{Kind: model.KindNamespace, Name: "shop"}), Value: mustEncode(&model.Namespace{Name: "shop"})}}

func mustEncode(m *model.Namespace) []byte {
	b, err := model.Encode(m)
	if err != nil {
		panic(err)
	}
	return b
}

// TestWatcherKeepsStateUntilStoreIsComplete: each case begins with 9 pods of cluster a,
// generation 50, at revision 100.
func TestWatcherKeepsStateUntilStoreIsComplete(t *testing.T) {
	for name, c := range map[string]struct {
		then scene
		why  string // part of the status; empty: the scene is believed
	}{
		"wiped":                              {scene{0, nil, nil, 3}, "nothing is below /sluice/k8s/"},
		"wiped beyond its old revision":      {scene{0, nil, nil, 300}, "--etcd-prefix"},
		"wiped, and filled by halves":        {scene{5, shop, nil, 300}, "has 6 objects, but sluice-ksr"},
		"a reflector without markers":        {scene{9, shop, nil, 300}, "upgrade it"},
		"a marker that cannot be read":       {scene{9, shop, &model.Marker{}, 300}, "invalid cluster"},
		"objects are missing":                {scene{4, shop, marker("a", 60, 5), 300}, "etcd has 4 of at least 5"},
		"a state of a higher level":          {scene{9, shop, &model.Marker{Cluster: "a", Generation: 60, Level: model.Level + 1, Writer: "sluice-ksr v9"}, 300}, `upgrade sluice-agent: "sluice-ksr v9" wrote it`},
		"a higher level that is accepted":    {scene{9, shop, accepted(&model.Marker{Cluster: "a", Generation: 60, Level: model.Level + 1}), 300}, "needs an agent of level"},
		"a level that is none":               {scene{9, shop, &model.Marker{Cluster: "a", Generation: 60, Level: -1}, 300}, "invalid level"},
		"another cluster":                    {scene{9, shop, marker("b", 60, 9), 300}, `state of cluster "b"`},
		"another cluster that is accepted":   {scene{3, shop, accepted(marker("b", 60, 3)), 300}, ""},
		"another cluster, accepted long ago": {scene{9, shop, &model.Marker{Cluster: "b", Generation: 60, Accepted: 40}, 300}, `state of cluster "b"`},
		"set back":                           {scene{4, shop, marker("a", 50, 4), 70}, "etcd was set back: revision 70 of generation 50"},
		"set back, and written since":        {scene{4, shop, marker("a", 40, 4), 700}, "wait until sluice-ksr has compared"},
		"set back, and compared since":       {scene{4, shop, marker("a", 51, 4), 70}, ""},
		"set back, and accepted":             {scene{4, shop, accepted(marker("a", 51, 4)), 70}, ""},
		"the last pods go":                   {scene{0, shop, marker("a", 50, 0), 101}, ""},
		"everything is gone":                 {scene{0, nil, marker("a", 60, 0), 101}, "etcd has 0 objects"},
		"the namespaces are gone":            {scene{9, nil, marker("a", 60, 0), 101}, "etcd has 9 objects and no namespace"},
		"everything is gone, and accepted":   {scene{0, nil, accepted(marker("a", 60, 0)), 101}, ""},
		"fewer objects than before":          {scene{3, shop, marker("a", 50, 3), 101}, ""},
		"more objects than it promises":      {scene{7, shop, marker("a", 50, 2), 101}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, scene{9, shop, marker("a", 50, 9), 100})
			w := runBare(t, datasync.Config{Store: s, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond})
			w.reach(t, meant(s.now))
			s.set(c.then)
			if c.why == "" {
				w.reach(t, meant(c.then))
				return
			}
			w.await(t, "the reason", func(st datasync.Status) bool { return strings.Contains(st.Incomplete, c.why) })
			if st := w.Status(); st.Objects != 10 || st.Following || st.Marker.Generation != 50 || !strings.Contains(st.LastError, c.why) {
				t.Errorf("status is %+v", st)
			}
			healed := scene{2, shop, marker("a", 1000, 2), 1000}
			s.set(healed)
			if next := w.next(t); !next.Resync || len(next.Deltas) != 3 {
				t.Errorf("the next changes are %v", next)
			}
			w.await(t, "a store that is whole", func(st datasync.Status) bool { return st.Incomplete == "" && st.Resyncs["incomplete"] == 1 })
		})
	}
}

// meant returns what a consumer has of a scene.
func meant(s scene) state {
	want := pods(s.pods, "n1")
	if len(s.extra) > 0 {
		want.add(&model.Namespace{Name: "shop"})
	}
	return want
}

// TestWatcherComparesStoreWithFile: after a restart an agent knows the cluster of its state,
// even if its prefix is wrong. The file stays unchanged.
func TestWatcherComparesStoreWithFile(t *testing.T) {
	for name, c := range map[string]struct {
		prefix string
		now    scene
		why    string
	}{
		"empty etcd":                     {"", scene{0, nil, nil, 1}, "nothing is below /sluice/k8s/"},
		"wrong prefix":                   {"/sliuce", scene{0, nil, nil, 200}, "nothing is below /sliuce/k8s/"},
		"another cluster":                {"", scene{9, shop, marker("b", 60, 9), 200}, `state of cluster "b"`},
		"set back":                       {"", scene{9, shop, marker("a", 40, 9), 50}, "etcd was set back"},
		"everything is gone":             {"", scene{0, nil, marker("a", 60, 0), 200}, "etcd has 0 objects"},
		"the same store, a little later": {"", scene{8, shop, marker("a", 50, 8), 101}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "state")
			t.Run("before", func(t *testing.T) {
				s := newStage(t, scene{9, shop, marker("a", 50, 9), 100})
				runBare(t, datasync.Config{Store: s, File: path}).reach(t, meant(s.now))
			})
			before, _, err := statefile.Load(path, model.Root(model.DefaultPrefix))
			if err != nil || before.Marker == nil || before.Marker.Counts[model.KindPod] != 9 {
				t.Fatalf("the file has %+v: %v", before, err)
			}
			t.Run("after", func(t *testing.T) {
				needed := make(chan struct{}) // nothing is needed: rules are in force
				w := runBare(t, datasync.Config{Store: newStage(t, c.now), Prefix: c.prefix, File: path, Needed: needed, MinBackoff: time.Millisecond})
				if c.why == "" {
					w.reach(t, meant(c.now))
					return
				}
				w.await(t, "the reason", func(st datasync.Status) bool { return strings.Contains(st.Incomplete, c.why) })
				if st := w.Status(); st.Objects != 0 || len(st.Resyncs) != 0 {
					t.Errorf("status is %+v", st)
				}
				if close(needed); c.prefix == "" {
					w.reach(t, meant(scene{9, shop, nil, 0}))
				}
			})
			after, _, err := statefile.Load(path, model.Root(model.DefaultPrefix))
			if err != nil || c.why != "" && !after.Saved.Equal(before.Saved) {
				t.Errorf("the file went from %+v to %+v: %v", before, after, err)
			}
		})
	}
}

// TestWatcherIgnoresDeletionsBelowMarker checks that deletions below the marker's counts have no
// effect, in any form. The store is etcd.
func TestWatcherIgnoresDeletionsBelowMarker(t *testing.T) {
	for name, wipe := range map[string]func(all []string) []string{
		"all keys":     func(all []string) []string { return all },
		"one pod":      func(all []string) []string { return all[len(all)-1:] },
		"the marker":   func([]string) []string { return []string{model.MarkerKey(model.DefaultPrefix)} },
		"the policies": func(all []string) []string { return all[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := inprocess.Start(t, embedded.Config{}).Client()
			r := reflect.NewReflector(client, model.DefaultPrefix, quiet)
			want := pods(5, "n1").add(&model.NetworkPolicy{Namespace: "shop", Name: "web"})
			values, all := valuesOf(want), []string{}
			if _, err := r.Replace(t.Context(), values); err != nil {
				t.Fatal(err)
			}
			entries, _, err := client.List(t.Context(), model.Root(model.DefaultPrefix))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if e.Key != model.MarkerKey(model.DefaultPrefix) {
					all = append(all, e.Key)
				}
			}
			w := runBare(t, datasync.Config{Store: client, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})
			w.reach(t, want)
			w.await(t, "a watch", func(s datasync.Status) bool { return s.Following })
			writeRaw(t, client, nil, wipe(all)...)
			w.await(t, "the reason", func(s datasync.Status) bool { return s.Incomplete != "" && !s.Following })
			if s := w.Status(); s.Objects != len(want) {
				t.Errorf("status is %+v", s)
			}
			want.add(newPod("late", "n1"))
			if _, err := r.Replace(t.Context(), valuesOf(want)); err != nil {
				t.Fatal(err)
			}
			w.reach(t, want)
			if last := w.changes[len(w.changes)-1]; !last.Resync || len(w.changes) != 2 {
				t.Errorf("there were %d changes, the last is %v", len(w.changes), last)
			}
		})
	}
}

// TestWatcherFollowsIntendedDeletion: deleting the last manifest is deliberate.
func TestWatcherFollowsIntendedDeletion(t *testing.T) {
	client := inprocess.Start(t, embedded.Config{}).Client()
	r := reflect.NewReflector(client, model.DefaultPrefix, quiet)
	want := pods(5, "n1").add(&model.Namespace{Name: "shop"})
	if _, err := r.Apply(t.Context(), valuesOf(want)); err != nil {
		t.Fatal(err)
	}
	w := runBare(t, datasync.Config{Store: client})
	w.reach(t, want)
	var ids []model.ID
	for id := range want {
		ids = append(ids, id)
	}
	if _, err := r.Delete(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	w.reach(t, state{})
	if _, err := r.Apply(t.Context(), valuesOf(want)); err != nil {
		t.Fatal(err)
	}
	w.reach(t, want)
}

func valuesOf(s state) (out []proto.Message) {
	for _, m := range s {
		out = append(out, m)
	}
	return out
}
