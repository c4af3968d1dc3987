// Package tracing exports OpenTelemetry spans of changes to an OTLP receiver. The reflector exports
// one from the API server to etcd, and each agent one from etcd to the dataplane. It is off unless
// an endpoint is named.
//
// Nothing is carried through etcd. A trace is named by the cluster and by the revision of etcd that
// the change has, which both sides know, so that their spans meet.
package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-net/sluice/internal/lib/version"
)

// Usage is the help of the flag that names the endpoint.
const Usage = "send traces of changes to this receiver of OTLP by gRPC: http://HOST:4317, or https:// with TLS; OTEL_EXPORTER_OTLP_* set the rest; empty: none"

// Tracer sends spans. A nil Tracer sends none. It is safe for concurrent use and never blocks: what
// the receiver does not take in time is dropped.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// closeWait is how long the end of a program waits for what was not sent yet.
const closeWait = 2 * time.Second

// Start returns a Tracer that sends spans of a program to an endpoint, or nil if the endpoint is
// empty. Its error names what is wrong with --traces-endpoint. A receiver that does not answer is
// not an error, but is logged.
func Start(ctx context.Context, endpoint, program string, log *slog.Logger) (*Tracer, error) {
	if endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(endpoint)
	valid := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		u.User == nil && (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == ""
	if !valid {
		return nil, errors.New("--traces-endpoint is invalid: want http://HOST:PORT or https://HOST:PORT, without a user, a path and a query")
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("--traces-endpoint: %w", err)
	}
	otel.SetErrorHandler(&quietly{log: log})
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithIDGenerator(ids{}), sdk.WithSampler(sdk.AlwaysSample()),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", program), attribute.String("service.version", version.Get().Version))))
	log.Info("exporting traces of changes", "endpoint", endpoint)
	return &Tracer{p, p.Tracer("github.com/sluice-net/sluice")}, nil
}

// Close sends what was not sent yet, if that does not take long, and ends the Tracer.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("end traces: %w", err)
	}
	return nil
}

// Change is a change of the state of a cluster.
type Change struct {
	Cluster  string // as the completeness marker names it
	Revision int64  // of etcd
}

// Reflected records that changes are in etcd. since is when the API server delivered the first of
// them. The span is the root of the trace.
func (t *Tracer) Reflected(c Change, since time.Time, objects int) {
	if t == nil {
		return
	}
	t.span(context.WithValue(context.Background(), fixed{}, c), "reflect", c, since, attribute.Int("sluice.objects", objects))
}

// Enforced says that a node which received a change at a time enforces it in full.
func (t *Tracer) Enforced(c Change, received time.Time, node string) {
	if t == nil {
		return
	}
	root := trace.NewSpanContext(trace.SpanContextConfig{TraceID: c.trace(), SpanID: c.root(), TraceFlags: trace.FlagsSampled, Remote: true})
	t.span(trace.ContextWithSpanContext(context.Background(), root), "enforce", c, received, attribute.String("k8s.node.name", node))
}

func (t *Tracer) span(ctx context.Context, name string, c Change, since time.Time, with ...attribute.KeyValue) {
	with = append(with, attribute.Int64("sluice.revision", c.Revision), attribute.String("k8s.cluster.uid", c.Cluster))
	_, s := t.tracer.Start(ctx, name, trace.WithTimestamp(since), trace.WithAttributes(with...))
	s.End()
}

func (c Change) sum() [sha256.Size]byte {
	return sha256.Sum256(binary.BigEndian.AppendUint64([]byte(c.Cluster), uint64(c.Revision)))
}

func (c Change) trace() trace.TraceID {
	sum := c.sum()
	return trace.TraceID(sum[:16])
}

func (c Change) root() trace.SpanID {
	sum := c.sum()
	return trace.SpanID(sum[16:24])
}

// fixed is the key of the Change in the context of the root of its trace.
type fixed struct{}

// ids names the root of a trace by its change, and other spans at random.
type ids struct{}

// NewIDs implements sdk.IDGenerator.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	c, _ := ctx.Value(fixed{}).(Change) // there is no other root
	return c.trace(), c.root()
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return random() }

// quietly logs errors of sending, at most one a minute.
type quietly struct {
	log  *slog.Logger
	last atomic.Int64 // seconds since 1970
}

// Handle implements otel.ErrorHandler.
func (q *quietly) Handle(err error) {
	now, last := time.Now().Unix(), q.last.Load()
	if now-last >= 60 && q.last.CompareAndSwap(last, now) {
		q.log.Warn("traces of changes cannot be exported", "error", err)
	}
}
