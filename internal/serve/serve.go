// Package serve is how the daemons answer over HTTP.
package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	shutdownTimeout = time.Second
	headerTimeout   = 5 * time.Second
)

// PanicCounter returns the metric of a program that counts panics of handlers.
func PanicCounter(program string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: program + "_api_panics_total", Help: "Requests whose handler panicked; each is answered with status 500 and logged with its stack.",
	})
}

// Server answers requests. The zero value of Panicked is allowed.
type Server struct {
	Handler http.Handler
	Log     *slog.Logger
	// Panicked is called for each handler that panics, before the request is answered.
	Panicked func()
}

// Serve answers what comes in by a listener until ctx ends; requests that run then get a moment to
// finish. A handler that panics is logged with its stack, and answered with status 500 in words.
func (s Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn)}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close() // whoever did not finish in time is cut off
		}
	})
	err := srv.Serve(l)
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
	s.Handler.ServeHTTP(begun, r)
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
