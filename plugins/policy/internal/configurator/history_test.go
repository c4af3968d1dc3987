package configurator

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestConfiguratorHasNoHistory drives a Configurator through random transactions, and compares with one that receives the final state at once.
func TestConfiguratorHasNoHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFixture(t)
		w := world{pods: map[int][]*api.ContivPolicy{}, sets: map[api.SetID]netip.Prefix{}}
		library := [][]*api.ContivPolicy{nil, {spread("p", 1)}, {spread("p", 2)}, drawPolicies(t), drawPolicies(t)}
		for range rapid.IntRange(1, 10).Draw(t, "transactions") {
			f.commit(func(txn *Txn) { w.drawInto(t, txn, library) })
		}
		fresh := newFixture(t)
		fresh.commit(w.tell)
		if diff := cmp.Diff(fresh.r.Dump(), f.r.Dump()); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(footprint(fresh.c), footprint(f.c)); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(fresh.c.Unenforced(), f.c.Unenforced()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// world is the desired state of a Configurator.
type world struct {
	pods map[int][]*api.ContivPolicy
	sets map[api.SetID]netip.Prefix // one member each
}

func (w *world) tell(txn *Txn) {
	for pod, policies := range w.pods {
		configure(pod, policies...)(txn)
	}
	for id, member := range w.sets {
		txn.UpdateSet(id, []netip.Prefix{member}, nil)
	}
}

// drawInto changes the world and sends the txn.
func (w *world) drawInto(t *rapid.T, txn *Txn, library [][]*api.ContivPolicy) {
	for range rapid.IntRange(0, 4).Draw(t, "pods") {
		pod := rapid.IntRange(0, 4).Draw(t, "pod")
		if rapid.IntRange(0, 3).Draw(t, "remove when 0") == 0 {
			delete(w.pods, pod)
			txn.Remove(podID(pod))
			continue
		}
		w.pods[pod] = rapid.SampledFrom(library).Draw(t, "its policies")
		configure(pod, w.pods[pod]...)(txn)
	}
	id := rapid.SampledFrom([]api.SetID{300, 301}).Draw(t, "set")
	if old, ok := w.sets[id]; ok {
		delete(w.sets, id)
		txn.UpdateSet(id, nil, []netip.Prefix{old})
	} else {
		w.sets[id] = pfx("10.0.0.1/32")
		txn.UpdateSet(id, []netip.Prefix{w.sets[id]}, nil)
	}
}
