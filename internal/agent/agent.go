package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/backends"
	"github.com/sluice-net/sluice/internal/agent/cluster"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/debugapi"
	"github.com/sluice-net/sluice/internal/agent/metrics"
	"github.com/sluice-net/sluice/internal/agent/nodestatus"
	"github.com/sluice-net/sluice/internal/agent/problems"
	"github.com/sluice-net/sluice/internal/agent/socket"
	"github.com/sluice-net/sluice/internal/cni/install"
	"github.com/sluice-net/sluice/internal/lib/tracing"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/plugins/policy"
)

// Agent is one running agent. Its methods may be called by any goroutine.
type Agent struct {
	cfg       config.Config
	log       *slog.Logger
	store     *kvstore.Client
	watcher   *datasync.Watcher
	backends  backendList
	node      *node.Node
	installer *install.Installer // of the CNI plugin; nil where it is not installed
	heartbeat heartbeat
	metrics   *metrics.Metrics
	problems  *problems.Known
	cluster   *cluster.Reader
	api       *debugapi.API
	socket    atomic.Pointer[socket.Lasting] // nil before it is served
	own       nodestatus.Own
	tracer    *tracing.Tracer // nil: none
	committed chan struct{}   // holds a token after a transaction
}

// newAgent wires an agent to a store. Nothing runs before Run. Source says where state comes from.
func newAgent(cfg config.Config, log *slog.Logger, store *kvstore.Client, source string) (*Agent, error) {
	return newOn(backends.New, cfg, log, store, source)
}

// newOn is newAgent with other backends. A program links those that it names: docs/design/build.md.
func newOn(dataplanes backends.Maker, cfg config.Config, log *slog.Logger, store *kvstore.Client, source string) (*Agent, error) {
	cfg.Store.StateFile = cfg.Store.Kept(log)
	a := &Agent{cfg: cfg, log: log, store: store, metrics: metrics.New(), committed: make(chan struct{}, 1)}
	a.problems = problems.New(func() int { return a.watcher.Status().Problems }, func() []api.Problem { return a.backends.problems() }, a.installProblems)
	if err := a.install(); err != nil {
		return nil, err
	}
	if err := a.render(dataplanes); err != nil {
		return nil, err
	}
	a.cluster = &cluster.Reader{Store: store, Prefix: cfg.Store.Prefix, Watcher: a.watcher, Enforces: a.node.WaitEnforced}
	a.api = a.newAPI(source)
	a.own = nodestatus.Own{
		Name: cfg.Node.Name, Interval: cfg.Store.StatusInterval, Log: log, Status: a.node.Status, Watch: a.node.Plugin.Watch,
		Following: func() bool { return a.watcher.Status().Following }, Policies: a.api.Lists.Policies,
	}
	a.register()
	return a, nil
}

// render makes the source of the state, and the node that enforces it.
func (a *Agent) render(dataplanes backends.Maker) error {
	addresses, err := a.cfg.Node.FurtherAddresses()
	if err != nil {
		return err
	}
	var needed chan struct{} // closed when saved state is needed at once; nil: after the store has failed
	need := func() {}
	if a.cfg.KeepsRules() {
		needed = make(chan struct{})
		need = sync.OnceFunc(func() { close(needed) })
	}
	a.watcher = datasync.New(datasync.Config{
		Store: a.store, Prefix: a.cfg.Store.Prefix, Log: a.log.With("plugin", "datasync"), OnProblem: a.problem,
		File: a.cfg.Store.StateFile, Needed: needed,
	})
	a.backends, err = dataplanes(backends.Deps{Config: a.cfg, Log: a.log, Store: a.store, OnProblem: a.problem, Needed: needed})
	if err != nil {
		return err
	}
	a.node, err = node.New(node.Config{
		Name: a.cfg.Node.Name, AllowNode: a.cfg.Node.AllowTraffic, Log: a.log.With("plugin", "policy"),
		Addresses: func() []netip.Addr { return slices.Concat(addresses, a.backends.addresses()) },
		Source:    a.backends.source(a.metrics.Source(a.watcher), a.cfg.Node.Name),
		Observer:  a.observer(need), Registered: a.backends.registered(), Backends: a.backends, ApplyTimeout: a.cfg.ApplyTimeout(),
	})
	return err
}

// problem counts and keeps what is wrong with a value of the store.
func (a *Agent) problem(p api.Problem) {
	a.metrics.Problem()
	a.problems.Store(p)
}

// observer is that of the metrics, wakes who waits for the end of a transaction, and has the saved
// state used once the dataplane is found to enforce nothing.
func (a *Agent) observer(need func()) policy.Observer {
	o := a.metrics.Observer(a.problems.Explains)
	count := o.Transaction
	o.Transaction = func(s policy.Status) {
		count(s)
		each(a.backends, backends.Waker.Committed)
		select {
		case a.committed <- struct{}{}:
		default: // it has not looked since the last one
		}
	}
	o.Quarantine = func(holdsRules bool) {
		if !holdsRules {
			need()
		}
	}
	return o
}

// Run runs the agent until ctx ends. What is installed in a VPP stays installed.
// The pipeline stops before its source does, so that an end that is wanted does
// not look like a source that has failed.
func (a *Agent) Run(ctx context.Context) error {
	var err error
	if a.tracer, err = tracing.Start(ctx, a.cfg.Log.Traces, "sluice-agent", a.log); err == nil {
		err = a.backends.start()
	}
	if err == nil {
		err = a.node.Start()
	}
	if err != nil {
		return errors.Join(err, a.node.Close(), a.tracer.Close())
	}
	a.api.Verdicts.Begin()
	source, stopSource := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSource()
	g, ctx := errgroup.WithContext(ctx)
	runs := func(ctx context.Context, run func(context.Context) error) {
		g.Go(func() error { return ended(run(ctx)) })
	}
	runs(source, a.watcher.Run)
	each(a.backends, func(r backends.Runner) { runs(source, r.Run) })
	if a.installer != nil {
		runs(ctx, a.installer.Run)
	}
	runs(ctx, a.serve)
	if a.cfg.Reflected() {
		runs(ctx, func(ctx context.Context) error {
			return a.heartbeat.follow(ctx, a.store, model.LeaderKey(a.cfg.Store.Prefix, "ksr"), a.log)
		})
	}
	if a.own.Interval > 0 && a.own.Name != "" {
		key := a.store.LeasedKey(model.StatusRoot(a.cfg.Store.Prefix)+a.own.Name, a.own.Life())
		runs(ctx, func(ctx context.Context) error { return a.own.Publish(ctx, key) })
	}
	if a.tracer != nil {
		runs(ctx, func(ctx context.Context) error {
			return a.tracer.Follow(ctx, a.cfg.Node.Name, a.clusterName, a.node.Plugin.Watch)
		})
	}
	runs(ctx, a.logVerdicts)
	runs(ctx, a.logEnforcement)
	g.Go(func() error {
		<-ctx.Done()
		defer stopSource()
		a.api.Verdicts.End()
		return a.node.Close()
	})
	return errors.Join(g.Wait(), a.tracer.Close())
}

// clusterName returns what the completeness marker of the state in force names; empty when there is
// none.
func (a *Agent) clusterName() string {
	if m := a.watcher.Status().Marker; m != nil {
		return m.Cluster
	}
	return ""
}

// ended drops the errors of what runs when the agent is stopped: its context has
// ended, or the pipeline has, which ends only then.
func ended(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, policy.ErrNotRunning) || errors.Is(err, datasync.ErrStopped) {
		return nil
	}
	return err
}
