package node

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// running returns a pod that runs.
func running(name, node, app string, addrs ...string) *model.Pod {
	return &model.Pod{
		Namespace: "demo", Name: name, NodeName: node, Labels: label(app), Ips: addrs, Phase: model.Pod_PHASE_RUNNING,
	}
}

func label(app string) []*model.Label { return []*model.Label{{Key: "app", Value: app}} }

// allow lets only one app reach a TCP port of another.
func allow(from, to string, port uint32) *model.NetworkPolicy {
	return &model.NetworkPolicy{
		Namespace: "demo", Name: to, PodSelector: &model.LabelSelector{MatchLabels: label(to)}, IsolatesIngress: true,
		Ingress: []*model.NetworkPolicy_Rule{{
			Peers: []*model.NetworkPolicy_Peer{{PodSelector: &model.LabelSelector{MatchLabels: label(from)}}},
			Ports: []*model.NetworkPolicy_Port{{Protocol: model.Protocol_PROTOCOL_TCP, Port: &model.NetworkPolicy_Port_Number{Number: port}}},
		}},
	}
}

// closed lets a pod open nothing.
func closed(app string) *model.NetworkPolicy {
	return &model.NetworkPolicy{Namespace: "demo", Name: app + "-egress", PodSelector: &model.LabelSelector{MatchLabels: label(app)}, IsolatesEgress: true}
}

func puts(t testing.TB, objects ...proto.Message) (out []model.Delta) {
	t.Helper()
	for _, o := range objects {
		id, err := model.IDOf(o)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, model.Delta{ID: id, Value: o})
	}
	return out
}

func gone(kind model.Kind, name string) model.Delta {
	return model.Delta{ID: model.ID{Kind: kind, Namespace: "demo", Name: name}}
}

func tcp(src, dst string, port uint16) api.Flow {
	return api.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: api.TCP, SrcPort: 40000, DstPort: port}
}

func newFabric(t *testing.T) *Fabric {
	t.Helper()
	f := NewFabric(slog.New(slog.DiscardHandler), true)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *Fabric) apply(t testing.TB, deltas ...model.Delta) {
	t.Helper()
	if err := f.Apply(t.Context(), deltas); err != nil {
		t.Fatal(err)
	}
}

// verdict asks and checks how many nodes the packet passed.
func (f *Fabric) verdict(t testing.TB, flow api.Flow, want api.Action, nodes int) {
	t.Helper()
	w := f.Ask(flow)
	if w.Verdict != want || len(w.Visits) != nodes {
		t.Errorf("%s: %s on %d nodes (%s), want %s on %d", flow, w.Verdict, len(w.Visits), w, want, nodes)
	}
}

func TestFabricSendsPacketsThroughBothNodes(t *testing.T) {
	f := newFabric(t)
	f.apply(t, puts(t,
		running("web", "node-1", "web", "10.0.1.1", "fd00:1::1"), running("batch", "node-1", "batch", "10.0.1.2"),
		running("db", "node-2", "db", "10.0.2.1", "fd00:2::1"), allow("web", "db", 5432), closed("batch"))...)
	f.verdict(t, tcp("10.0.1.1", "10.0.2.1", 5432), api.Permit, 2)
	f.verdict(t, tcp("fd00:1::1", "fd00:2::1", 5432), api.Permit, 2)
	f.verdict(t, tcp("10.0.1.1", "10.0.2.1", 22), api.Deny, 2)   // by the node of the destination
	f.verdict(t, tcp("10.0.1.2", "10.0.2.1", 5432), api.Deny, 1) // by the node of the source
	f.verdict(t, tcp("10.0.1.2", "10.0.1.1", 80), api.Deny, 1)   // within a node
	f.verdict(t, tcp("198.51.100.7", "10.0.2.1", 5432), api.Deny, 1)
	f.verdict(t, tcp("198.51.100.7", "10.0.1.1", 80), api.Permit, 1)
	f.verdict(t, tcp("10.0.1.1", "198.51.100.7", 443), api.Permit, 1)
	f.verdict(t, tcp("10.0.1.1", "10.0.1.1", 443), api.Permit, 0)
	f.verdict(t, tcp("198.51.100.7", "203.0.113.7", 443), api.Permit, 0)
}

func TestFabricAddsNodeWithWholeState(t *testing.T) {
	f := newFabric(t)
	f.apply(t, puts(t, running("web", "node-1", "web", "10.0.1.1"), allow("web", "db", 5432))...)
	f.verdict(t, tcp("198.51.100.7", "10.0.2.1", 22), api.Permit, 0) // no pod has the address yet
	f.apply(t, puts(t, running("db", "node-2", "db", "10.0.2.1"))...)
	f.verdict(t, tcp("10.0.1.1", "10.0.2.1", 5432), api.Permit, 2)
	f.verdict(t, tcp("198.51.100.7", "10.0.2.1", 22), api.Deny, 1)
	f.apply(t, gone(model.KindNetworkPolicy, "db"))
	f.verdict(t, tcp("198.51.100.7", "10.0.2.1", 22), api.Permit, 1)
	f.apply(t, gone(model.KindPod, "db"))
	f.verdict(t, tcp("198.51.100.7", "10.0.2.1", 22), api.Permit, 0)
}

func TestFabricMovesPodWithItsAddress(t *testing.T) {
	f := newFabric(t)
	f.apply(t, puts(t, running("db", "node-1", "db", "10.0.0.1"), allow("web", "db", 5432))...)
	f.apply(t, puts(t, running("db", "node-2", "db", "10.0.0.1"))...)
	w := f.Ask(tcp("198.51.100.7", "10.0.0.1", 5432))
	if w.Verdict != api.Deny || len(w.Visits) != 1 || w.Visits[0].Node != "node-2" {
		t.Errorf("the walk is %+v, want a denial by node-2", w)
	}
}

func TestFabricPutsPodsWithoutNodeOnOne(t *testing.T) {
	f := newFabric(t)
	p := running("a", "", "a", "10.0.0.1")
	f.apply(t, puts(t, p, running("b", "", "b", "10.0.0.2"))...)
	f.verdict(t, tcp("10.0.0.1", "10.0.0.2", 80), api.Permit, 1)
	if p.NodeName != "" {
		t.Error("the caller's pod was changed")
	}
}

// TestEmbeddedSendIsAlwaysFirstPacket: what was sent before leaves sessions, and none of
// them may answer for the tables.
func TestEmbeddedSendIsAlwaysFirstPacket(t *testing.T) {
	f := newFabric(t)
	f.apply(t, puts(t, running("web", "node-1", "web", "10.0.1.1"), running("db", "node-1", "db", "10.0.1.2"), allow("web", "db", 40000), allow("nobody", "web", 1))...)
	there, back := tcp("10.0.1.1", "10.0.1.2", 40000), tcp("10.0.1.2", "10.0.1.1", 40000)
	for range 2 {
		f.verdict(t, there, api.Permit, 1)
		f.verdict(t, back, api.Deny, 1) // as an answer to the flow above it would be permitted
		for _, h := range f.Ask(there).Visits[0].Trace.Hops {
			if h.Matched == vswitch.MatchSession {
				t.Errorf("a session answered: %s", h)
			}
		}
	}
}

// TestEmbeddedRestartKeepsInstalledRules: a node that has connected to a VPP, and
// has received no state yet, must not remove the rules that protect the pods there.
func TestEmbeddedRestartKeepsInstalledRules(t *testing.T) {
	sw := vswitch.New(vswitch.Options{})
	sw.AddInterface("uplink0", acl.UplinkTag)
	sw.AddInterface("db", acl.InterfaceTag(pod("db")))
	socket := filepath.Join(t.TempDir(), "vpp.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); serving.Wait() }()
	serving.Go(func() {
		if err := sw.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	state := model.Changes{Resync: true, Revision: 1, Deltas: puts(t, running("db", "node-1", "db", "10.0.2.1"), allow("web", "db", 5432))}

	first := startNode(t, Config{Name: "node-1", Backends: []Backend{&VPP{Options: acl.Options{Socket: socket}}}})
	if err := first.Apply(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	before := sw.ACLs()
	if len(before) == 0 {
		t.Fatal("nothing is installed")
	}

	log := newWatched()
	second := startNode(t, Config{Name: "node-1", Backends: []Backend{&VPP{Options: acl.Options{Socket: socket}}}, Log: slog.New(log)})
	for !second.States()[0].Connected {
		if _, err := second.Plugin.Snapshot(t.Context()); err != nil { // lets the event loop turn
			t.Fatal(err)
		}
	}
	if _, err := second.Plugin.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "ACLs before the state is known", sw.ACLs(), before)
	if err := second.Apply(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	want(t, "ACLs after it is", sw.ACLs(), before)
	if !strings.Contains(log.text(), "read the acls of the vswitch") {
		t.Errorf("the vswitch was not read; the log is %q", log.text())
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNodeWaitEnforcedBeforeStart: the agent starts its node in one goroutine
// and waits in another.
func TestNodeWaitEnforcedBeforeStart(t *testing.T) {
	n, err := New(Config{Log: slog.New(slog.DiscardHandler), Backends: []Backend{&Vswitch{}}})
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	go func() { waited <- n.WaitEnforced(t.Context(), 1) }()
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	if err := n.Apply(t.Context(), model.Changes{Resync: true, Revision: 1}); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("the wait ended with %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}

func startNode(t *testing.T, cfg Config) *Node {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	return n
}

// watched is a log that a test reads.
type watched struct {
	slog.Handler
	b *lockedBuilder
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func newWatched() watched {
	b := &lockedBuilder{}
	return watched{slog.NewTextHandler(b, nil), b}
}

func (w watched) text() string {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	return w.b.b.String()
}
