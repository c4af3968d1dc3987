package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-net/sluice/api/model"
)

// journey is a pod that gets its address, on its way. All times are of this process.
type journey struct {
	asked     time.Time // just before the request
	answered  time.Time // by the API server
	watched   time.Time // by a watch of pods at the API server, as sluice-ksr has one
	stored    time.Time // by a watch of etcd, as an agent has one
	taken     [scaleNodes]time.Time
	committed [scaleNodes]time.Time
}

// note notes a time of a change, its first one.
func (s *scale) note(pod string, of func(*journey) *time.Time) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.changes[pod]; c != nil && of(c).IsZero() {
		*of(c) = now
	}
}

// ask notes that a pod is going to be changed.
func (s *scale) ask(pod string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes[pod] = &journey{asked: time.Now()}
}

// forget drops what was measured so far.
func (s *scale) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard, s.changes = nil, map[string]*journey{}
}

// arrived waits until every change was committed on every node, and fails the test for
// those that are not.
func (s *scale) arrived() {
	s.t.Helper()
	eventually(s.t, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		missing := 0
		for _, c := range s.changes {
			for _, at := range c.committed {
				if at.IsZero() {
					missing++
				}
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d commits have not come", missing, len(s.changes)*scaleNodes)
		}
		return nil
	})
}

// scaleGoal is what the slowest hundredth should stay below, on a machine that is idle.
const scaleGoal = 50 * time.Millisecond

// stages of the way, with the time that each took.
var stages = []struct {
	name string
	took func(c *journey, node int) time.Duration
}{
	{"all", func(c *journey, n int) time.Duration { return c.committed[n].Sub(c.asked) }},
	{"API server answers", func(c *journey, _ int) time.Duration { return c.answered.Sub(c.asked) }},
	{"its watch tells", func(c *journey, _ int) time.Duration { return c.watched.Sub(c.asked) }},
	{"etcd tells, after that", func(c *journey, _ int) time.Duration { return c.stored.Sub(c.watched) }},
	{"a node takes it, after that", func(c *journey, n int) time.Duration { return c.taken[n].Sub(c.stored) }},
	{"and commits it, after that", func(c *journey, n int) time.Duration { return c.committed[n].Sub(c.taken[n]) }},
}

// report logs how long it all took, and where the slowest hundredth lost its time.
func (s *scale) report() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := make([][]time.Duration, len(stages))
	for _, c := range s.changes {
		for n := range scaleNodes {
			for i, stage := range stages {
				took[i] = append(took[i], stage.took(c, n))
			}
		}
	}
	var out strings.Builder
	late := 0
	for _, d := range took[0] {
		if d > scaleGoal {
			late++
		}
	}
	fmt.Fprintf(&out, "%d changes to %d nodes, %d of these %d later than %v", len(s.changes), scaleNodes, late, len(took[0]), scaleGoal)
	for i, stage := range stages {
		fmt.Fprintf(&out, "; %s: p50 %v p99 %v max %v", stage.name, percentile(took[i], .5), percentile(took[i], .99), percentile(took[i], 1))
	}
	fmt.Fprintf(&out, "; agents hear: p50 %v p99 %v", percentile(s.heard, .5), percentile(s.heard, .99))
	return out.String()
}

func percentile(d []time.Duration, p float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[min(len(d)-1, int(float64(len(d))*p))].Round(100 * time.Microsecond)
}

// watchAPI records the events of a watch of all pods.
func (s *scale) watchAPI() {
	s.t.Helper()
	last, err := s.cluster.of("Pod", "").List(s.t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	w, err := s.cluster.of("Pod", "").Watch(s.t.Context(), metav1.ListOptions{ResourceVersion: last.GetResourceVersion()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			if ip, _, _ := unstructured.NestedString(o.Object, "status", "podIP"); ip != "" {
				s.note(o.GetNamespace()+"/"+o.GetName(), func(c *journey) *time.Time { return &c.watched })
			}
		}
	}()
}

// watchEtcd records the events of a watch of all pods.
func (s *scale) watchEtcd() {
	s.t.Helper()
	client := reader(s.t, s.members.Endpoints())
	root := model.Root(model.DefaultPrefix) + "pod/"
	_, revision, err := client.List(s.t.Context(), root)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	s.t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		err := client.Watch(ctx, root, revision+1, func(entries []model.Entry, _ int64) {
			for _, e := range entries {
				if pod, ok := addressed(e); ok {
					s.note(pod, func(c *journey) *time.Time { return &c.stored })
				}
			}
		})
		if !errors.Is(err, context.Canceled) {
			s.t.Errorf("the watch of etcd ended: %v", err)
		}
	})
}

// addressed returns the name of a pod that has an address.
func addressed(e model.Entry) (pod string, ok bool) {
	id, err := model.ParseKey(model.DefaultPrefix, e.Key)
	if err != nil || e.Value == nil {
		return "", false
	}
	m, err := model.Decode(id, e.Value)
	p, isPod := m.(*model.Pod)
	return id.Namespace + "/" + id.Name, err == nil && isPod && len(p.GetIps()) > 0
}
