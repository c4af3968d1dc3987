package reflect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/memstore"
)

// marker waits and returns what the store has.
func (b *mirrorBench) marker() *model.Marker {
	synctest.Wait()
	b.store.Mu.Lock()
	defer b.store.Mu.Unlock()
	return b.store.Marker()
}

func TestMirrorMarkerComesAfterWholeState(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.store.Each = func() {
			if c := b.store.Counts(); b.store.Marker() != nil && c.Total() < 2502 {
				t.Fatalf("there is a marker with %v", c)
			}
		}
		b.fill(t)
		b.replace(t, model.KindPod, manyPods(2500)...) // more than a batch
		b.run(t)
		m := b.marker()
		if m == nil || m.Cluster != "test" || m.Generation < time.Now().Add(-time.Minute).UnixMilli() || m.Accepted != 0 ||
			!m.Counts.Equal(model.Counts{"pod": 2500, "namespace": 1, "networkpolicy": 1}) {
			t.Errorf("the marker is %+v", m)
		}
	})
}

// TestMirrorMarkerIsTrueAtEveryRevision adds and deletes objects, makes writes fail half way and
// ends terms: at no revision does the store hold less than its marker promises.
func TestMirrorMarkerIsTrueAtEveryRevision(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.store.Each = func() {
			if m, c := b.store.Marker(), b.store.Counts(); m != nil && c.Lacks(m.Counts) != "" {
				t.Errorf("the store holds %v, the marker promises %v", c, m.Counts)
			}
		}
		b.fill(t)
		b.run(t)
		r := rand.New(rand.NewPCG(3, 4))
		for range 2000 {
			switch n := r.IntN(40); {
			case n < 20:
				b.put(t, &model.Pod{Namespace: "shop", Name: fmt.Sprint("p", r.IntN(100))})
			case n < 36:
				b.Delete(podID(fmt.Sprint("p", r.IntN(100))))
			case n == 36:
				b.replace(t, model.KindPod, pods("a", "b", fmt.Sprint("p", r.IntN(100)))...)
			case n == 37:
				b.store.Fail(nil, errors.New("cut off"))
				time.Sleep(time.Second)
				b.store.Fail(nil, nil)
			case n == 38:
				b.stop()
				b.run(t)
			default:
				time.Sleep(time.Duration(r.IntN(20)) * time.Second)
			}
		}
		time.Sleep(2*maxMirrorWait + 2*markerEvery)
		if m, c := b.marker(), b.store.Counts(); m == nil || !m.Counts.Equal(c) {
			t.Errorf("in the end the store holds %v, the marker says %+v", c, m)
		}
	})
}

func TestMirrorMarkerIsNotWrittenPerEvent(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.replace(t, model.KindPod, manyPods(1000)...)
		b.run(t)
		b.store.Marks = nil
		for i := range 500 { // five in a second
			b.put(t, &model.Pod{Namespace: "shop", Name: fmt.Sprint("new", i)})
			b.Delete(podID(fmt.Sprint("new", i-5)))
			time.Sleep(200 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(b.store.Marks); n > 15 {
			t.Errorf("the marker was written %d times for 1 000 changes in 100 s", n)
		}
	})
}

// TestMirrorGenerationGrowsWithComparisons: so a backup that is older than the last comparison has
// a lower one, although nothing differed.
func TestMirrorGenerationGrowsWithComparisons(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		first := b.marker()
		time.Sleep(2 * time.Minute) // a sweep by the timer
		if m := b.marker(); m.Generation <= first.Generation || !m.Counts.Equal(first.Counts) {
			t.Errorf("after a sweep by the timer the marker went from %+v to %+v", first, m)
		}
		first.Generation += time.Hour.Milliseconds() // of a replica whose clock is ahead
		value, _ := model.EncodeMarker(first)
		b.store.Put(model.MarkerKey(memstore.Prefix), value)
		b.store.lost <- errNamed{errors.New("restored")}
		time.Sleep(time.Second)
		if m := b.marker(); m.Generation <= first.Generation {
			t.Errorf("after the store was set back the generation is %d, before %d", m.Generation, first.Generation)
		}
		b.store.Mu.Lock()
		delete(b.store.Values, model.MarkerKey(memstore.Prefix))
		b.store.Mu.Unlock()
		time.Sleep(2 * time.Minute)
		if m := b.marker(); m == nil {
			t.Error("the marker was deleted, and is not there again")
		}
	})
}

// TestMirrorMarkerFollowsDeletions: a deletion leaves nothing that is newer than what it deleted,
// so that the store would look like a backup of before. The marker does, some seconds later.
func TestMirrorMarkerFollowsDeletions(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		for _, name := range []string{"a", "b"} { // the second leaves no pod: the counts cannot fall further
			b.Delete(podID(name))
			synctest.Wait()
			b.store.TakeMarks()
			time.Sleep(2 * markerEvery)
			synctest.Wait()
			if n := len(b.store.TakeMarks()); n != 1 {
				t.Errorf("after the deletion of %s the marker was written %d times", name, n)
			}
		}
		time.Sleep(markerEvery) // before the next sweep
		synctest.Wait()
		if marks := b.store.TakeMarks(); len(marks) != 0 {
			t.Errorf("nothing changed, and the marker was written: %q", marks)
		}
	})
}

// TestMirrorRaisesLevelBeforeObjects: no reader sees an object of a writer of a higher
// level without that level, however many transactions its write is. A writer of a lower level
// lowers it once nothing of the other is left.
func TestMirrorRaisesLevelBeforeObjects(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		if m := b.marker(); m == nil || m.Level != 0 {
			t.Fatalf("the marker is %+v", m)
		}
		b.stop()
		b.Identify(Identity{Cluster: "test", Level: 3})
		b.replace(t, model.KindPod, manyPods(250)...)
		b.store.Each = func() {
			if c := b.store.Counts()["pod"]; c > 2 && b.store.Marker().Level != 3 {
				t.Errorf("%d pods are there, and the marker is %+v", c, b.store.Marker())
			}
		}
		b.run(t)
		if m := b.marker(); m.Level != 3 || m.Counts["pod"] != 250 {
			t.Errorf("the marker is %+v", m)
		}
		b.stop()
		b.store.Each = func() {
			if c := b.store.Counts()["pod"]; c > 2 && b.store.Marker().Level != 3 {
				t.Errorf("%d pods are left, and the marker is %+v", c, b.store.Marker())
			}
		}
		b.Identify(Identity{Cluster: "test", Level: 1})
		b.replace(t, model.KindPod, pods("a", "b")...)
		b.run(t)
		if m := b.marker(); m.Level != 1 || m.Counts["pod"] != 2 {
			t.Errorf("the marker is %+v", m)
		}
	})
}

func TestMirrorKeepsAcceptedState(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		m := b.marker()
		m.Accepted = m.Generation
		value, _ := model.EncodeMarker(m)
		b.store.Put(model.MarkerKey(memstore.Prefix), value)
		b.Delete(podID("a"))
		if got := b.marker(); got.Accepted != m.Generation || got.Counts["pod"] != 1 {
			t.Errorf("the marker is %+v", got)
		}
	})
}

func TestMirrorLeavesStoreOfOtherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign, _ := model.EncodeMarker(&model.Marker{Cluster: "other", Generation: 7})
		b := newMirrorBench()
		b.store.Put(model.MarkerKey(memstore.Prefix), foreign)
		b.store.Put(model.Key(memstore.Prefix, podID("theirs")), []byte("x"))
		b.fill(t)
		if err := b.Run(t.Context(), b.store, time.Minute); !errors.Is(err, ErrOtherCluster) {
			t.Errorf("run ended with %v", err)
		}
		b.wantOps(t)

		b.Identify(Identity{Cluster: "test", Accept: true})
		b.store.Each = func() {
			if m := b.store.Marker(); m != nil && (m.Cluster == "other" || b.store.Values[model.Key(memstore.Prefix, podID("theirs"))] != nil) {
				t.Errorf("while the store is taken over its marker is %+v", m)
			}
		}
		b.run(t)
		if m := b.marker(); m == nil || m.Cluster != "test" || m.Accepted != m.Generation || m.Generation <= 7 {
			t.Errorf("the marker is %+v", m)
		}
		b.stop()
	})
}

func TestMirrorNeedsIdentity(t *testing.T) {
	m := NewMirror(memstore.Prefix, mirrorKinds, discard())
	if err := m.Run(context.Background(), guarded{memstore.New(), make(chan error)}, 0); !errors.Is(err, errNoCluster) {
		t.Errorf("run ended with %v", err)
	}
}

func TestReflectorMarksItsWrites(t *testing.T) {
	s := memstore.New()
	s.Each = func() {
		if m, c := s.Marker(), s.Counts(); m != nil && c.Lacks(m.Counts) != "" {
			t.Errorf("the store holds %v, the marker promises %v", c, m.Counts)
		}
	}
	r := NewReflector(s, memstore.Prefix, discard())
	do := func(_ Stats, err error) *model.Marker {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s.Marker()
	}
	if m := do(r.Delete(t.Context(), []model.ID{podID("a")})); m != nil {
		t.Errorf("who deletes nothing from a store without a marker left %+v", m)
	}
	first := do(r.Apply(t.Context(), pods("a", "b")))
	if first == nil || first.Cluster != ManifestsCluster || first.Counts["pod"] != 2 || first.Accepted != 0 {
		t.Fatalf("the marker is %+v", first)
	}
	if m := do(r.Apply(t.Context(), pods("a", "c"))); m.Counts["pod"] != 3 || m.Generation != first.Generation {
		t.Errorf("the marker is %+v", m)
	}
	if m := do(r.Replace(t.Context(), pods("c"))); m.Counts["pod"] != 1 || m.Generation <= first.Generation {
		t.Errorf("the marker is %+v", m)
	}
	s.Marks = nil
	if do(r.Replace(t.Context(), pods("c"))); len(s.Marks) > 0 {
		t.Errorf("equal state has %q written", s.Marks)
	}
	if m := do(r.Delete(t.Context(), []model.ID{podID("c")})); m.Counts.Total() != 0 || m.Accepted != m.Generation {
		t.Errorf("after the last object the marker is %+v", m)
	}
}
