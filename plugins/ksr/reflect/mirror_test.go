package reflect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/memstore"
)

// guarded is a store whose guard ends when a test sends an error.
type guarded struct {
	*memstore.Store
	lost chan error
}

func (g guarded) Guard(ctx context.Context) error {
	select {
	case err := <-g.lost:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

var mirrorKinds = []model.Kind{model.KindNamespace, model.KindNetworkPolicy, model.KindPod}

// mirrorBench is a mirror that runs over a store in memory.
type mirrorBench struct {
	*Mirror
	store guarded
	stop  func()
}

func pods(names ...string) (out []proto.Message) {
	for _, n := range names {
		out = append(out, &model.Pod{Namespace: "shop", Name: n})
	}
	return out
}

func newMirrorBench() *mirrorBench {
	b := &mirrorBench{
		Mirror: NewMirror(memstore.Prefix, mirrorKinds, discard()),
		store:  guarded{memstore.New(), make(chan error)}, stop: func() {},
	}
	b.Identify(Identity{Cluster: "test", Writer: "test"})
	return b
}

// fill gives the first state of every kind.
func (b *mirrorBench) fill(t *testing.T) {
	t.Helper()
	b.replace(t, model.KindPod, pods("a", "b")...)
	b.replace(t, model.KindNamespace, &model.Namespace{Name: "shop"})
	b.replace(t, model.KindNetworkPolicy, &model.NetworkPolicy{Namespace: "shop", Name: "p"})
}

func (b *mirrorBench) replace(t *testing.T, kind model.Kind, values ...proto.Message) {
	t.Helper()
	if err := b.Replace(kind, values, nil); err != nil {
		t.Fatal(err)
	}
}

func (b *mirrorBench) put(t *testing.T, value proto.Message) {
	t.Helper()
	if err := b.Put(value); err != nil {
		t.Fatal(err)
	}
}

// run runs the mirror until stop.
func (b *mirrorBench) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx, b.store, time.Minute) }()
	b.stop = func() {
		t.Helper()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run ended with %v", err)
		}
	}
	synctest.Wait()
}

// did returns and forgets what was written.
func (b *mirrorBench) did() []string {
	synctest.Wait()
	b.store.Mu.Lock()
	defer b.store.Mu.Unlock()
	ops := b.store.Ops
	b.store.Ops = nil
	return ops
}

func (b *mirrorBench) wantOps(t *testing.T, want ...string) {
	t.Helper()
	if got := b.did(); !slices.Equal(got, want) {
		t.Errorf("written: %q\nwant:    %q", got, want)
	}
}

func inBench(t *testing.T, test func(*testing.T, *mirrorBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newMirrorBench()
		test(t, b)
		b.stop()
	})
}

func TestMirrorWritesNothingBeforeWholeState(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.store.Values[model.Key(memstore.Prefix, podID("old"))] = []byte("x")
		b.replace(t, model.KindPod, pods("a")...)
		b.replace(t, model.KindNamespace)
		b.run(t)
		b.wantOps(t)
		if s := b.Status(); len(s.Missing) != 1 || s.Missing[0] != model.KindNetworkPolicy || s.Synced {
			t.Errorf("status is %+v", s)
		}
		b.replace(t, model.KindNetworkPolicy, &model.NetworkPolicy{Namespace: "shop", Name: "p"})
		b.wantOps(t, "put networkpolicy/shop/p", "put pod/shop/a", "delete pod/shop/old")
		if s := b.Status(); !s.Synced || s.Pending != 0 || s.Objects[model.KindPod] != 1 {
			t.Errorf("status is %+v", s)
		}
	})
}

func TestMirrorWritesPoliciesFirstDeletesThemLast(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		b.wantOps(t, "put networkpolicy/shop/p", "put namespace/_/shop", "put pod/shop/a", "put pod/shop/b")
		b.stop()
		b.replace(t, model.KindNetworkPolicy)
		b.replace(t, model.KindPod)
		b.replace(t, model.KindNamespace, &model.Namespace{Name: "other"})
		b.run(t)
		b.wantOps(t, "put namespace/_/other", "delete pod/shop/a", "delete pod/shop/b", "delete namespace/_/shop", "delete networkpolicy/shop/p")
	})
}

func TestMirrorSkipsWritesWithoutChange(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		b.did()
		b.fill(t)
		b.put(t, &model.Pod{Namespace: "shop", Name: "a"})
		b.Delete(podID("never"))
		b.wantOps(t)
		time.Sleep(10 * time.Minute) // sweeps
		b.wantOps(t)
		if s := b.Status(); s.Sweeps[sweepTimer] < 9 || s.Drift != 0 || s.Unchanged == 0 {
			t.Errorf("status is %+v", s)
		}
		b.stop()
		b.run(t) // another term of the same process
		b.wantOps(t)
	})
}

func TestMirrorWritesNewestStateAfterFailure(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		b.did()
		b.store.Fail(nil, errors.New("full"))
		for i := range 100 {
			b.put(t, &model.Pod{Namespace: "shop", Name: "a", NodeName: fmt.Sprint("n", i)})
			b.put(t, &model.Pod{Namespace: "shop", Name: fmt.Sprint("short-lived-", i)})
			b.Delete(podID(fmt.Sprint("short-lived-", i)))
		}
		synctest.Wait()
		if s := b.Status(); s.Pending != 1 || s.Synced || s.Errors == 0 {
			t.Errorf("status is %+v", s)
		}
		b.did()
		b.store.Fail(nil, nil)
		time.Sleep(2 * maxMirrorWait)
		b.wantOps(t, "put pod/shop/a")
		if s := b.Status(); s.Pending != 0 || !s.Synced || s.Sweeps[sweepFailed] == 0 {
			t.Errorf("status is %+v", s)
		}
	})
}

// errNamed is an error with a short name.
type errNamed struct{ error }

func (errNamed) Reason() string { return "went_back" }

func TestMirrorRestoresStoreSetBack(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		b.did()
		b.store.Mu.Lock()
		delete(b.store.Values, model.Key(memstore.Prefix, podID("a")))
		b.store.Values[model.Key(memstore.Prefix, podID("b"))] = []byte("older")
		b.store.Values[model.Key(memstore.Prefix, podID("gone"))] = []byte("deleted meanwhile")
		b.store.Values[model.Root(memstore.Prefix)+"strange"] = []byte{}
		b.store.Mu.Unlock()
		b.store.lost <- errNamed{errors.New("restored")}
		time.Sleep(time.Second)
		b.wantOps(t, "put pod/shop/a", "put pod/shop/b", "delete strange", "delete pod/shop/gone")
		if s := b.Status(); s.Drift != 4 || s.Sweeps["went_back"] != 1 {
			t.Errorf("status is %+v", s)
		}
	})
}

func TestMirrorKeepsLastVersionOfRefusedObject(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		b.did()
		if err := b.Replace(model.KindPod, pods("c"), map[model.ID]proto.Message{podID("a"): nil, podID("never"): nil}); err != nil {
			t.Fatal(err)
		}
		b.wantOps(t, "put pod/shop/c", "delete pod/shop/b")
		if err := b.Replace(model.KindPod, []proto.Message{&model.Namespace{Name: "shop"}}, nil); err == nil {
			t.Error("a namespace is a pod")
		}
		if err := b.Put(&model.Label{}); err == nil {
			t.Error("a label is an object")
		}
		b.wantOps(t)
	})
}

// TestMirrorLeavesStoreWhatCannotBeRead: a new process does not know the last version of an object
// that can be read. The store does. What has no such version is what stands in for it.
func TestMirrorLeavesStoreWhatCannotBeRead(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		policy := func(name, why string) (model.ID, *model.NetworkPolicy) {
			return model.ID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: name}, &model.NetworkPolicy{Namespace: "shop", Name: name, IsolatesIngress: true, Refused: why}
		}
		for _, why := range []string{"", "before"} {
			id, m := policy("known"+why, why)
			value, _ := model.Encode(m)
			b.store.Values[model.Key(memstore.Prefix, id)] = value
		}
		b.store.Values[model.Key(memstore.Prefix, model.ID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "nonsense"})] = []byte("x")
		pod, _ := model.Encode(pods("kept")[0])
		b.store.Values[model.Key(memstore.Prefix, podID("kept"))] = pod
		keep := map[model.ID]proto.Message{}
		for _, name := range []string{"known", "knownbefore", "new", "nonsense"} {
			id, m := policy(name, "now")
			keep[id] = m
		}
		b.replace(t, model.KindNamespace)
		if err := b.Replace(model.KindPod, nil, map[model.ID]proto.Message{podID("kept"): nil, podID("never"): nil}); err != nil {
			t.Fatal(err)
		}
		if err := b.Replace(model.KindNetworkPolicy, nil, keep); err != nil {
			t.Fatal(err)
		}
		b.run(t)
		b.wantOps(t, "put networkpolicy/shop/knownbefore", "put networkpolicy/shop/new", "put networkpolicy/shop/nonsense")
		for _, name := range []string{"known", "new"} {
			id, m := policy(name, "later")
			if err := b.Keep(id, m); err != nil {
				t.Fatal(err)
			}
		}
		b.wantOps(t, "put networkpolicy/shop/new")
		id, m := policy("new", "")
		b.put(t, m)
		_, bad := policy("new", "again")
		if err := b.Keep(id, bad); err != nil {
			t.Fatal(err)
		}
		b.wantOps(t, "put networkpolicy/shop/new")
		time.Sleep(2 * time.Minute) // sweeps by the timer
		b.wantOps(t)
		known, _ := policy("known", "")
		b.Delete(known)
		b.Delete(podID("kept"))
		b.Delete(podID("never"))
		b.replace(t, model.KindNetworkPolicy)
		b.wantOps(t, "delete pod/shop/kept", "delete networkpolicy/shop/known", "delete networkpolicy/shop/knownbefore",
			"delete networkpolicy/shop/new", "delete networkpolicy/shop/nonsense")
		if len(b.kept) != 0 {
			t.Errorf("it remembers %v", b.kept)
		}
	})
}

// TestMirrorUndoesChangesRevertedDuringWrite reverts a change of the source while the store is
// busy: the write is then useless, and its duration is not reported.
func TestMirrorUndoesChangesRevertedDuringWrite(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		var longest time.Duration
		b.OnWritten(func(took time.Duration) { longest = max(longest, took) })
		b.fill(t)
		b.run(t)
		b.did()
		b.store.Meanwhile = func() {
			time.Sleep(time.Second)
			b.put(t, &model.Pod{Namespace: "shop", Name: "a"})
			b.Delete(podID("c"))
		}
		if err := b.Replace(model.KindPod, append(pods("b", "c"), &model.Pod{Namespace: "shop", Name: "a", NodeName: "n"}), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		b.wantOps(t, "put pod/shop/a", "put pod/shop/c", "put pod/shop/a", "delete pod/shop/c")
		if longest > time.Second {
			t.Errorf("something took %v", longest)
		}
		if s := b.Status(); s.Pending != 0 || s.Errors != 0 {
			t.Errorf("status is %+v", s)
		}
	})
}

func TestMirrorCompletesHalfWrite(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		b.did()
		b.store.Fail(nil, errors.New("cut off")) // after half of it
		b.replace(t, model.KindPod, pods("c", "d", "e", "f")...)
		time.Sleep(time.Second)
		b.store.Fail(errors.New("away"), nil)
		time.Sleep(time.Second)
		b.store.Fail(nil, nil)
		time.Sleep(2 * maxMirrorWait)
		b.did()
		want := []string{"namespace/_/shop", "networkpolicy/shop/p", "pod/shop/c", "pod/shop/d", "pod/shop/e", "pod/shop/f"}
		if got := b.store.Keys(); !slices.Equal(got, want) {
			t.Errorf("the store holds %q, want %q", got, want)
		}
	})
}
