package bench

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

const (
	soakRate     = 500 // events a second
	soakBurst    = 10
	soakTick     = 20 * time.Millisecond
	soakPatience = 5 * time.Minute // until all is enforced in the end
	soakSamples  = 40              // in the whole time
	soakWarmUp   = 6 * time.Minute // etcd's history, of 5 minutes, has its size by then
)

// TestWorkloadSoak has the pods of a workload come, change and go for as long as SLUICE_SOAK says:
// from the mirror of sluice-ksr through etcd to an agent of each kind of dataplane. What grows
// meanwhile is an error. In the end the cluster is again what it was at the start, and the
// invariants of package harness are examined, Fresh and Again among them.
func TestWorkloadSoak(t *testing.T) {
	text, wanted := os.LookupEnv("SLUICE_SOAK")
	if !wanted {
		t.Skip("SLUICE_SOAK says for how long: make soak-scale")
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SLUICE_SOAK: %v", err)
	}
	w := workloads(t)[0]
	s := startSoak(t, w)
	var samples []map[string]float64
	began, events := time.Now(), 0
	for d := range s.deltas(t, w) {
		s.send(t, d)
		if events++; events%soakBurst == 0 {
			time.Sleep(time.Until(began.Add(time.Duration(events) * time.Second / soakRate)))
		}
		if passed := time.Since(began); passed > duration*time.Duration(len(samples)+1)/soakSamples {
			x := s.sample()
			x["events/s"] = float64(events) / passed.Seconds()
			samples = append(samples, x)
			t.Logf("%s: %s", passed.Round(time.Second), printed(x))
			if passed >= duration {
				break
			}
		}
	}
	for _, d := range s.start.Since(s.now, 1) {
		s.send(t, d)
	}
	s.settle(t)
	for name, series := range bySeries(samples[len(samples)*int(min(soakWarmUp, duration/2))/int(duration):]) {
		if name != "events/s" && grows(name, series) {
			t.Errorf("%s grows: %.5g", name, series)
		}
	}
	if n := s.mirror.Status(); n.Drift != 0 || n.Errors != 0 {
		t.Errorf("the mirror found drift: %+v", n)
	}
	s.check(t, w)
}

// soak is a reflector's mirror, and agents behind one etcd.
type soak struct {
	client     *kvstore.Client
	mirror     *reflect.Mirror
	agents     []*soakAgent
	start, now harness.Objects
}

func startSoak(t *testing.T, w workload) *soak {
	log := slog.New(slog.DiscardHandler)
	server := inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback})
	s := &soak{start: harness.Objects{}}
	var err error
	if s.client, err = kvstore.Dial(t.Context(), kvstore.Config{Endpoints: server.Endpoints()}, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.client.Close() })
	term, err := s.client.Lead(t.Context(), model.LeaderKey(model.DefaultPrefix, "ksr"), []byte("soak"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	kinds := slices.DeleteFunc(slices.Clone(model.Kinds), model.Kind.IsOfServices)
	s.mirror = reflect.NewMirror(model.DefaultPrefix, kinds, log)
	s.mirror.Identify(reflect.Identity{Cluster: "soak", Writer: "a test"})
	for _, d := range w.resync(t).Deltas {
		s.start[d.ID] = d.Value
	}
	s.now = maps.Clone(s.start)
	for _, kind := range kinds {
		if err := s.mirror.Replace(kind, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() { cancel(); group.Wait() })
	run := func(what string, do func(context.Context) error) {
		group.Go(func() {
			if err := do(ctx); ctx.Err() == nil || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	for _, d := range s.start.All(1) {
		s.send(t, d)
	}
	run("the mirror", func(ctx context.Context) error { return s.mirror.Run(ctx, term, 0) })
	for _, k := range dataplanes[1:] {
		a := newSoakAgent(t, k, datasync.Config{Store: s.client, Log: log})
		run(string(k), a.source.Run)
		run(string(k), a.follow)
		s.agents = append(s.agents, a)
	}
	s.settle(t)
	return s
}

// deltas are the events of a workload and what takes them back, again and again, without those that
// change nothing.
func (s *soak) deltas(t *testing.T, w workload) iter.Seq[model.Delta] {
	var events []model.Delta
	for _, e := range w.events(t) {
		events = append(events, e.change.changes(t).Deltas...)
	}
	return func(yield func(model.Delta) bool) {
		for {
			for _, d := range events {
				if old, there := s.now[d.ID]; (there || d.Value != nil) && old != d.Value && !yield(d) {
					return
				}
			}
			for _, d := range s.start.Since(s.now, 1) {
				if !yield(d) {
					return
				}
			}
		}
	}
}

// send changes the cluster.
func (s *soak) send(t *testing.T, d model.Delta) {
	for _, a := range s.agents {
		a.sent(d.ID)
	}
	if d.Value == nil {
		delete(s.now, d.ID)
		s.mirror.Delete(d.ID)
		return
	}
	s.now[d.ID] = d.Value
	if err := s.mirror.Put(d.Value); err != nil {
		t.Fatal(err)
	}
}

// settle waits until every agent enforces what was sent.
func (s *soak) settle(t *testing.T) {
	soakUntil(t, "the mirror writes all", func() bool {
		st := s.mirror.Status()
		return st.Pending == 0 && st.Synced
	})
	st, err := s.client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range s.agents {
		revision, err := a.source.Await(t.Context(), st.Revision)
		if err != nil {
			t.Fatal(err)
		}
		soakUntil(t, "an agent enforces all", func() bool { return a.reached() >= revision })
	}
}

// soakUntil waits until something is so, and fails the test if it is not for long.
func soakUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(soakPatience); !is(); time.Sleep(soakTick) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, soakPatience)
		}
	}
}

func (s *soak) sample() map[string]float64 {
	out := map[string]float64{"heap-MiB": liveHeap(), "goroutines": float64(runtime.NumGoroutine())}
	for _, n := range s.mirror.Status().Objects {
		out["objects"] += float64(n)
	}
	for _, a := range s.agents {
		a.sample(out)
	}
	return out
}

// check compares verdicts with the specification, and then each node with a new one.
func (s *soak) check(t *testing.T, w workload) {
	for _, a := range s.agents {
		n := a.Node(workloadNode)
		x := subject{tb: t, kind: a.kind, node: workloadNode, plugin: n.Plugin, backend: n.Backend}
		x.check(t, w.world(t))
		err := a.Check(t.Context(), harness.State{Expected: &harness.Expected{}, Objects: s.now})
		if err != nil {
			t.Errorf("%s: %v", a.kind, err)
		}
		t.Logf("%s: examined %+v", a.kind, a.Examined)
	}
}

// soakAgent is a node that follows the store.
type soakAgent struct {
	*harness.Cluster
	kind   kind
	source *datasync.Watcher

	mu       sync.Mutex
	due      map[model.ID]time.Time // sent, not yet fetched: the newest of an object
	took     []time.Duration        // since the last sample
	revision int64                  // that is enforced
}

func newSoakAgent(t *testing.T, k kind, cfg datasync.Config) *soakAgent {
	b, err := backends.Named(backends.All, string(k))
	if err != nil {
		t.Fatal(err)
	}
	b.Need(t)
	c, err := harness.New(b, []string{workloadNode}, harness.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return &soakAgent{Cluster: c, kind: k, source: datasync.New(cfg), due: map[model.ID]time.Time{}}
}

func (a *soakAgent) sent(id model.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due[id] = time.Now()
}

func (a *soakAgent) reached() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.revision
}

// follow enforces what comes, and notes how long that took since it was sent.
func (a *soakAgent) follow(ctx context.Context) error {
	for {
		c, err := a.source.Next(ctx)
		if err != nil {
			return err
		}
		var sent []time.Time
		a.mu.Lock()
		for _, d := range c.Deltas {
			if at, ok := a.due[d.ID]; ok {
				sent = append(sent, at)
				delete(a.due, d.ID)
			}
		}
		a.mu.Unlock()
		if err := a.Apply(ctx, c); err != nil {
			return err
		}
		a.mu.Lock()
		for _, at := range sent {
			a.took = append(a.took, time.Since(at))
		}
		a.revision = c.Revision
		a.mu.Unlock()
	}
}

// sample adds percentiles of the events since the last one, and the size of what is installed.
func (a *soakAgent) sample(out map[string]float64) {
	a.mu.Lock()
	took := a.took
	a.took = nil
	a.mu.Unlock()
	for _, percent := range []int{50, 99} {
		if len(took) > 0 {
			out[fmt.Sprintf("%s-p%d-ms", a.kind, percent)] = percentile(took, percent)
		}
	}
	if r, ok := renderer.As[renderer.Inspector](a.Node(workloadNode).Backend.Renderer()); ok {
		for _, table := range r.State().Tables {
			out[string(a.kind)+"-entries"] += float64(table.Entries)
		}
	}
}

func printed(sample map[string]float64) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sample)) {
		fmt.Fprintf(&b, "%s %.5g, ", name, sample[name])
	}
	return strings.TrimSuffix(b.String(), ", ")
}

func bySeries(samples []map[string]float64) map[string][]float64 {
	out := map[string][]float64{}
	for _, s := range samples {
		for name, v := range s {
			out[name] = append(out[name], v)
		}
	}
	return out
}

// grows reports whether the second half of a series is above the first one by more than noise, of
// which times on a shared machine have more.
func grows(name string, series []float64) bool {
	noise := 1.1
	if strings.HasSuffix(name, "-ms") {
		noise = 2
	}
	middle := len(series) / 2
	return median(series[middle:]) > noise*median(series[:middle])+2
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

func TestWorkloadSoakSeesGrowth(t *testing.T) {
	for _, c := range []struct {
		name   string
		series []float64
		want   bool
	}{
		{"heap-MiB", []float64{100, 180, 101, 99, 108, 102, 101, 107}, false},
		{"heap-MiB", []float64{100, 105, 110, 115, 120, 125, 130, 135}, true},
		{"goroutines", []float64{50, 50, 50, 50, 58, 58, 58, 58}, true},
		{"acl-p99-ms", []float64{10, 12, 40, 11, 18, 19, 16, 15}, false},
		{"acl-p99-ms", []float64{10, 12, 11, 11, 30, 31, 33, 32}, true},
	} {
		if got := grows(c.name, c.series); got != c.want {
			t.Errorf("grows(%s, %v) = %t", c.name, c.series, got)
		}
	}
}
