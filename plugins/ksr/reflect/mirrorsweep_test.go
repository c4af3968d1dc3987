package reflect

import (
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

// A comparison of a large store takes long, and changes must not wait for it. What it read is
// outdated for objects that were written since.
func TestMirrorPutDoesNotWaitForComparison(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		b.did()
		read := make(chan struct{})
		b.store.Slowly(read)
		time.Sleep(time.Minute + time.Second) // the store is being compared
		b.put(t, podMsg("a", "10.0.0.1"))
		b.put(t, podMsg("new", "10.0.0.2"))
		b.Delete(podID("b"))
		b.wantOps(t, "put pod/shop/a", "put pod/shop/new", "delete pod/shop/b")
		b.store.Slowly(nil)
		close(read)
		b.wantOps(t)
		if s := b.Status(); s.Drift != 0 || s.Pending != 0 || s.Sweeps[sweepTimer] != 1 {
			t.Errorf("after the comparison: %+v", s)
		}
		b.store.Put(model.Key(memstore.Prefix, podID("stranger")), []byte("x"))
		time.Sleep(2 * time.Minute)
		b.wantOps(t, "delete pod/shop/stranger")
		if s := b.Status(); s.Drift != 1 {
			t.Errorf("%d objects had drifted, want 1", s.Drift)
		}
	})
}

func TestMirrorRetriesFailedComparison(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		b.fill(t)
		b.run(t)
		b.did()
		b.store.Fail(errors.New("no answer"), nil)
		time.Sleep(time.Minute + time.Millisecond)
		synctest.Wait()
		if s := b.Status(); s.Synced || s.Errors == 0 {
			t.Errorf("a comparison failed, and it is said: %+v", s)
		}
		b.store.Fail(nil, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := b.Status(); !s.Synced || s.Sweeps[sweepFailed] == 0 {
			t.Errorf("nothing was compared again: %+v", s)
		}
		b.wantOps(t)
	})
}

// manyPods is large enough for a comparison in several parts.
func manyPods(n int) (out []proto.Message) {
	for i := range n {
		out = append(out, &model.Pod{Namespace: "shop", Name: fmt.Sprintf("pod-%06d", i), Ips: []string{fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}})
	}
	return out
}

func TestMirrorRestoresLostObjects(t *testing.T) {
	inBench(t, func(t *testing.T, b *mirrorBench) {
		const n = 2*maxBatch + maxBatch/2
		b.fill(t)
		b.replace(t, model.KindPod, manyPods(n)...)
		b.run(t)
		b.did()
		b.store.Mu.Lock()
		clear(b.store.Values)
		b.store.Mu.Unlock()
		time.Sleep(time.Minute + time.Second)
		if got := len(b.did()); got != n+2 {
			t.Errorf("%d objects were written again, want %d", got, n+2)
		}
		if s := b.Status(); s.Drift != n+2 || s.Pending != 0 || !s.Synced {
			t.Errorf("status is %+v", s)
		}
	})
}

// BenchmarkPutDuringASweep measures how long the source waits while the store is compared
// with 100 000 objects all the time.
func BenchmarkPutDuringASweep(b *testing.B) {
	store := memstore.New()
	m := NewMirror(memstore.Prefix, mirrorKinds, discard())
	if err := m.Replace(model.KindPod, manyPods(100_000), nil); err != nil {
		b.Fatal(err)
	}
	for w, _ := m.batch(); !w.empty(); w, _ = m.batch() {
		_ = store.Write(b.Context(), w.puts, w.deletes) // it cannot fail
		m.written(w, nil, markNothing)
	}
	w := writer{m, guarded{store, nil}, time.Minute}
	sweeping, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sweeping)
		for {
			select {
			case <-stop:
				return
			default:
				m.beginSweep()
				_ = w.sweep(b.Context(), sweepTimer) // it cannot fail
			}
		}
	}()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		if err := m.Put(&model.Pod{Namespace: "shop", Name: "pod-000000", NodeName: fmt.Sprint("n", i)}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
		time.Sleep(time.Millisecond)
	}
	close(stop)
	<-sweeping
	slices.Sort(took)
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "p99-ms")
	b.ReportMetric(took[len(took)-1].Seconds()*1e3, "longest-ms")
}
