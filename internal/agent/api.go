package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/pprof"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/endpoints/wire"
	"github.com/sluice-net/sluice/internal/serve"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer"
)

const maxQuestion = 64 << 20 // bytes of a request; changes carry objects

var errMore = errors.New("something follows the JSON value")

// serve serves the debug API and, when asked to, metrics and health over TCP,
// until ctx ends.
func (a *Agent) serve(ctx context.Context) error {
	group, err := a.cfg.apiGroup()
	if err != nil {
		return err
	}
	l, err := listenUnix(ctx, a.cfg.APISocket, group)
	if err != nil {
		return fmt.Errorf("--api-socket: %w", err)
	}
	g, serving := errgroup.WithContext(ctx)
	if a.cfg.MetricsAddress != "" {
		tcp, err := serve.Listen(ctx, a.cfg.MetricsAddress)
		if err != nil {
			return errors.Join(fmt.Errorf("--metrics-address: %w", err), l.Close())
		}
		a.log.Info("metrics and health are served", "address", tcp.Addr().String())
		g.Go(func() error { return a.server(a.publicAPI().mux()).Serve(serving, tcp) })
	}
	local := a.server(a.localAPI(group))
	local.Answer = localAnswer
	g.Go(func() error { return local.Serve(serving, l) })
	return g.Wait()
}

// localAnswer bounds an answer on the socket: a matrix of thousands of pods takes its time.
const localAnswer = 5 * time.Minute

// server answers by a handler, and counts its panics.
func (a *Agent) server(handler http.Handler) serve.Server {
	return serve.Server{Handler: handler, Log: a.log.With("plugin", "api"), Panicked: a.metrics.panics.Inc}
}

// localAPI answers on the socket: root and the agent's own user whatever they ask, members of a group
// what changes nothing, and nobody else.
func (a *Agent) localAPI(group int) http.Handler {
	owner, reader := a.debugAPI().mux(), a.readerAPI().mux()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := serve.PeerOf(r.Context())
		switch {
		case err != nil:
			serve.Say(w, http.StatusForbidden, err.Error()+"\n")
		case p.UID == 0 || int(p.UID) == os.Geteuid():
			owner.ServeHTTP(w, r)
		case group != noGroup && p.In(uint32(group)):
			if _, pattern := reader.Handler(r); pattern == "" {
				if _, known := owner.Handler(r); known != "" {
					serve.Say(w, http.StatusForbidden, fmt.Sprintf("user %d may only ask, as a member of --api-group; %s is for root and user %d\n", p.UID, r.URL.Path, os.Geteuid()))
					return
				}
			}
			reader.ServeHTTP(w, r)
		default:
			serve.Say(w, http.StatusForbidden, fmt.Sprintf("user %d may not use this socket: it is for root and user %d; see --api-group\n", p.UID, os.Geteuid()))
		}
	})
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
		"GET /livez":   a.alive,
		"GET /readyz":  a.readyInBrief,
	}
}

// readerAPI is what changes nothing.
func (a *Agent) readerAPI() routes {
	all := a.publicAPI()
	maps.Copy(all, routes{
		"GET /readyz":               a.ready,
		"GET " + wire.PathEndpoints: list(a.listEndpoints),
		"GET /v1/status":            list(a.status),
		"GET /v1/nodes":             list(a.nodes),
		"GET /v1/pods":              list(a.pods),
		"GET /v1/policies":          list(a.policies),
		"GET /v1/sets":              list(a.sets),
		"GET /v1/tables":            list(a.tables),
		"GET /v1/rules":             list(a.rules),
		"GET /v1/matrix":            list(func(ctx context.Context, _ filter) (view.Matrix, error) { return a.matrix(ctx) }),
		"POST /v1/explain":          ask(a.explain),
		"POST /v1/verdicts":         a.watch,
	})
	return all
}

// debugAPI is what the owner of the socket may ask.
func (a *Agent) debugAPI() routes {
	all := a.readerAPI()
	maps.Copy(all, a.endpointRoutes())
	maps.Copy(all, routes{
		"POST /v1/inject": ask(a.inject), "POST /v1/change": ask(a.change),
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/cmdline": pprof.Cmdline, "GET /debug/pprof/symbol": pprof.Symbol,
		"GET /debug/pprof/profile": pprof.Profile, "GET /debug/pprof/trace": pprof.Trace,
	})
	return all
}

// Bounds of the time for which the event loop works without looking for changes.
const (
	slowTurn   = 10 * time.Second // longer: not ready
	standstill = 3 * time.Minute  // longer: not alive, so that a kubelet starts the agent anew
)

// atWork reports that the event loop has worked for longer than some time since it last looked for changes.
func atWork(since, now time.Time, most time.Duration) string {
	if took := now.Sub(since); !since.IsZero() && took > most {
		return fmt.Sprintf("the event loop has been at work for %s without looking for changes", took.Round(time.Second))
	}
	return ""
}

// alive reports whether the event loop goes round.
func (a *Agent) alive(w http.ResponseWriter, _ *http.Request) {
	if why := atWork(a.node.Plugin.AtWork(), time.Now(), standstill); why != "" {
		serve.Say(w, http.StatusServiceUnavailable, why+"\n")
		return
	}
	serve.Say(w, http.StatusOK, "ok\n")
}

// ready reports whether every renderer enforces a whole state: not while one fails, its dataplane
// does not answer, or the store does not hold a whole state. It says why not, by name.
func (a *Agent) ready(w http.ResponseWriter, _ *http.Request) {
	if _, why := a.notReady(); why != "" {
		serve.Say(w, http.StatusServiceUnavailable, why+"\n")
		return
	}
	serve.Say(w, http.StatusOK, "ok\n")
}

// readyInBrief is ready for the network, where no pods, policies or clusters are named.
func (a *Agent) readyInBrief(w http.ResponseWriter, _ *http.Request) {
	if why, _ := a.notReady(); why != "" {
		serve.Say(w, http.StatusServiceUnavailable, why+"; sluicectl get status on the node has the details\n")
		return
	}
	serve.Say(w, http.StatusOK, "ok\n")
}

// notReady returns why the agent is not ready, without names of objects and with them; nothing when
// it is.
func (a *Agent) notReady() (brief, why string) {
	if why := a.watcher.Status().Incomplete; why != "" {
		brief = "the store is not believed, what was known stays in force"
		return brief, brief + ": " + why + a.blocked()
	}
	s := a.pluginStatus()
	for _, r := range s.Renderers {
		if r.Error != "" {
			return "renderer " + r.Name + " does not enforce everything", r.Error
		}
	}
	if !s.Synced {
		brief = "the first state is not enforced yet"
		return brief, brief + a.blocked()
	}
	for _, state := range a.node.States() {
		if err := state.Alive(time.Now()); err != nil {
			return "a dataplane does not answer", err.Error()
		}
	}
	why = atWork(a.node.Plugin.AtWork(), time.Now(), slowTurn)
	return why, why
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
