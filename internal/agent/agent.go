package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/endpoints/gate"
	"github.com/sluice-net/sluice/endpoints/keeper"
	"github.com/sluice-net/sluice/endpoints/nodeaddr"
	"github.com/sluice-net/sluice/internal/cniinstall"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/plugins/plumbing"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// Agent is one running agent. Its methods may be called by any goroutine.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	store   *kvstore.Client
	source  string // where state comes from, for people
	watcher *datasync.Watcher
	plugs   *plumbing.Watcher // nil with the embedded dataplane
	spaces  *plumbing.Watcher // of application namespaces; nil without session rules
	node    *node.Node
	metrics *metrics
	// reflector writes to the store; the agent of a node only reads, and has none.
	reflector *reflect.Reflector
	heartbeat heartbeat
	kernel    *xdp.Kernel           // nil unless the kernel enforces
	endpoints *keeper.Keeper        // the same
	addresses *nodeaddr.Addresses   // of the node; the same
	lives     *acl.Lives            // nil unless a VPP enforces
	gate      *gate.Gate            // the same
	installer *cniinstall.Installer // of the CNI plugin; nil where it is not installed
	listeners *listeners            // to packets; never nil
	directory directory
	problems  problemLog
	committed chan struct{} // holds a token after a transaction
	// transactions wakes who waits for the end of one.
	transactions broadcast
	needOnce     sync.Once     // closes needed
	needed       chan struct{} // closed when saved state is needed at once; nil: after the store has failed
}

// newAgent wires an agent to a store. Nothing runs before Run.
func newAgent(cfg Config, log *slog.Logger, store *kvstore.Client, source string) (*Agent, error) {
	nodeConfig, err := cfg.node()
	if err != nil {
		return nil, err
	}
	cfg.StateFile = cfg.stateFile(log)
	a := &Agent{cfg: cfg, log: log, store: store, source: source, metrics: newMetrics(), committed: make(chan struct{}, 1)}
	if cfg.keepsRules() {
		a.needed = make(chan struct{})
	}
	a.watcher = datasync.New(datasync.Config{
		Store: store, Prefix: cfg.EtcdPrefix, Log: log.With("plugin", "datasync"), OnProblem: a.metrics.problem,
		File: cfg.StateFile, Needed: a.needed,
	})
	nodeConfig.Source, nodeConfig.Observer = a.metrics.counted(a.watcher), a.observer()
	nodeConfig.Log = log.With("plugin", "policy")
	if a.plugs = a.follower(); a.plugs != nil {
		nodeConfig.Plumbing, nodeConfig.Source = a.plugs, plugged{nodeConfig.Source, a.plugs.Ready()}
	}
	if a.spaces = a.namespaceFollower(); a.spaces != nil {
		nodeConfig.Source = plugged{nodeConfig.Source, a.spaces.Ready()}
	}
	nodeConfig.Ligato = a.ligato(nodeConfig.Infra)
	if nodeConfig.HostStack = a.hostStack(); nodeConfig.HostStack != nil {
		nodeConfig.HostStack.Infra = nodeConfig.Infra
	}
	if err := a.installsCNI(); err != nil {
		return nil, err
	}
	if nodeConfig.XDP, err = a.xdp(nodeConfig.Infra, nodeConfig.Established); err != nil {
		return nil, err
	}
	if a.addresses != nil {
		configured := nodeConfig.Addresses()
		nodeConfig.Addresses = func() []netip.Addr { return slices.Concat(configured, a.addresses.List()) }
	}
	a.identify(&nodeConfig)
	a.node, err = node.New(nodeConfig)
	if err != nil {
		return nil, err
	}
	a.listeners, a.directory.snapshot = a.listen(), a.node.Plugin.Snapshot
	a.metrics.collect(a)
	return a, nil
}

// Run runs the agent until ctx ends. What is installed in a VPP stays installed.
// The pipeline stops before its source does, so that an end that is wanted does
// not look like a source that has failed.
func (a *Agent) Run(ctx context.Context) error {
	if a.endpoints != nil {
		defer func() { _ = a.gate.Close() }() // what is blocked stays so
		if err := errors.Join(a.endpoints.Start(), a.addresses.Read()); err != nil {
			return errors.Join(err, a.node.Close())
		}
	}
	if err := a.node.Start(); err != nil {
		return errors.Join(err, a.node.Close())
	}
	source, stopSource := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSource()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ended(a.watcher.Run(source)) })
	if a.plugs != nil {
		g.Go(func() error { return ended(a.plugs.Run(source)) })
	}
	if a.spaces != nil {
		g.Go(func() error { return ended(a.spaces.Run(source)) })
	}
	if a.node.Ligato != nil {
		g.Go(func() error { return ended(a.followPublished(source)) })
	}
	if a.endpoints != nil {
		g.Go(func() error { return ended(a.endpoints.Run(source)) })
		g.Go(func() error { return ended(a.addresses.Run(source)) })
	}
	if a.installer != nil {
		g.Go(func() error { return ended(a.installer.Run(ctx)) })
	}
	g.Go(func() error { return ended(a.serve(ctx)) })
	if a.reflected() {
		g.Go(func() error { return ended(a.heartbeat.follow(ctx, a.store, model.LeaderKey(a.cfg.EtcdPrefix), a.log)) })
	}
	if a.cfg.StatusInterval > 0 && a.cfg.Node != "" {
		g.Go(func() error { return ended(a.announce(ctx)) })
	}
	g.Go(func() error { a.logVerdicts(ctx); return nil })
	g.Go(func() error { a.logEnforcement(ctx); return nil })
	g.Go(func() error {
		<-ctx.Done()
		defer stopSource()
		a.listeners.end()
		return a.node.Close()
	})
	return g.Wait()
}

// ended drops the errors of what runs when the agent is stopped: its context has
// ended, or the pipeline has, which ends only then.
func ended(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, policy.ErrNotRunning) || errors.Is(err, datasync.ErrStopped) {
		return nil
	}
	return err
}

// enforced waits until what is in the store now is enforced.
func (a *Agent) enforced(ctx context.Context) error {
	s, err := a.store.Status(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, enforceTimeout)
	defer cancel()
	revision, err := a.read(ctx, s.Revision)
	if err != nil {
		return err
	}
	return a.node.WaitEnforced(ctx, revision)
}

// read waits until the watcher has read the store up to a revision, and returns the one that
// the pipeline gets to by that. The newest revisions of a store are most often none that
// changed policy, since the nodes report there: only an answer to a question for progress
// brings the watcher to them.
func (a *Agent) read(ctx context.Context, revision int64) (int64, error) {
	for a.watcher.Status().Revision < revision {
		a.store.AskProgress(ctx)
		moment, cancel := context.WithTimeout(ctx, askEvery)
		_, err := a.watcher.Await(moment, revision)
		cancel()
		if ctx.Err() != nil || err != nil && moment.Err() == nil {
			return 0, err
		}
	}
	return a.watcher.Await(ctx, revision)
}

const (
	// enforceTimeout bounds how long an answer waits for enforcement.
	enforceTimeout = 10 * time.Second
	// askEvery is how often it asks for progress meanwhile: a store leaves a question
	// unanswered while a watch lags behind.
	askEvery = 100 * time.Millisecond
)

// state reads the whole state from the store.
func (a *Agent) state(ctx context.Context) (clusterState, error) {
	entries, _, err := a.store.List(ctx, model.Root(a.cfg.EtcdPrefix))
	if err != nil {
		return clusterState{}, fmt.Errorf("read the state: %w", err)
	}
	return decodeState(a.cfg.EtcdPrefix, entries, a.watcher.InForce), nil
}
