package backends

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/plugins/bindings"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/renderer/acl"
)

// Waker is a backend that callers wait at for the end of a transaction.
type Waker interface{ Committed() }

// Runner is a backend that follows something as long as the agent runs.
type Runner interface {
	// Run runs until ctx ends.
	Run(ctx context.Context) error
}

// Starter is a backend that has to begin before its node does.
type Starter interface {
	// Start ends what it began when it fails.
	Start() error
}

// Awaiting is a backend that nothing may be rendered for before it knows the interfaces of pods:
// that would open them.
type Awaiting interface {
	// Ready is closed when it knows them.
	Ready() <-chan struct{}
}

// Identifier is a backend that keeps apart the lives of pods which have the same name. Any
// goroutine may call it.
type Identifier interface {
	// Identify learns by which UIDs and addresses the state knows pods of the node; nil for one
	// that is gone. All says that there are no others.
	Identify(lives map[api.PodID]*acl.PodIdentity, all bool)
	// Registered returns the addresses with which interfaces of pods were made.
	Registered() map[api.PodID][]netip.Addr
}

// Deps are what backends are made from.
type Deps struct {
	Config config.Config
	Log    *slog.Logger
	Store  *kvstore.Client
	// OnProblem hears of values in the store that say nothing.
	OnProblem func(api.Problem)
	// Needed is that of datasync.Config.
	Needed <-chan struct{}
}

// watcher returns what follows what the store says of the interfaces of pods, or of their
// application namespaces. What is kept of it is beside the file of the state.
func watcher(d Deps, cfg bindings.Config, suffix string) *bindings.Watcher {
	cfg.Store, cfg.Prefix, cfg.Node = d.Store, d.Config.Store.Prefix, d.Config.Node.Name
	cfg.Log, cfg.OnProblem, cfg.Needed = d.Log.With("plugin", "bindings"), d.OnProblem, d.Needed
	if file := d.Config.Store.StateFile; file != "" {
		cfg.File = file + suffix
	}
	return bindings.New(cfg)
}
