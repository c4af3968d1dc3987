package serve_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// nothing is a map that cannot be written.
func nothing() map[string]int { return nil }

// TestServerAnswersPanicWithError: the client gets an error text instead of a closed connection,
// the log has the stack, and the next request is answered.
func TestServerAnswersPanicWithError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /broken", func(http.ResponseWriter, *http.Request) {
		nothing()["x"] = 1
	})
	mux.HandleFunc("GET /half", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic("in the middle")
	})
	mux.HandleFunc("GET /ok", func(w http.ResponseWriter, _ *http.Request) { serve.Say(w, http.StatusOK, "ok\n") })
	var log programs.Buffer
	panics := 0
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	server := serve.Server{Handler: mux, Log: slog.New(slog.NewTextHandler(&log, nil)), Panicked: func() { panics++ }}
	go func() { done <- server.Serve(ctx, l) }()
	once := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and so asks once
	get := func(path string) (int, string, error) {
		r, err := once.Get("http://" + l.Addr().String() + path)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = r.Body.Close() }()
		b, err := io.ReadAll(r.Body)
		return r.StatusCode, string(b), err
	}
	if status, body, err := get("/broken"); status != http.StatusInternalServerError || !strings.Contains(body, "GET /broken failed: assignment to entry in nil map") || err != nil {
		t.Errorf("a panic is answered with %d %q, %v", status, body, err)
	}
	if _, body, err := get("/half"); err == nil {
		t.Errorf("an answer that broke off looks whole: %q", body)
	}
	if status, body, err := get("/ok"); status != http.StatusOK || body != "ok\n" || err != nil {
		t.Errorf("the next request is answered with %d %q, %v", status, body, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if text := log.String(); panics != 2 || !strings.Contains(text, "path=/broken") || !strings.Contains(text, "serve_test.go") {
		t.Errorf("%d panics are counted, and the log has %s", panics, text)
	}
}
