// Package otlp is a receiver of traces for tests: a real OTLP server by gRPC.
package otlp

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlptrace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is a span that came, and the program that sent it.
type Span struct {
	*otlptrace.Span
	Program string
}

// Receiver keeps what it is sent.
type Receiver struct {
	collector.UnimplementedTraceServiceServer
	Endpoint string // for --traces-endpoint

	mu    sync.Mutex
	spans []Span
}

// Start starts one that ends with the test.
func Start(t testing.TB) *Receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, s := &Receiver{Endpoint: "http://" + l.Addr().String()}, grpc.NewServer()
	collector.RegisterTraceServiceServer(s, r)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// Export implements the server of OTLP.
func (r *Receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range req.GetResourceSpans() {
		program := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				program = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, Span{s, program})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Spans returns what came.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}
