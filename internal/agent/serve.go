package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/agent/debugapi"
	"github.com/sluice-net/sluice/internal/agent/nodestatus"
	"github.com/sluice-net/sluice/internal/agent/socket"
	"github.com/sluice-net/sluice/internal/agent/verdicts"
	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/internal/ui"
)

// newAPI wires what answers.
func (a *Agent) newAPI(source string) *debugapi.API {
	api := &debugapi.API{
		Metrics: a.metrics.Handler(),
		Health: debugapi.Health{
			Node: a.node, AtWork: a.node.Plugin.AtWork, Incomplete: func() string { return a.watcher.Status().Incomplete }, Unserved: a.unserved,
			Uncovered: a.backends.uncovered,
		},
		Lists: &debugapi.Lists{
			Name: a.cfg.Node.Name, Source: source, Node: a.node, Problems: a.problems, Store: a.storeStatus, Blocked: a.backends.blocked,
		},
		Answers: &debugapi.Answers{
			Name: a.cfg.Node.Name, Addresses: a.cfg.Node.Addresses, Found: a.backends.addresses, AllowNode: a.cfg.Node.AllowTraffic,
			Cluster: a.cluster, Local: a.node.Plugin.Local, Pipeline: a.node.Plugin.Status, Renderers: a.node.Renderers, Dataplane: find[debugapi.Dataplane](a.backends),
		},
		Endpoints: debugapi.Endpoints{Registrars: able[debugapi.Registrar](a.backends), VPPs: able[debugapi.VPP](a.backends), List: a.backends.endpoints},
		Nodes:     &nodestatus.Nodes{Store: a.store, Prefix: a.cfg.Store.Prefix, Watcher: a.watcher, Unwritten: a.unwritten},
		Verdicts:  a.verdicts(),
		About:     debugapi.About{Settings: a.cfg.Shown},
	}
	api.UI = ui.Handler(api.Page(), ui.Guard{})
	return api
}

// unserved returns why the socket is not served; "" when it is, or before.
func (a *Agent) unserved() string {
	if l := a.socket.Load(); l != nil {
		return l.Gone()
	}
	return ""
}

// verdicts returns what shares verdicts of packets.
func (a *Agent) verdicts() *verdicts.Hub {
	keep, places := a.cfg.Log.History()
	return verdicts.New(verdicts.Config{
		Node: a.cfg.Node.Name, Sources: a.backends.verdicts(), Snapshot: a.node.Snapshot, Keep: keep, Places: places, Log: a.log.With("plugin", "verdicts"),
	})
}

// register registers the metrics that are read on request.
func (a *Agent) register() {
	a.metrics.Node(a.node, a.cfg.Listen.RuleMetrics)
	a.metrics.Endpoints(a.backends.endpoints)
	a.metrics.Register(a.backends.collectors()...)
	a.metrics.Store(a.watcher.Status, func() bool { return a.unwritten() == "" })
}

// unwritten returns why the state in the store may be stale: no reflector writes it.
func (a *Agent) unwritten() string {
	leader, since := a.heartbeat.get()
	switch {
	case leader != nil || !a.cfg.Reflected():
		return ""
	case since.IsZero():
		return "it is not known yet whether a reflector is active"
	}
	return "no active reflector for " + time.Since(since).Round(time.Second).String() + ": the state may be stale"
}

// serve serves the debug API and, when asked to, metrics and health over TCP,
// until ctx ends. An agent of sluice-neutron serves the debug API alone: its process outlives it.
func (a *Agent) serve(ctx context.Context) error {
	group, err := a.cfg.Listen.Group()
	if err != nil {
		return err
	}
	l, err := socket.ListenLasting(ctx, a.cfg.Listen.APISocket, group, a.log)
	if err != nil {
		return fmt.Errorf("--api-socket: %w", err)
	}
	a.socket.Store(l)
	page, err := a.page(ctx)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	g, serving := errgroup.WithContext(ctx)
	g.Go(func() error { return ended(l.Run(serving)) })
	if page.listener != nil {
		g.Go(func() error { return page.server.Serve(serving, page.listener) })
	}
	if a.cfg.Listen.MetricsAddress != "" && !a.cfg.Elected() {
		tcp, err := serve.Listen(ctx, a.cfg.Listen.MetricsAddress)
		if err != nil {
			return errors.Join(fmt.Errorf("--metrics-address: %w", err), l.Close(), page.close())
		}
		a.log.Info("metrics and health are served", "address", tcp.Addr().String())
		g.Go(func() error { return a.server(a.api.Public().Mux()).Serve(serving, tcp) })
	}
	if !a.cfg.Elected() {
		g.Go(func() error {
			return serve.Supervise(serving, func() bool { return a.api.Health.Alive() == "" }, a.log)
		})
	}
	local := a.server(a.api.Local(group))
	local.Answer = localAnswer
	g.Go(func() error { return local.Serve(serving, l) })
	return g.Wait()
}

// pageServer serves the page over TCP; the zero value does not.
type pageServer struct {
	server   serve.Server
	listener net.Listener
}

// close closes a listener that is not served.
func (p pageServer) close() error {
	if p.listener == nil {
		return nil
	}
	return p.listener.Close()
}

// page listens for browsers, if that is asked for.
func (a *Agent) page(ctx context.Context) (p pageServer, err error) {
	if a.cfg.Listen.UIAddress == "" {
		return p, nil
	}
	token, err := a.cfg.Listen.UIToken()
	if err != nil {
		return p, err
	}
	if p.listener, err = serve.Listen(ctx, a.cfg.Listen.UIAddress); err != nil {
		return p, fmt.Errorf("--ui-address: %w", err)
	}
	p.server = a.server(ui.Handler(a.api.Page(), ui.Guard{Token: token, Hosts: a.cfg.Listen.UIHosts}))
	a.log.Info("page is served", "address", p.listener.Addr().String(), "path", ui.Path)
	return p, nil
}

// localAnswer bounds an answer on the socket: a matrix of thousands of pods takes its time.
const localAnswer = 5 * time.Minute

// server answers by a handler, and counts its panics.
func (a *Agent) server(handler http.Handler) serve.Server {
	return serve.Server{Handler: handler, Log: a.log.With("plugin", "api"), Panicked: a.metrics.Panic}
}
