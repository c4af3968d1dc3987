package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/serve"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer"
)

const maxQuestion = 64 << 20 // bytes of a request; changes carry objects

var errMore = errors.New("something follows the JSON value")

// serve serves the debug API and, when asked to, metrics and health over TCP,
// until ctx ends.
func (a *Agent) serve(ctx context.Context) error {
	l, err := listenUnix(ctx, a.cfg.APISocket)
	if err != nil {
		return fmt.Errorf("--api-socket: %w", err)
	}
	g, serving := errgroup.WithContext(ctx)
	if a.cfg.MetricsAddress != "" {
		var lc net.ListenConfig
		tcp, err := lc.Listen(ctx, "tcp", a.cfg.MetricsAddress)
		if err != nil {
			return errors.Join(fmt.Errorf("--metrics-address: %w", err), l.Close())
		}
		a.log.Info("metrics and health are served", "address", tcp.Addr().String())
		g.Go(func() error { return a.server(a.publicAPI()).Serve(serving, tcp) })
	}
	g.Go(func() error { return a.server(a.debugAPI()).Serve(serving, l) })
	return g.Wait()
}

// server answers by a handler, and counts its panics.
func (a *Agent) server(api routes) serve.Server {
	return serve.Server{Handler: api.mux(), Log: a.log.With("plugin", "api"), Panicked: a.metrics.panics.Inc}
}

// listenUnix listens on a socket that only its owner may open.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of a socket: %w", err)
	}
	if err := removeLeftover(ctx, path); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err // names the path
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect a socket: %w", err), l.Close())
	}
	return l, nil
}

// routes are the handlers of an API, by their patterns.
type routes map[string]http.HandlerFunc

func (all routes) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, handler := range all {
		mux.HandleFunc(pattern, handler)
	}
	return mux
}

// publicAPI is what may be seen from other hosts.
func (a *Agent) publicAPI() routes {
	return routes{
		"GET /metrics": a.metrics.handler().ServeHTTP,
		"GET /livez":   func(w http.ResponseWriter, _ *http.Request) { serve.Say(w, http.StatusOK, "ok\n") },
		"GET /readyz":  a.ready,
	}
}

// debugAPI is what the owner of the socket may ask.
func (a *Agent) debugAPI() routes {
	all := a.publicAPI()
	maps.Copy(all, a.endpointRoutes())
	maps.Copy(all, routes{
		"GET /v1/status":   list(a.status),
		"GET /v1/nodes":    list(a.nodes),
		"GET /v1/pods":     list(a.pods),
		"GET /v1/policies": list(a.policies),
		"GET /v1/sets":     list(a.sets),
		"GET /v1/tables":   list(a.tables),
		"GET /v1/rules":    list(a.rules),
		"GET /v1/matrix":   list(func(ctx context.Context, _ filter) (view.Matrix, error) { return a.matrix(ctx) }),
		"POST /v1/explain": ask(a.explain), "POST /v1/inject": ask(a.inject), "POST /v1/change": ask(a.change),
		"POST /v1/verdicts": a.watch,
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/cmdline": pprof.Cmdline, "GET /debug/pprof/symbol": pprof.Symbol,
		"GET /debug/pprof/profile": pprof.Profile, "GET /debug/pprof/trace": pprof.Trace,
	})
	return all
}

// ready says yes once every renderer enforces a whole state, and no while one fails, its dataplane
// does not answer, or the store does not hold a whole state.
func (a *Agent) ready(w http.ResponseWriter, _ *http.Request) {
	if why := a.watcher.Status().Incomplete; why != "" {
		serve.Say(w, http.StatusServiceUnavailable, "the store is not believed, what was known stays in force: "+why+a.blocked()+"\n")
		return
	}
	s := a.pluginStatus()
	for _, r := range s.Renderers {
		if r.Error != "" {
			serve.Say(w, http.StatusServiceUnavailable, r.Error+"\n")
			return
		}
	}
	if !s.Synced {
		serve.Say(w, http.StatusServiceUnavailable, "the first state is not enforced yet"+a.blocked()+"\n")
		return
	}
	for _, state := range a.node.States() {
		if err := state.Alive(time.Now()); err != nil {
			serve.Say(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
	}
	serve.Say(w, http.StatusOK, "ok\n")
}

// blocked names, behind a text, the interfaces of pods that are blocked, or says why they are not;
// empty when none is.
func (a *Agent) blocked() string {
	var names []string
	for _, s := range a.node.States() {
		if s.Err != nil {
			return "; interfaces of pods could not be blocked: " + s.Err.Error()
		}
		names = append(names, s.Blocked...)
	}
	if len(names) == 0 {
		return ""
	}
	return "; blocked until it is: " + renderer.Summary(names)
}

// list serves a list with the filters of its query.
func list[T any](get func(context.Context, filter) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		v, err := get(r.Context(), filter{namespace: q.Get("namespace"), name: q.Get("name")})
		answer(w, v, err)
	}
}

// ask serves an answer to a question in JSON.
func ask[Q, A any](get func(context.Context, Q) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := decodeQuestion[Q](w, r)
		if err != nil {
			serve.Say(w, http.StatusBadRequest, err.Error()+"\n")
			return
		}
		v, err := get(r.Context(), q)
		answer(w, v, err)
	}
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		serve.Say(w, http.StatusUnprocessableEntity, err.Error()+"\n")
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		serve.Say(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // whoever asked may have gone
}
