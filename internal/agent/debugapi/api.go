// Package debugapi serves the agent's API: all of it on the socket of the node, and on the network
// only what names no pods.
//
// # Invariants
//
// It decides nothing. Explanations come from the specification's oracle on the state that the agent
// holds; the dataplane reports whether a packet passes. No request waits for an Apply.
package debugapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/agent/nodestatus"
	"github.com/sluice-net/sluice/internal/agent/socket"
	"github.com/sluice-net/sluice/internal/agent/verdicts"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/internal/ui"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
)

// API is the whole debug API.
type API struct {
	Metrics   http.Handler
	Health    Health
	Lists     *Lists
	Answers   *Answers
	Endpoints Endpoints
	Nodes     *nodestatus.Nodes
	Verdicts  *verdicts.Hub
	About     About
	// UI is the page, below ui.Path; nil for none. It has no token: the socket identifies clients.
	UI http.Handler
}

// About has the settings and the log of the agent.
type About struct {
	Settings func() map[string]any // by name, without secrets
	Log      func() []byte         // the last lines; nil where none are kept
}

func (a About) settings(context.Context, Filter) (map[string]any, error) { return a.Settings(), nil }

func (a About) log(context.Context, Filter) (view.Log, error) {
	l := view.Log{Lines: []string{}}
	if a.Log != nil {
		for line := range strings.Lines(string(a.Log())) {
			l.Lines = append(l.Lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return l, nil
}

// Local returns the handler for the socket. Root and the agent's own user may send any request,
// members of the group requests that change nothing, all others none.
func (a *API) Local(group int) http.Handler {
	owner, reader := a.Owner().Mux(), a.Reader().Mux()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := serve.PeerOf(r.Context())
		switch {
		case ui.IsBrowser(r) && !strings.HasPrefix(r.URL.Path, ui.Path):
			// A socket that is forwarded to a port is within reach of every page of the browser.
			serve.Say(w, http.StatusForbidden, "a browser may only ask for "+ui.Path+"\n")
		case err != nil:
			serve.Say(w, http.StatusForbidden, err.Error()+"\n")
		case p.UID == 0 || int(p.UID) == os.Geteuid():
			owner.ServeHTTP(w, r)
		case group != socket.NoGroup && p.In(uint32(group)):
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

// Public returns the routes for other hosts.
func (a *API) Public() Routes {
	return Routes{
		"GET /metrics": a.Metrics.ServeHTTP,
		"GET /livez":   a.Health.alive,
		"GET /readyz":  a.Health.readyInBrief,
	}
}

// Reader returns the routes that change nothing.
func (a *API) Reader() Routes {
	all := a.Public()
	maps.Copy(all, Routes{
		"GET /readyz":               a.Health.ready,
		"GET " + wire.PathEndpoints: list(a.Endpoints.list),
		"GET /v1/status":            list(a.Lists.status),
		"GET /v1/nodes":             list(a.nodes),
		"GET /v1/pods":              list(a.Lists.pods),
		"GET /v1/policies":          list(a.Lists.policies),
		"GET /v1/namespaces":        list(a.Lists.namespaces),
		"GET /v1/sets":              list(a.Lists.sets),
		"GET /v1/tables":            list(a.Lists.tables),
		"GET /v1/rules":             list(a.Lists.rules),
		"GET /v1/audit":             list(a.Lists.audit),
		"GET /v1/limits":            list(a.Lists.limits),
		"GET /v1/pods/relations":    list(bounded(a.Answers.relations)),
		"GET /v1/policies/rules":    list(bounded(a.Answers.rulesOf)),
		"GET /v1/check":             list(a.Answers.check),
		"GET /v1/objects":           list(bounded(a.Answers.objects)),
		"GET /v1/matrix":            list(bounded(a.matrix)),
		"POST /v1/explain":          ask(bounded(a.Answers.explain)),
		"GET /v1/decisions":         list(a.Lists.decisions),
		"POST /v1/verdicts":         a.watch,
		"POST /v1/traffic":          ask(a.traffic),
	})
	if a.UI != nil {
		for _, pattern := range ui.Patterns() {
			all[pattern] = a.UI.ServeHTTP
		}
	}
	return all
}

// Owner returns the routes for the owner of the socket.
func (a *API) Owner() Routes {
	all := a.Reader()
	maps.Copy(all, a.Endpoints.routes())
	maps.Copy(all, Routes{
		"GET /v1/settings": list(a.About.settings), "GET /v1/log": list(a.About.log),
		"POST /v1/inject": ask(bounded(a.Answers.inject)), "POST /v1/change": ask(a.Answers.change),
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/cmdline": pprof.Cmdline, "GET /debug/pprof/symbol": pprof.Symbol,
		"GET /debug/pprof/profile": pprof.Profile, "GET /debug/pprof/trace": pprof.Trace,
	})
	return all
}

// matrix returns which pods can talk to which. The filter may name a namespace, sources and
// destinations.
func (a *API) matrix(ctx context.Context, f Filter) (view.Matrix, error) {
	m, _, err := a.Answers.Matrix(ctx, matrix.Selection{Namespace: f.namespace, From: f.from, To: f.to})
	return m, err
}

// nodes returns what other nodes enforce. Name and namespace of the filter are those of a policy.
func (a *API) nodes(ctx context.Context, f Filter) ([]view.NodeEnforcement, error) {
	return a.Nodes.List(ctx, nodestatus.Policy{Namespace: f.namespace, Name: f.name})
}

// traffic sums up the verdicts that are kept.
func (a *API) traffic(_ context.Context, q view.Watch) (view.Traffic, error) {
	return a.Verdicts.Traffic(q)
}

// patience is how long a watching client may read nothing.
const patience = 30 * time.Second

// watch streams verdicts of packets, one JSON value per line, until the client disconnects or the
// agent ends.
func (a *API) watch(w http.ResponseWriter, r *http.Request) {
	q, err := decodeQuestion[view.Watch](w, r)
	if err == nil {
		err = verdicts.Check(q)
	}
	if err != nil {
		serve.Say(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	out, enc := http.NewResponseController(w), json.NewEncoder(w)
	err = a.Verdicts.Watch(r.Context(), q, func() {
		w.Header().Set("Content-Type", "application/x-ndjson")
		serve.Extend(w, patience)
		_ = out.Flush() // so that the client knows that the watch has begun
	}, func(v any) error {
		serve.Extend(w, patience)
		return errors.Join(enc.Encode(v), out.Flush())
	})
	if err != nil {
		serve.Say(w, http.StatusUnprocessableEntity, err.Error()+"\n")
	}
}
