package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/lib/tracing"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/tests/lab/otlp"
)

func start(t *testing.T, endpoint, program string) *tracing.Tracer {
	t.Helper()
	tracer, err := tracing.Start(t.Context(), endpoint, program, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

// node is a policy plugin of which only the status is looked at.
type node struct {
	mu      sync.Mutex
	status  policy.Status
	changed chan struct{}
}

func (n *node) watch() (policy.Status, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status, n.changed
}

func (n *node) set(seen, enforced int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status = policy.Status{Seen: seen, Revision: enforced}
	close(n.changed)
	n.changed = make(chan struct{})
}

// TestTracerNamesChangeByRevision: the spans of a reflector and of an agent, which have nothing
// in common but the cluster and the revision, are one trace.
func TestTracerNamesChangeByRevision(t *testing.T) {
	r := otlp.Start(t)
	reflector, agent := start(t, r.Endpoint, "sluice-ksr"), start(t, r.Endpoint, "sluice-agent")
	began := time.Now().Add(-time.Second)
	c := tracing.Change{Cluster: "c", Revision: 7}
	reflector.Reflected(c, began, 3)
	agent.Enforced(c, time.Now(), "node-1")
	agent.Enforced(tracing.Change{Cluster: "c", Revision: 8}, time.Now(), "node-1")
	if err := errors.Join(reflector.Close(), agent.Close()); err != nil {
		t.Fatal(err)
	}
	spans := r.Spans()
	if len(spans) != 3 {
		t.Fatalf("%d spans came", len(spans))
	}
	root, enforced, other := spans[0], spans[1], spans[2]
	if root.Name != "reflect" || root.Program != "sluice-ksr" || len(root.ParentSpanId) != 0 || int64(root.StartTimeUnixNano) != began.UnixNano() || root.EndTimeUnixNano < root.StartTimeUnixNano {
		t.Errorf("the root is %v", root)
	}
	if enforced.Name != "enforce" || enforced.Program != "sluice-agent" || !bytes.Equal(enforced.TraceId, root.TraceId) || !bytes.Equal(enforced.ParentSpanId, root.SpanId) || bytes.Equal(enforced.SpanId, root.SpanId) {
		t.Errorf("of root %v the node has %v", root, enforced)
	}
	if bytes.Equal(other.TraceId, root.TraceId) {
		t.Error("two changes are one trace")
	}
}

// TestTracerFollowsEnforcement: a span for each revision that came after the first state,
// once it is enforced and not before, also of a store that began anew.
func TestTracerFollowsEnforcement(t *testing.T) {
	r := otlp.Start(t)
	tracer, n := start(t, r.Endpoint, "sluice-agent"), &node{changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	looked := make(chan struct{}, 100)
	go func() {
		done <- tracer.Follow(ctx, "node-1", func() string { return "c" }, func() (policy.Status, <-chan struct{}) { s, c := n.watch(); looked <- struct{}{}; return s, c })
	}()
	<-looked
	for _, s := range [][2]int64{{5, 0}, {5, 5}, {6, 5}, {8, 5}, {8, 6}, {9, 8}, {3, 0}, {4, 3}, {4, 4}} { // 9 is never enforced
		n.set(s[0], s[1])
		<-looked
	}
	cancel()
	if err := errors.Join(<-done, tracer.Close()); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var got []int64
	for _, s := range r.Spans() {
		for _, a := range s.Attributes {
			if a.Key == "sluice.revision" {
				got = append(got, a.Value.GetIntValue())
			}
		}
	}
	if !slices.Equal(got, []int64{6, 8, 4}) {
		t.Errorf("revisions %v have spans, want 6, 8 and 4", got)
	}
}

func TestTracerRefusesInvalidEndpoints(t *testing.T) {
	for _, endpoint := range []string{"collector:4317", "ftp://a:1", "http://", "http://user:secret@a:1", "http://a:1/v1/traces", "http://a:1?x", "http://a:1#secret", "\x1b[2J", strings.Repeat("x", 1<<20)} {
		_, err := tracing.Start(t.Context(), endpoint, "p", slog.New(slog.DiscardHandler))
		if err == nil || !strings.HasPrefix(err.Error(), "--traces-endpoint ") || len(err.Error()) > 1000 || strings.ContainsRune(err.Error(), '\x1b') || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.40q: %.300v", endpoint, err)
		}
	}
}

// TestTracerWithoutReceiver: a tracer does not block, whether it is off or has no receiver.
func TestTracerWithoutReceiver(t *testing.T) {
	if off := start(t, "", "p"); off != nil {
		t.Error("without an endpoint there is a tracer")
	}
	var off *tracing.Tracer
	off.Reflected(tracing.Change{}, time.Now(), 1)
	off.Enforced(tracing.Change{}, time.Now(), "n")
	tracer := start(t, "http://127.0.0.1:1", "p")
	begin := time.Now()
	for range 10_000 {
		tracer.Reflected(tracing.Change{Cluster: "c", Revision: 1}, begin, 1)
	}
	if err := errors.Join(off.Close(), tracer.Close()); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}
