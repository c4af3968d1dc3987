// Package serve is how the daemons answer over HTTP.
package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	shutdownTimeout = time.Second
	headerTimeout   = 5 * time.Second
)

// HTTP serves until ctx ends; requests that run then get a moment to finish.
func HTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
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

// Say answers with a text.
func Say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // whoever asked may have gone
}
