// Package serve is the HTTP server of sluice-agent and sluice-ksr, with limits on connections and
// time.
//
// # Invariants
//
//   - Clients can use only a bounded number of connections: see places. There is a time limit for
//     headers, bodies, answers and idle connections.
//   - An address without a host means the loopback address.
//   - The kernel identifies the peer of a Unix socket.
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
)

const (
	shutdownTimeout = time.Second
	headerBytes     = 16 << 10
)

// limits are the time limits for clients. Tests use others.
type limits struct{ header, body, answer, idle time.Duration }

var usual = limits{header: 5 * time.Second, body: 20 * time.Second, answer: 20 * time.Second, idle: time.Minute}

// MostScrapes is how many metrics requests are answered at once.
const MostScrapes = 16

// Server answers requests. Panicked may be nil.
type Server struct {
	Handler http.Handler
	Log     *slog.Logger
	// Panicked is called when a handler panics, before the request is answered.
	Panicked func()
	// Answer bounds the time from the header of a request to the end of its answer, except for
	// those that call Extend; zero means 20 s.
	Answer time.Duration
	limits limits // zero means the defaults
}

// Extend sets the time limit of an answer, for streams and other long answers, to d from now.
func Extend(w http.ResponseWriter, d time.Duration) {
	// without a connection there is no limit either
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// Serve answers requests of a listener until ctx ends; requests in progress then get a moment to
// finish. A panic of a handler is logged with its stack, and answered with status 500.
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
			_ = srv.Close() // cuts off unfinished requests
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
		if fault == http.ErrAbortHandler { //nolint:errorlint // net/http compares with this value itself
			panic(fault)
		}
		s.Log.Error("handler panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(fault), "stack", string(debug.Stack()))
		if s.Panicked != nil {
			s.Panicked()
		}
		if begun.yes { // the client must not take the beginning for the complete answer
			panic(http.ErrAbortHandler)
		}
		Say(w, http.StatusInternalServerError, fmt.Sprintf("%s %s failed: %v; the log has the stack, please report it\n", r.Method, r.URL.Path, fault))
	}()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = timed(w, r.Body, s.limits.body)
	}
	s.Handler.ServeHTTP(begun, r)
}

// body is a request body with a time limit. The server's ReadTimeout would also end the context of
// requests that take longer to answer.
type body struct {
	io.ReadCloser
	out *http.ResponseController
}

func timed(w http.ResponseWriter, b io.ReadCloser, limit time.Duration) io.ReadCloser {
	t := &body{b, http.NewResponseController(w)}
	_ = t.out.SetReadDeadline(time.Now().Add(limit)) // a test recorder has no connection
	return t
}

// Read implements io.Reader. Once the body was read it removes the time limit.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.out.SetReadDeadline(time.Time{})
	}
	return n, err
}

// begun records whether an answer has begun.
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

// Unwrap gives http.ResponseController access to the writer.
func (b *begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// Say answers with a text.
func Say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the client may have gone
}
