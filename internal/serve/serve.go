// Package serve is how the daemons answer over HTTP.
//
// # Invariants
//
//   - What clients do costs a bounded number of connections: see places. A header, a body, a
//     connection without requests and an answer each have a time in which they have to end.
//   - An address without a host is the loopback address.
//   - Who is at the other end of a Unix socket is known from the kernel.
package serve

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

const (
	shutdownTimeout = time.Second
	headerBytes     = 16 << 10
)

// limits are the times that clients have. Tests have others.
type limits struct{ header, body, answer, idle time.Duration }

var usual = limits{header: 5 * time.Second, body: 20 * time.Second, answer: 20 * time.Second, idle: time.Minute}

// MostScrapes is how many answers with metrics are made at once.
const MostScrapes = 16

// PanicCounter returns the metric of a program that counts panics of handlers.
func PanicCounter(program string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: program + "_api_panics_total", Help: "Requests whose handler panicked; each is answered with status 500 and logged with its stack.",
	})
}

// OfTheProcess returns the metrics of Go's runtime and of the process.
func OfTheProcess() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsGC)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
}

// Server answers requests. The zero value of Panicked is allowed.
type Server struct {
	Handler http.Handler
	Log     *slog.Logger
	// Panicked is called for each handler that panics, before the request is answered.
	Panicked func()
	// Answer bounds the time from the header of a request to the end of its answer, but for those
	// that Extend it; 20 s if it is zero.
	Answer time.Duration
	limits limits // zero: usual
}

// Extend gives an answer that is a stream, or otherwise takes long, so much time from now on.
func Extend(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d)) // where there is no connection, there is no time either
}

// Serve answers what comes in by a listener until ctx ends; requests that run then get a moment to
// finish. A handler that panics is logged with its stack, and answered with status 500 in words.
func (s Server) Serve(ctx context.Context, l net.Listener) error {
	s.limits = cmp.Or(s.limits, usual)
	limited := &places{Listener: l, most: connections(), log: s.Log}
	srv := &http.Server{
		Handler: http.HandlerFunc(s.serve), ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: s.limits.header, WriteTimeout: cmp.Or(s.Answer, s.limits.answer), IdleTimeout: s.limits.idle, MaxHeaderBytes: headerBytes,
		ConnState: limited.state, ConnContext: withPeer,
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close() // whoever did not finish in time is cut off
		}
	})
	err := srv.Serve(limited)
	if stop() {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	<-stopped
	return nil
}

// serve answers one request.
func (s Server) serve(w http.ResponseWriter, r *http.Request) {
	begun := &begun{ResponseWriter: w}
	defer func() {
		fault := recover()
		if fault == nil {
			return
		}
		if fault == http.ErrAbortHandler { //nolint:errorlint // the value itself is what net/http looks for
			panic(fault)
		}
		s.Log.Error("handler panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(fault), "stack", string(debug.Stack()))
		if s.Panicked != nil {
			s.Panicked()
		}
		if begun.yes { // the client must not take what it has for the whole answer
			panic(http.ErrAbortHandler)
		}
		Say(w, http.StatusInternalServerError, fmt.Sprintf("%s %s failed: %v; the log has the stack, please report it\n", r.Method, r.URL.Path, fault))
	}()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = timed(w, r.Body, s.limits.body)
	}
	s.Handler.ServeHTTP(begun, r)
}

// body is one that has to come in time. It is not the server's ReadTimeout, which would also end
// the context of requests that take longer to answer.
type body struct {
	io.ReadCloser
	out *http.ResponseController
}

func timed(w http.ResponseWriter, b io.ReadCloser, limit time.Duration) io.ReadCloser {
	t := &body{b, http.NewResponseController(w)}
	_ = t.out.SetReadDeadline(time.Now().Add(limit)) // a recorder of a test has no connection
	return t
}

// Read implements io.Reader. Once the body was read there is no limit of time to the rest.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.out.SetReadDeadline(time.Time{})
	}
	return n, err
}

// begun knows whether an answer was begun.
type begun struct {
	http.ResponseWriter
	yes bool
}

// WriteHeader implements http.ResponseWriter.
func (b *begun) WriteHeader(status int) {
	b.yes = true
	b.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (b *begun) Write(p []byte) (int, error) {
	b.yes = true
	return b.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find what the writer can do.
func (b *begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// Say answers with a text.
func Say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // whoever asked may have gone
}
