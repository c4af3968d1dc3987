package fuzz

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/marked"
)

// node is where every pod lives, so that the plugin enforces both ends of a flow.
const (
	node     = "n1"
	nodeAddr = "192.0.2.1"
)

// The components of the policy plugin without its event loop, so that an input always takes the
// same path: the fuzzer learns from paths.
type rooms struct {
	t        testing.TB
	handler  *policy.Handler
	recorder *renderertest.Recorder
	found    []api.Problem // by the last apply
}

// newRooms returns the components of a node with a recorder, which fails the test when the renderer
// contract is violated.
func newRooms(t testing.TB) *rooms {
	t.Helper()
	r := &rooms{t: t, recorder: renderertest.NewRecorder("recorder", t)}
	r.handler = policy.NewHandler(policy.Deps{
		Node: node, Renderers: []renderer.Renderer{r.recorder},
		Observer: policy.Observer{Problem: func(p api.Problem) { r.found = append(r.found, p) }},
	})
	if err := r.handler.Init(); err != nil {
		t.Fatal(err)
	}
	return r
}

// apply brings changes down to the recorder and returns the problems that are new.
func (r *rooms) apply(c model.Changes) []api.Problem {
	r.t.Helper()
	r.found = nil
	deliver := r.handler.Update
	if c.Resync {
		deliver = r.handler.Resync
	}
	if err := deliver(r.t.Context(), c.Deltas); err != nil {
		r.t.Fatal(err)
	}
	return r.found
}

// snapshot is what the plugin knows.
func (r *rooms) snapshot() *policy.Snapshot {
	r.t.Helper()
	s, err := r.handler.Snapshot()
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// resync is messages as the plugin takes them.
func resync(t testing.TB, messages []proto.Message) model.Changes {
	t.Helper()
	c := model.Changes{Resync: true}
	for _, m := range messages {
		id, err := model.IDOf(m)
		if err != nil {
			t.Fatal(err)
		}
		c.Deltas = append(c.Deltas, model.Delta{ID: id, Value: m})
	}
	return c
}

// stored sends a message through the bytes of the store.
func stored(t testing.TB, m proto.Message) proto.Message {
	t.Helper()
	id, err := model.IDOf(m)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := model.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	back, err := model.Decode(id, raw)
	if err != nil {
		t.Fatalf("what ksr wrote is not read: %v", err)
	}
	return back
}

// oneNode puts the pods of a state on one node.
func oneNode(s oracle.State) oracle.State {
	for _, p := range s.Pods {
		p.Spec.NodeName, p.Status.HostIP, p.Status.HostIPs = node, nodeAddr, []corev1.HostIP{{IP: nodeAddr}}
	}
	return s
}

// flowsOf draws flows on which evaluations of a state could differ.
func flowsOf(s oracle.State) []api.Flow {
	pods := s.Pods
	s.Pods = nil
	for _, p := range pods {
		if m, ok := converted(p); ok { // with the addresses that can be read, in one spelling
			p = p.DeepCopy()
			p.Status.PodIP, p.Status.PodIPs = "", nil
			for _, text := range m.Ips {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: text})
			}
			s.Pods = append(s.Pods, p)
		}
	}
	space := cluster.FlowSpace(s)
	if len(space.Pods) == 0 {
		return nil
	}
	return space.Random(cluster.NewRand(1), 60)
}

// neverMoreOpen compares verdicts. With exact it wants them to be equal.
func neverMoreOpen(t testing.TB, s oracle.State, r *renderertest.Recorder, exact bool) {
	t.Helper()
	o := oracle.New(s)
	for _, f := range flowsOf(s) {
		got, want := r.Verdict(f) == api.Permit, o.Allowed(f)
		if got && !want || exact && got != want {
			t.Fatalf("%s is permitted: %t, the specification says %t:\n%s\n%s", f, got, want, reason.Of(o.Verdict(f)), r.Dump())
		}
	}
}

// converted returns the message of a pod that ksr takes.
func converted(p *corev1.Pod) (*model.Pod, bool) {
	m, _ := convert.ToModel(p)
	pod, ok := m.(*model.Pod)
	return pod, ok
}

// contested reports whether two pods have one address, or a node has that of a pod. For
// whom such a packet is is not defined.
func contested(s oracle.State) bool {
	seen := map[netip.Addr]bool{}
	for _, n := range s.Nodes {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil {
				seen[addr.Unmap()] = true
			}
		}
	}
	for _, p := range s.Pods {
		m, ok := converted(p)
		if !ok {
			continue
		}
		for _, text := range m.Ips {
			a := netip.MustParseAddr(text)
			if seen[a] || text == nodeAddr {
				return true
			}
			seen[a] = true
		}
	}
	return false
}

// storeOf is a store with some entries, which never changes.
type storeOf []model.Entry

func (s storeOf) List(context.Context, string) ([]model.Entry, int64, error) {
	return slices.Clone(s), 1, nil
}

func (s storeOf) Watch(ctx context.Context, _ string, _ int64, _ func([]model.Entry, int64)) error {
	<-ctx.Done()
	return ctx.Err()
}

// follow starts a watcher of a store. It ends with the test. Problems may be read
// after the first changes were taken.
func follow(t testing.TB, entries []model.Entry) (*datasync.Watcher, *[]api.Problem) {
	t.Helper()
	problems := new([]api.Problem)
	w := datasync.New(datasync.Config{Store: marked.Store(storeOf(entries)), Log: slog.New(slog.DiscardHandler),
		OnProblem: func(p api.Problem) { *problems = append(*problems, p) }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w, problems
}

// kubeState makes objects of the messages of a state.
func kubeState(deltas []model.Delta) oracle.State {
	var c explain.Cluster
	for _, d := range deltas {
		switch m := d.Value.(type) {
		case *model.Node:
			c.Nodes = append(c.Nodes, m)
		case *model.Namespace:
			c.Namespaces = append(c.Namespaces, m)
		case *model.Pod:
			c.Pods = append(c.Pods, m)
		case *model.NetworkPolicy:
			c.Policies = append(c.Policies, m)
		case *model.ClusterPolicy:
			c.ClusterPolicies = append(c.ClusterPolicies, m)
		}
	}
	return c.State()
}

// split sorts objects by kind. Those that ksr refuses are left out.
func split(objects []kinds.Object) (s oracle.State, kept []any) {
	for _, o := range objects {
		if m, _ := convert.ToModel(o); m == nil {
			continue
		}
		s.Add(o.Object)
		kept = append(kept, o.Object)
	}
	return s, kept
}
