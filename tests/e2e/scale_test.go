package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/tests/etcd"
)

// scaleEnv says how large TestScale is: "pods=10000 agents=1000 rate=100 seconds=20".
const scaleEnv = "SLUICE_SCALE"

// scale is a cluster that is measured from its API server to the tables of nodes.
type scale struct {
	*site
	pods, agents, rate, seconds int

	mu     sync.Mutex
	asked  map[string]time.Time // pod -> when its change was asked for
	tables []time.Duration      // until a node had committed it
	heard  []time.Duration      // until an agent had heard of it
	events atomic.Int64         // that agents heard
}

func scaleOf(t *testing.T) *scale {
	t.Helper()
	text := os.Getenv(scaleEnv)
	if text == "" {
		t.Skipf("%s is not set: \"make scale\" sets it", scaleEnv)
	}
	s := &scale{asked: map[string]time.Time{}}
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatalf("%s: %v", word, err)
		}
		switch name {
		case "pods":
			s.pods = n
		case "agents":
			s.agents = n
		case "rate":
			s.rate = n
		case "seconds":
			s.seconds = n
		default:
			t.Fatalf("%s is not known", word)
		}
	}
	return s
}

const (
	scaleNamespaces = 50
	scaleNodes      = 2  // with the whole pipeline
	scaleLocal      = 10 // pods of each of these, all selected by policies
	scaleWorkers    = 16
)

func scaleNamespace(i int) string { return fmt.Sprintf("team-%02d", i%scaleNamespaces) }

// policies writes one policy per namespace, whose peers are pods of all namespaces: a
// pod that comes changes an address set on every node.
func (s *scale) policies() {
	for i := range scaleNamespaces {
		ns := scaleNamespace(i)
		s.cluster.apply(fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s}}`, ns))
		s.cluster.apply(fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p, namespace: %s},
spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: app-%d}}}], ports: [{port: 80}]}]}}`, ns, i%10))
	}
}

// pod writes a pod and gives it an address, as a scheduler and a kubelet do. What is
// measured begins before the second request: the pod counts once it has an address.
func (s *scale) pod(i int, nodeName string) error {
	ns, name := scaleNamespace(i), fmt.Sprintf("pod-%06d", i)
	o := object("v1", "Pod", ns, name)
	o.SetLabels(map[string]string{"app": fmt.Sprintf("app-%d", i%10), "pod-template-hash": "5d78c9869d", "version": "v1"})
	o.Object["spec"] = map[string]any{"nodeName": nodeName, "containers": []any{map[string]any{
		"name": "main", "image": "registry.example/app:1", "ports": []any{map[string]any{"name": "http", "containerPort": int64(80)}},
	}}}
	if _, err := s.cluster.of("Pod", ns).Create(s.t.Context(), o, metav1.CreateOptions{}); err != nil {
		return err
	}
	ip := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
	body, err := json.Marshal(map[string]any{"status": map[string]any{
		"phase": "Running", "podIP": ip, "podIPs": []any{map[string]any{"ip": ip}}, "hostIP": "192.168.0.1", "hostIPs": []any{map[string]any{"ip": "192.168.0.1"}},
	}})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.asked[ns+"/"+name] = time.Now()
	s.mu.Unlock()
	_, err = s.cluster.of("Pod", ns).Patch(s.t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// burst creates pods as fast as the API server takes them.
func (s *scale) burst(from, to int, nodeOf func(int) string) {
	s.t.Helper()
	var next atomic.Int64
	next.Store(int64(from))
	var running sync.WaitGroup
	var failures atomic.Int64
	for range scaleWorkers {
		running.Go(func() {
			for i := int(next.Add(1) - 1); i < to; i = int(next.Add(1) - 1) {
				if err := s.pod(i, nodeOf(i)); err != nil {
					failures.Add(1)
				}
			}
		})
	}
	running.Wait()
	if n := failures.Load(); n > 0 {
		s.t.Fatalf("%d pods could not be made", n)
	}
}

// full waits until etcd holds so many pods with an address.
func (s *scale) full(n int) {
	s.t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		entries, _, err := s.state.List(s.t.Context(), model.Root(model.DefaultPrefix)+"pod/")
		addressed := 0
		for _, e := range entries {
			if id, perr := model.ParseKey(model.DefaultPrefix, e.Key); perr == nil {
				if m, derr := model.Decode(id, e.Value); derr == nil && len(m.(*model.Pod).GetIps()) > 0 {
					addressed++
				}
			}
		}
		if err == nil && addressed == n {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("etcd holds %d of %d pods: %v", addressed, n, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// measured is a source that notes which changes a transaction is of.
type measured struct {
	policy.Source
	s    *scale
	seen map[string]bool // pods whose address came: a deletion changes them once more
	in   []time.Time     // of the transaction that runs; the event loop's
}

// Next implements policy.Source.
func (m *measured) Next(ctx context.Context) (model.Changes, error) {
	c, err := m.Source.Next(ctx)
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	for _, d := range c.Deltas {
		if p, ok := d.Value.(*model.Pod); ok && len(p.GetIps()) > 0 && !c.Resync {
			name := d.ID.Namespace + "/" + d.ID.Name
			if at, ok := m.s.asked[name]; ok && !m.seen[name] {
				m.seen[name] = true
				m.in = append(m.in, at)
			}
		}
	}
	return c, err
}

// committed is told of every transaction.
func (m *measured) committed(st policy.Status) {
	now := time.Now()
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if !st.InSync() {
		return
	}
	for _, at := range m.in {
		m.s.tables = append(m.s.tables, now.Sub(at))
	}
	m.in = nil
}

// wholeNode runs the pipeline of a node over a watch of its own, down to the embedded
// vswitch.
func (s *scale) wholeNode(name string) {
	s.t.Helper()
	client := reader(s.t, s.members.Endpoints())
	w := datasync.New(datasync.Config{Store: client, Log: slog.New(slog.DiscardHandler)})
	m := &measured{Source: w, s: s, seen: map[string]bool{}}
	n, err := node.New(node.Config{
		Name: name, AllowNode: true, Source: m, Observer: policy.Observer{Transaction: m.committed}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) }) // it ends with its context
	s.t.Cleanup(func() {
		if err := n.Close(); err != nil {
			s.t.Error(err)
		}
		cancel()
		running.Wait()
	})
}

// lightAgents hold a connection and a watch each, and do nothing with what they hear.
func (s *scale) lightAgents() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running, ready sync.WaitGroup
	limit := make(chan struct{}, 20) // that connect at once
	for i := range s.agents {
		ready.Add(1)
		running.Go(func() {
			limit <- struct{}{}
			c, err := kvstore.Dial(ctx, kvstore.Config{Endpoints: s.members.Endpoints(), DialTimeout: time.Minute}, slog.New(slog.DiscardHandler))
			<-limit
			ready.Done()
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }() // with the test
			s.listen(ctx, c, i%10 == 0)
		})
	}
	ready.Wait()
	s.t.Cleanup(func() { cancel(); running.Wait() })
}

// listen watches until ctx ends; a sample of agents notes how long changes took.
func (s *scale) listen(ctx context.Context, c *kvstore.Client, sample bool) {
	root := model.Root(model.DefaultPrefix)
	from, err := c.Newest(ctx, root)
	if err != nil {
		return
	}
	seen := map[string]bool{}
	for ctx.Err() == nil {
		_ = c.Watch(ctx, root, from+1, func(entries []model.Entry, revision int64) {
			from = revision
			s.events.Add(int64(len(entries)))
			if !sample {
				return
			}
			now := time.Now()
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, e := range entries {
				id, err := model.ParseKey(model.DefaultPrefix, e.Key)
				if at, ok := s.asked[id.Namespace+"/"+id.Name]; err == nil && ok && e.Value != nil && now.After(at) && !seen[e.Key] {
					seen[e.Key] = true
					s.heard = append(s.heard, now.Sub(at))
				}
			}
		})
	}
}

// forget drops what was measured so far.
func (s *scale) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables, s.heard, s.asked = nil, nil, map[string]time.Time{}
}

// churn makes and removes pods at the rate, oldest first.
func (s *scale) churn(rate int, d time.Duration, first int) {
	s.t.Helper()
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	var running sync.WaitGroup
	limit := make(chan struct{}, scaleWorkers)
	var failures atomic.Int64
	for i := range int(d.Seconds() * float64(rate)) {
		<-tick.C
		limit <- struct{}{}
		running.Go(func() {
			defer func() { <-limit }()
			if err := s.pod(first+i, "elsewhere"); err != nil {
				failures.Add(1)
			}
			if old := first + i - 10*rate; old >= first {
				now := int64(0)
				_ = s.cluster.of("Pod", scaleNamespace(old)).Delete(s.t.Context(), fmt.Sprintf("pod-%06d", old), metav1.DeleteOptions{GracePeriodSeconds: &now})
			}
		})
	}
	running.Wait()
	if n := failures.Load(); n > 0 {
		s.t.Errorf("%d changes failed", n)
	}
}

// usage is what a process has used.
type usage struct {
	cpu time.Duration
	rss int64 // bytes
}

func usageOf(t *testing.T, pid int) (u usage) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	statm, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	pages, _ := strconv.Atoi(strings.Fields(string(statm))[1])
	return usage{cpu: time.Duration(user+system) * 10 * time.Millisecond, rss: int64(pages) * int64(os.Getpagesize())}
}

func percentile(d []time.Duration, p float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, int(float64(len(d))*p))].Round(100 * time.Microsecond)
}

// phase runs load and prints what was measured meanwhile.
func (s *scale) phase(t *testing.T, name string, k *ksr, load func()) {
	t.Helper()
	s.forget()
	before := s.events.Load()
	etcd0, ksr0, start := usageOf(t, s.members.PID(0)), usageOf(t, k.cmd.Process.Pid), time.Now()
	load()
	time.Sleep(500 * time.Millisecond) // what is under way arrives
	took := time.Since(start)
	etcd1, ksr1 := usageOf(t, s.members.PID(0)), usageOf(t, k.cmd.Process.Pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("%s: %d changes committed on %d nodes: p50 %v p99 %v max %v; heard by agents: p50 %v p99 %v (%d events to %d agents)", name,
		len(s.tables)/scaleNodes, scaleNodes, percentile(s.tables, .5), percentile(s.tables, .99), percentile(s.tables, 1),
		percentile(s.heard, .5), percentile(s.heard, .99), s.events.Load()-before, s.agents)
	t.Logf("%s: etcd %.2f cores, %d MiB; sluice-ksr %.2f cores, %d MiB", name,
		(etcd1.cpu-etcd0.cpu).Seconds()/took.Seconds(), etcd1.rss>>20, (ksr1.cpu-ksr0.cpu).Seconds()/took.Seconds(), ksr1.rss>>20)
}

// live returns the bytes of the heap that sluice-ksr uses.
func (k *ksr) live() float64 {
	k.t.Helper()
	n, err := strconv.ParseFloat(k.metric("go_gc_heap_live_bytes"), 64)
	if err != nil {
		k.t.Fatal(err)
	}
	return n
}

func TestScale(t *testing.T) {
	s := scaleOf(t)
	s.site = &site{t: t, cluster: startCluster(t)}
	s.cluster.grant()
	s.members = etcd.Start(t, etcd.Options{Sync: true})
	s.state = reader(t, s.members.Endpoints())
	t.Logf("%d pods, %d agents, %d cores", s.pods, s.agents, runtime.NumCPU())
	k := s.replica("ksr-0", "--sweep-interval", "5s", "--leader-ttl", "5s")
	k.says(200, "ok: leads")
	s.policies()
	empty := k.live()

	local := scaleNodes * scaleLocal
	start := time.Now()
	s.burst(0, s.pods, func(i int) string {
		if i < local {
			return fmt.Sprintf("node-%d", i%scaleNodes)
		}
		return "elsewhere"
	})
	made := time.Since(start)
	s.full(s.pods)
	t.Logf("burst: %d pods made in %v, all in etcd %v later", s.pods, made.Round(time.Millisecond), (time.Since(start) - made).Round(time.Millisecond))

	writes := k.metric(`sluice_ksr_writes_total{op="put"}`)
	sweeps := k.metric(`sluice_ksr_sweeps_total{reason="timer"}`)
	time.Sleep(11 * time.Second)
	t.Logf("steady: sweeps from %s to %s, writes from %s to %s", sweeps, k.metric(`sluice_ksr_sweeps_total{reason="timer"}`), writes, k.metric(`sluice_ksr_writes_total{op="put"}`))
	if after := k.metric(`sluice_ksr_writes_total{op="put"}`); after != writes {
		t.Errorf("a steady cluster made %s writes of %s", after, writes)
	}
	t.Logf("sluice-ksr: %.0f bytes of heap per pod (%.1f MiB live, %.1f MiB when empty)", (k.live()-empty)/float64(s.pods), k.live()/(1<<20), empty/(1<<20))

	for i := range scaleNodes {
		s.wholeNode(fmt.Sprintf("node-%d", i))
	}
	time.Sleep(2 * time.Second) // their first state
	s.phase(t, "idle, 5 changes/s, no other agents", k, func() { s.churn(5, 20*time.Second, s.pods) })
	s.lightAgents()
	s.phase(t, fmt.Sprintf("5 changes/s, %d agents", s.agents), k, func() { s.churn(5, 20*time.Second, s.pods+1000) })
	s.phase(t, fmt.Sprintf("%d pods/s, %d agents", s.rate, s.agents), k, func() { s.churn(s.rate, time.Duration(s.seconds)*time.Second, s.pods+2000) })
}
