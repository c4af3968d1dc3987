package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/endpoints"
	"github.com/sluice-net/sluice/endpoints/gate"
	"github.com/sluice-net/sluice/endpoints/keeper"
	"github.com/sluice-net/sluice/endpoints/nodeaddr"
	"github.com/sluice-net/sluice/endpoints/wire"
	"github.com/sluice-net/sluice/internal/preflight"
	"github.com/sluice-net/sluice/internal/serve"
)

// What --new-interfaces can be.
const (
	newBlock = "block"
	newAllow = "allow"
)

func endpointFlags(f *pflag.FlagSet) {
	f.String("new-interfaces", newBlock, "what an interface passes that connects a pod, until the pod's policy is enforced there: block or allow")
	f.StringSlice("pod-interfaces", nil, "bridges of pods, and prefixes of names of their interfaces with a star behind, beside those in --cni-conf-dir: cni0,veth*")
	f.String("cni-conf-dir", defaultCNIConf, "folder with CNI's configurations, which name bridges and interfaces of pods; empty for none")
	f.String("cni-results", defaultCNIResults, "folder in which the container runtime keeps for which pod it set up which network namespace; empty for none")
	f.String("endpoints-file", "/var/lib/sluice/agent/endpoints", "file with whose interfaces are, for the next start; empty for none")
}

// checkEndpoints refuses settings that say nothing.
func (c Config) checkEndpoints() error {
	if c.NewInterfaces != "" && c.NewInterfaces != newBlock && c.NewInterfaces != newAllow {
		return fmt.Errorf("--new-interfaces %q: want block or allow", c.NewInterfaces)
	}
	if _, err := keeper.ParseScope(c.PodInterfaces); err != nil {
		return fmt.Errorf("--pod-interfaces: %w", err)
	}
	return nil
}

// checkResults reports whether the records of the container runtime can be read.
func (c Config) checkResults(context.Context) preflight.Finding {
	if c.CNIResults == "" {
		return preflight.Fine("none: pods are those that a CNI plugin registers")
	}
	if _, err := os.ReadDir(c.CNIResults); err != nil {
		return preflight.Warn(fmt.Errorf("--cni-results: %w: pods that no CNI plugin registers are blocked", err), "mount the node's folder, or name the one that its container runtime uses")
	}
	return preflight.Fine("%s", c.CNIResults)
}

// keepEndpoints makes what knows whose interfaces are.
func (a *Agent) keepEndpoints() (err error) {
	scope, err := keeper.ParseScope(a.cfg.PodInterfaces)
	if err != nil {
		return fmt.Errorf("--pod-interfaces: %w", err)
	}
	a.gate = gate.New(a.cfg.XDPPins)
	a.addresses = nodeaddr.New(a.log.With("plugin", "endpoints"), func() { a.node.Plugin.Prompt() })
	a.endpoints, err = keeper.New(keeper.Config{
		Log: a.log.With("plugin", "endpoints"), Gate: a.gate, BlockNew: a.cfg.NewInterfaces != newAllow, Scope: scope,
		CNIConf: a.cfg.CNIConfDir, Results: a.cfg.CNIResults, NetNS: a.cfg.XDPNetNS, File: a.cfg.EndpointsFile, Node: a.cfg.Node,
		Attached: a.kernel.Decides, OnChange: func() { a.node.Plugin.Prompt() }, Waited: func(d time.Duration) { a.metrics.waited.Observe(d.Seconds()) },
	})
	return err
}

// errNoEndpoints is the answer of an agent that looks after no interfaces of the kernel.
var errNoEndpoints = errors.New("interfaces are registered with agents that enforce in the kernel (--renderers xdp); this one does not")

// endpointRoutes are what a CNI plugin asks, as package wire says.
func (a *Agent) endpointRoutes() routes {
	return routes{
		"GET " + wire.PathEndpoints:    list(a.listEndpoints),
		"POST " + wire.PathEndpoints:   a.changeEndpoint(func(w http.ResponseWriter, r *http.Request) (any, error) { return register(w, r, a.endpoints) }),
		"DELETE " + wire.PathEndpoints: a.changeEndpoint(func(w http.ResponseWriter, r *http.Request) (any, error) { return remove(w, r, a.endpoints) }),
		"POST " + wire.PathGC:          a.changeEndpoint(func(w http.ResponseWriter, r *http.Request) (any, error) { return collect(w, r, a.endpoints) }),
		"GET " + wire.PathVPP:          a.vppEndpoint,
		"GET " + wire.PathEnforced:     a.changeEndpoint(func(_ http.ResponseWriter, r *http.Request) (any, error) { return await(r, a.endpoints) }),
	}
}

// changeEndpoint answers a CNI plugin, which looks at the status.
func (a *Agent) changeEndpoint(do func(w http.ResponseWriter, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if a.endpoints == nil {
			serve.Say(w, http.StatusNotFound, errNoEndpoints.Error()+"\n")
			return
		}
		v, err := do(w, r)
		switch {
		case errors.Is(err, keeper.ErrUnregistered):
			serve.Say(w, http.StatusNotFound, err.Error()+"\n")
		case errors.Is(err, keeper.ErrLater):
			serve.Say(w, http.StatusServiceUnavailable, err.Error()+"\n")
		case err != nil:
			serve.Say(w, http.StatusBadRequest, err.Error()+"\n")
		default:
			answer(w, v, nil)
		}
	}
}

// maxWire bounds what a CNI plugin may say at once, in bytes.
const maxWire = 1 << 20

// decodeWire reads what a CNI plugin says, which may be of another version.
func decodeWire[Q any](w http.ResponseWriter, r *http.Request) (q Q, err error) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxWire)).Decode(&q); err != nil {
		return q, fmt.Errorf("the question is not understood: %w", err)
	}
	return q, nil
}

func register(w http.ResponseWriter, r *http.Request, k *keeper.Keeper) (any, error) {
	q, err := decodeWire[wire.Registration](w, r)
	if err != nil {
		return nil, err
	}
	return k.Register(q)
}

func remove(w http.ResponseWriter, r *http.Request, k *keeper.Keeper) (any, error) {
	q, err := decodeWire[wire.Attachment](w, r)
	if err != nil {
		return nil, err
	}
	return struct{}{}, k.Remove(q)
}

func collect(w http.ResponseWriter, r *http.Request, k *keeper.Keeper) (any, error) {
	q, err := decodeWire[wire.Valid](w, r)
	if err != nil {
		return nil, err
	}
	return struct{}{}, k.Collect(q)
}

func await(r *http.Request, k *keeper.Keeper) (any, error) {
	q := r.URL.Query()
	timeout, err := time.ParseDuration(q.Get("timeout"))
	if err != nil || timeout < 0 {
		return nil, fmt.Errorf("timeout %q: want a duration like 5s", q.Get("timeout"))
	}
	return k.Wait(r.Context(), wire.Attachment{ContainerID: q.Get("containerId"), IfName: q.Get("ifName")}, timeout)
}

// listEndpoints returns whose interfaces are. The filter's name is part of that of a pod or of an interface.
func (a *Agent) listEndpoints(_ context.Context, f filter) ([]wire.Endpoint, error) {
	out := []wire.Endpoint{}
	for _, e := range a.allEndpoints() {
		namespace, name, _ := strings.Cut(e.Pod, "/")
		if f.wants(namespace, name) || f.namespace == "" && strings.Contains(e.Interface, f.name) {
			out = append(out, e)
		}
	}
	return out, nil
}

// allEndpoints are those in the kernel, and those in VPP.
func (a *Agent) allEndpoints() (out []wire.Endpoint) {
	if a.endpoints != nil {
		out = a.endpoints.List()
	}
	return append(out, a.vppEndpoints()...)
}

// blockedEndpoints returns the names of interfaces that are blocked and are no pod's that waits.
func (a *Agent) blockedEndpoints() (out []string) {
	if a.endpoints == nil {
		return nil
	}
	for _, e := range a.endpoints.Endpoints() {
		if e.State != endpoints.StateEnforced && e.State != endpoints.StatePending {
			out = append(out, e.Link.Name)
		}
	}
	return out
}

// endpointProblems are what cannot be read that may say whose interfaces are.
func (a *Agent) endpointProblems() (out []api.Problem) {
	if a.endpoints == nil {
		return nil
	}
	problems := a.endpoints.Problems()
	for _, what := range slices.Sorted(maps.Keys(problems)) {
		out = append(out, api.Problem{Source: "endpoints", Object: what, Reason: problems[what] + "; whose interfaces are may not be known"})
	}
	return out
}

var endpointsDesc = prometheus.NewDesc("sluice_endpoints", "Interfaces of pods, by state; all but the enforced ones are blocked.", []string{"state"}, nil)

// endpointCollector counts interfaces by state.
type endpointCollector struct{ list func() []wire.Endpoint }

// Describe implements prometheus.Collector.
func (endpointCollector) Describe(ch chan<- *prometheus.Desc) { ch <- endpointsDesc }

// Collect implements prometheus.Collector.
func (c endpointCollector) Collect(ch chan<- prometheus.Metric) {
	count := map[string]int{}
	for _, s := range []endpoints.State{
		endpoints.StateUnknown, endpoints.StatePending, endpoints.StateEnforced, endpoints.StateOrphaned, endpoints.StateConflicting,
	} {
		count[string(s)] = 0
	}
	for _, e := range c.list() {
		count[e.State]++
	}
	for state, n := range count {
		ch <- prometheus.MustNewConstMetric(endpointsDesc, prometheus.GaugeValue, float64(n), state)
	}
}
