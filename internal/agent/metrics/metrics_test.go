package metrics

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy"
)

// always is a source that always has changes.
type always struct{}

func (always) Next(context.Context) (model.Changes, error) { return model.Changes{}, nil }

// measured returns how many measurements there are for a renderer, and their sum.
func (m *Metrics) measured(t *testing.T, renderer string) (n uint64, sum time.Duration) {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			if f.GetName() == "sluice_propagation_seconds" && x.GetLabel()[0].GetValue() == renderer {
				n, sum = x.GetHistogram().GetSampleCount(), time.Duration(x.GetHistogram().GetSampleSum()*float64(time.Second))
			}
		}
	}
	return n, sum.Round(time.Millisecond)
}

// TestObserverMeasuresChangesUntilSlowRendererHasThem: a change is on the way while an Apply goes
// on, and what came meanwhile until the next one has ended.
func TestObserverMeasuresChangesUntilSlowRendererHasThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		source, o := m.Source(always{}), m.Observer(func(api.Problem) bool { return false })
		next := func() {
			if _, err := source.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		fast, slow := policy.RendererStatus{Name: "fast"}, policy.RendererStatus{Name: "slow"}
		step := func() {
			o.Transaction(policy.Status{Renderers: []policy.RendererStatus{fast, slow}, BusySince: slow.BusySince})
		}
		want := func(what string, n uint64, sum time.Duration) {
			t.Helper()
			if got, took := m.measured(t, "slow"); got != n || took != sum {
				t.Errorf("%s: %d changes took %s, want %d in %s", what, got, took, n, sum)
			}
		}

		next()
		fast.Applied, slow.BusySince = 1, time.Now()
		step()
		want("an Apply that goes on", 0, 0)
		time.Sleep(time.Second)
		next() // waits for it
		fast.Applied = 2
		step()
		time.Sleep(2 * time.Second)
		slow.Applied, slow.BusySince = 1, time.Now() // and the next one goes on
		step()
		want("the Apply has ended", 1, 3*time.Second)
		if d := m.LastDuration(); d != 0 {
			t.Errorf("changes took %s that renderers are still at", d)
		}
		time.Sleep(3 * time.Second)
		slow.Applied, slow.BusySince = 2, time.Time{}
		step()
		want("what came meanwhile", 2, 8*time.Second)
		if d := m.LastDuration(); d != 6*time.Second {
			t.Errorf("changes took %s, want 6s until the slow renderer was done", d)
		}
		next()
		slow.Applied = 3
		step()
		want("a quick commit", 3, 8*time.Second)
		next()
		slow.Failures, slow.Error = 1, "the dataplane is down"
		step()
		want("a failure", 3, 8*time.Second)
		time.Sleep(time.Hour)
		slow.Applied, slow.Error = 4, ""
		step()
		want("its retry", 3, 8*time.Second)
		if n, sum := m.measured(t, "fast"); n != 4 || sum != 0 {
			t.Errorf("the other renderer: %d changes in %s", n, sum)
		}
	})
}

// TestObserverMeasuresChangesDuringCommitWithoutChanges: a prompted commit has no change that comes
// while it goes on.
func TestObserverMeasuresChangesDuringCommitWithoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		source, o := m.Source(always{}), m.Observer(func(api.Problem) bool { return false })
		slow := policy.RendererStatus{Name: "slow", BusySince: time.Now()}
		step := func() { o.Transaction(policy.Status{Renderers: []policy.RendererStatus{slow}}) }
		step()
		time.Sleep(time.Second)
		if _, err := source.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		step() // it waits
		time.Sleep(time.Second)
		slow.Applied, slow.BusySince = 1, time.Now() // the next one has it
		step()
		time.Sleep(time.Hour)
		slow.Applied, slow.BusySince = 2, time.Time{}
		step()
		if n, took := m.measured(t, "slow"); n != 1 || took != time.Hour+time.Second {
			t.Errorf("%d changes took %s, want 1 in an hour and a second", n, took)
		}
	})
}
