package reflect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/leaks"
	"github.com/sluice-net/sluice/tests/lab/memstore"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func podMsg(name, ip string) *model.Pod {
	return &model.Pod{Namespace: "shop", Name: name, Ips: []string{ip}}
}

func podID(name string) model.ID {
	return model.ID{Kind: model.KindPod, Namespace: "shop", Name: name}
}

func checkOps(t *testing.T, s *memstore.Store, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.TakeOps()); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

func TestReplaceMarksAndSweeps(t *testing.T) {
	s := memstore.New()
	r := NewReflector(s, memstore.Prefix, discard())
	replace := func(want Stats, values ...proto.Message) {
		t.Helper()
		got, err := r.Replace(t.Context(), values)
		if err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	s.Put("/test/other", []byte("not below the root"))
	s.Put(model.Root(memstore.Prefix)+"strange/key", []byte("of nobody"))
	replace(Stats{Put: 3, Deleted: 1}, podMsg("b", "1"), podMsg("a", "1"), &model.Namespace{Name: "shop"})
	checkOps(t, s, "put namespace/_/shop", "put pod/shop/a", "put pod/shop/b", "delete strange/key")
	replace(Stats{Unchanged: 3}, &model.Namespace{Name: "shop"}, podMsg("a", "1"), podMsg("b", "1"))
	checkOps(t, s)
	replace(Stats{Put: 1, Deleted: 2}, podMsg("a", "2"))
	checkOps(t, s, "put pod/shop/a", "delete namespace/_/shop", "delete pod/shop/b")
	replace(Stats{Deleted: 1})
	checkOps(t, s, "delete pod/shop/a")
	if s.Values["/test/other"] == nil {
		t.Error("a key of somebody else was deleted")
	}
}

func TestApplyAndDeleteTouchSingleObjects(t *testing.T) {
	s := memstore.New()
	r := NewReflector(s, memstore.Prefix, discard())
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
	if diff := cmp.Diff([]string{"pod/shop/web-2"}, s.Keys()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestReflectorNamesEffectOnEachObject(t *testing.T) {
	s := memstore.New()
	r := NewReflector(s, memstore.Prefix, discard())
	if _, err := r.Apply(t.Context(), []proto.Message{podMsg("same", "1"), podMsg("other", "1"), podMsg("going", "1")}); err != nil {
		t.Fatal(err)
	}
	checkOps(t, s, "put pod/shop/going", "put pod/shop/other", "put pod/shop/same")
	stats, got, err := r.Change(t.Context(), Change{Put: []proto.Message{podMsg("same", "1"), podMsg("other", "2"), podMsg("new", "1")}, Remove: []model.ID{podID("going"), podID("gone"), podID("gone")}})
	want := map[model.ID]Effect{podID("same"): Unchanged, podID("other"): Changed, podID("new"): Created, podID("going"): Deleted, podID("gone"): Absent}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || stats != (Stats{Put: 2, Deleted: 1, Unchanged: 2}) {
		t.Errorf("%+v, %v (-want +got):\n%s", stats, err, diff)
	}
	checkOps(t, s, "put pod/shop/new", "put pod/shop/other", "delete pod/shop/going")
	if _, _, err := r.Change(t.Context(), Change{Put: []proto.Message{podMsg("a", "1")}, Remove: []model.ID{podID("a")}}); !errors.Is(err, ErrDuplicate) {
		t.Errorf("written and deleted: %v", err)
	}
	checkOps(t, s)
}

func TestReflectorRefusesInvalidValues(t *testing.T) {
	s := memstore.New()
	r := NewReflector(s, memstore.Prefix, discard())
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

func TestReflectorCompletesAfterStoreFailure(t *testing.T) {
	gone := errors.New("gone")
	s := memstore.New()
	r := NewReflector(s, memstore.Prefix, discard())
	values := []proto.Message{podMsg("a", "1"), podMsg("b", "1")}
	s.Fail(gone, nil)
	for name, call := range map[string]func() (Stats, error){
		"replace": func() (Stats, error) { return r.Replace(t.Context(), values) },
		"apply":   func() (Stats, error) { return r.Apply(t.Context(), values) },
		"delete":  func() (Stats, error) { return r.Delete(t.Context(), []model.ID{podID("a")}) },
	} {
		if stats, err := call(); !errors.Is(err, gone) || stats != (Stats{}) {
			t.Errorf("%s: %+v, %v", name, stats, err)
		}
	}
	s.Fail(nil, gone)
	if _, err := r.Replace(t.Context(), values); !errors.Is(err, gone) {
		t.Errorf("replace: %v", err)
	}
	checkOps(t, s, "put pod/shop/a")
	s.Fail(nil, nil)
	if stats, err := r.Replace(t.Context(), values); err != nil || stats != (Stats{Put: 1, Unchanged: 1}) {
		t.Errorf("%+v, %v", stats, err)
	}
	checkOps(t, s, "put pod/shop/b")
}
