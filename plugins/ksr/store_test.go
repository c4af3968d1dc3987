package ksr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const testPrefix = "/test"

// memStore is a store in memory that counts what is written and fails on demand.
type memStore struct {
	mu      sync.Mutex
	values  map[string][]byte
	ops     []string // "put key" and "delete key" of objects, in order
	marks   []string // the same of the marker
	each    func()   // happens after each of both
	listErr error
	// writeErr fails a write after half of it was done.
	writeErr  error
	meanwhile func()        // happens during the next write
	slow      chan struct{} // a list gives what it has read when it is closed; nil for at once
}

func newStore() *memStore { return &memStore{values: map[string][]byte{}} }

func (s *memStore) List(ctx context.Context, prefix string) ([]model.Entry, int64, error) {
	entries, revision, slow, err := s.read(prefix)
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	return entries, revision, err
}

func (s *memStore) read(prefix string) (out []model.Entry, revision int64, slow chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listErr != nil {
		return nil, 0, s.slow, s.listErr
	}
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		if strings.HasPrefix(key, prefix) {
			out = append(out, model.Entry{Key: key, Value: s.values[key]})
		}
	}
	return out, 1, s.slow, nil
}

// slowly has lists take until the channel is closed; nil has them take no time.
func (s *memStore) slowly(until chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = until
}

func (s *memStore) Write(_ context.Context, puts []model.Entry, deletes []string) error {
	if f := s.meanwhile; f != nil {
		s.meanwhile = nil
		f()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left := len(puts) + len(deletes)
	if s.writeErr != nil {
		left /= 2
	}
	for _, e := range puts[:min(left, len(puts))] {
		s.values[e.Key] = e.Value
		s.note("put", e.Key)
		left--
	}
	for _, key := range deletes[:min(left, len(deletes))] {
		delete(s.values, key)
		s.note("delete", key)
	}
	return s.writeErr
}

// fail makes lists and writes fail; nil mends them.
func (s *memStore) fail(list, write error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listErr, s.writeErr = list, write
}

// keys returns what the store holds, without the prefix.
func (s *memStore) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		if key != model.MarkerKey(testPrefix) {
			out = append(out, strings.TrimPrefix(key, model.Root(testPrefix)))
		}
	}
	return out
}

// note keeps what was done. Tests of the marker look at marks.
func (s *memStore) note(what, key string) {
	if s.each != nil {
		s.each()
	}
	op := what + " " + strings.TrimPrefix(key, model.Root(testPrefix))
	if key == model.MarkerKey(testPrefix) {
		s.marks = append(s.marks, op)
		return
	}
	s.ops = append(s.ops, op)
}

// takeOps returns the operations since the last call.
func (s *memStore) takeOps() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ops := s.ops
	s.ops = nil
	return ops
}

func (s *memStore) put(key string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = value
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func podMsg(name, ip string) *model.Pod {
	return &model.Pod{Namespace: "shop", Name: name, Ips: []string{ip}}
}

func podID(name string) model.ID {
	return model.ID{Kind: model.KindPod, Namespace: "shop", Name: name}
}

func checkOps(t *testing.T, s *memStore, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.takeOps()); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

func TestReplaceMarksAndSweeps(t *testing.T) {
	s := newStore()
	r := NewReflector(s, testPrefix, discard())
	replace := func(want Stats, values ...proto.Message) {
		t.Helper()
		got, err := r.Replace(t.Context(), values)
		if err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	s.put("/test/other", []byte("not below the root"))
	s.put(model.Root(testPrefix)+"strange/key", []byte("of nobody"))
	replace(Stats{Put: 3, Deleted: 1}, podMsg("b", "1"), podMsg("a", "1"), &model.Namespace{Name: "shop"})
	checkOps(t, s, "put namespace/_/shop", "put pod/shop/a", "put pod/shop/b", "delete strange/key")
	replace(Stats{Unchanged: 3}, &model.Namespace{Name: "shop"}, podMsg("a", "1"), podMsg("b", "1"))
	checkOps(t, s)
	replace(Stats{Put: 1, Deleted: 2}, podMsg("a", "2"))
	checkOps(t, s, "put pod/shop/a", "delete namespace/_/shop", "delete pod/shop/b")
	replace(Stats{Deleted: 1})
	checkOps(t, s, "delete pod/shop/a")
	if s.values["/test/other"] == nil {
		t.Error("a key of somebody else was deleted")
	}
}

func TestApplyAndDeleteTouchSingleObjects(t *testing.T) {
	s := newStore()
	r := NewReflector(s, testPrefix, discard())
	check := func(got Stats, err error, want Stats) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	got, err := r.Apply(t.Context(), []proto.Message{podMsg("web-2", "1"), podMsg("web", "1")})
	check(got, err, Stats{Put: 2})
	checkOps(t, s, "put pod/shop/web", "put pod/shop/web-2")
	got, err = r.Apply(t.Context(), []proto.Message{podMsg("web", "1")})
	check(got, err, Stats{Unchanged: 1})
	got, err = r.Apply(t.Context(), nil)
	check(got, err, Stats{})
	checkOps(t, s)
	got, err = r.Delete(t.Context(), []model.ID{podID("web"), podID("gone"), podID("web")})
	check(got, err, Stats{Deleted: 1, Unchanged: 1})
	checkOps(t, s, "delete pod/shop/web")
	var many []proto.Message
	var manyIDs []model.ID
	for i := range 32 {
		name := fmt.Sprintf("m%02d", i)
		many, manyIDs = append(many, podMsg(name, "1")), append(manyIDs, podID(name))
	}
	got, err = r.Apply(t.Context(), append(many, podMsg("web-2", "1")))
	check(got, err, Stats{Put: len(many), Unchanged: 1})
	got, err = r.Delete(t.Context(), manyIDs)
	check(got, err, Stats{Deleted: len(many)})
	if diff := cmp.Diff([]string{"pod/shop/web-2"}, s.keys()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestReflectorNamesTheEffectOnEachObject(t *testing.T) {
	s := newStore()
	r := NewReflector(s, testPrefix, discard())
	if _, err := r.Apply(t.Context(), []proto.Message{podMsg("same", "1"), podMsg("other", "1"), podMsg("going", "1")}); err != nil {
		t.Fatal(err)
	}
	checkOps(t, s, "put pod/shop/going", "put pod/shop/other", "put pod/shop/same")
	stats, got, err := r.Change(t.Context(), []proto.Message{podMsg("same", "1"), podMsg("other", "2"), podMsg("new", "1")}, []model.ID{podID("going"), podID("gone"), podID("gone")})
	want := map[model.ID]Effect{podID("same"): Unchanged, podID("other"): Changed, podID("new"): Created, podID("going"): Deleted, podID("gone"): Absent}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || stats != (Stats{Put: 2, Deleted: 1, Unchanged: 2}) {
		t.Errorf("%+v, %v (-want +got):\n%s", stats, err, diff)
	}
	checkOps(t, s, "put pod/shop/new", "put pod/shop/other", "delete pod/shop/going")
	if _, _, err := r.Change(t.Context(), []proto.Message{podMsg("a", "1")}, []model.ID{podID("a")}); !errors.Is(err, ErrDuplicate) {
		t.Errorf("written and deleted: %v", err)
	}
	checkOps(t, s)
}

func TestReferencesAreThoseOfKubectl(t *testing.T) {
	for want, id := range map[string]model.ID{
		"pod/web":                             podID("web"),
		"networkpolicy.networking.k8s.io/web": {Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "web"},
		"clusternetworkpolicy.policy.networking.k8s.io/web": {Kind: model.KindClusterNetworkPolicy, Name: "web"},
	} {
		if got := Reference(id); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	load, err := LoadFiles([]string{Stdin}, strings.NewReader("{apiVersion: apps/v1, kind: Deployment, metadata: {name: foo}}\n---\n{apiVersion: v1, kind: SecretList, items: []}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: \"a\\nb\"}}\n"))
	if diff := cmp.Diff([]string{"deployment.apps/foo", "secretlist", `"secret/a\nb"`}, load.Skipped); diff != "" || err != nil {
		t.Errorf("%v, skipped (-want +got):\n%s", err, diff)
	}
}

func TestValuesThatCannotBeReflectedChangeNothing(t *testing.T) {
	s := newStore()
	r := NewReflector(s, testPrefix, discard())
	for want, values := range map[string][]proto.Message{
		"reflect Pod shop/a: the object is named twice": {podMsg("a", "1"), podMsg("a", "2")},
		"reflect: *model.Label is not a reflected kind": {podMsg("a", "1"), &model.Label{}},
		"reflect: <nil> is not a reflected kind":        {nil},
	} {
		for name, call := range map[string]func(context.Context, []proto.Message) (Stats, error){"replace": r.Replace, "apply": r.Apply} {
			stats, err := call(t.Context(), values)
			if err == nil || err.Error() != want || stats != (Stats{}) {
				t.Errorf("%s: %+v, %v; want %s", name, stats, err, want)
			}
		}
	}
	if _, err := r.Apply(t.Context(), []proto.Message{podMsg("a", "1"), podMsg("a", "1")}); !errors.Is(err, ErrDuplicate) {
		t.Errorf("%v is not ErrDuplicate", err)
	}
	checkOps(t, s)
}

func TestFailuresOfTheStoreAreReturnedAndTheNextCallDoesTheRest(t *testing.T) {
	gone := errors.New("gone")
	s := newStore()
	r := NewReflector(s, testPrefix, discard())
	values := []proto.Message{podMsg("a", "1"), podMsg("b", "1")}
	s.fail(gone, nil)
	for name, call := range map[string]func() (Stats, error){
		"replace": func() (Stats, error) { return r.Replace(t.Context(), values) },
		"apply":   func() (Stats, error) { return r.Apply(t.Context(), values) },
		"delete":  func() (Stats, error) { return r.Delete(t.Context(), []model.ID{podID("a")}) },
	} {
		if stats, err := call(); !errors.Is(err, gone) || stats != (Stats{}) {
			t.Errorf("%s: %+v, %v", name, stats, err)
		}
	}
	s.fail(nil, gone)
	if _, err := r.Replace(t.Context(), values); !errors.Is(err, gone) {
		t.Errorf("replace: %v", err)
	}
	checkOps(t, s, "put pod/shop/a")
	s.fail(nil, nil)
	if stats, err := r.Replace(t.Context(), values); err != nil || stats != (Stats{Put: 1, Unchanged: 1}) {
		t.Errorf("%+v, %v", stats, err)
	}
	checkOps(t, s, "put pod/shop/b")
}
