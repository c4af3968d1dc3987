package policy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
)

// Source delivers the state of the cluster.
type Source interface {
	// Next waits for changes and returns them; the first are a resync. When ctx ends, Next returns
	// its error at once; changes that it did not return come with the next call. Any other error
	// means that no more changes will come.
	Next(ctx context.Context) (model.Changes, error)
}

// Deps are the dependencies of a Plugin. Zero values are sensible unless stated otherwise.
type Deps struct {
	Name string       // of the plugin; "policy" when empty
	Log  *slog.Logger // nil discards
	// Source delivers the state. Without it, changes come through Apply.
	Source Source
	// Renderers enforce the rules; their names must differ.
	Renderers []renderer.Renderer
	// Node is the agent's node, whose pods are local. If it is empty, all pods are local.
	Node string
	// NodeAddresses returns addresses of the node in addition to those in the status of its pods.
	// It is called in every transaction and must not block; call Prompt when the result changes.
	// nil means none.
	NodeAddresses func() []netip.Addr
	// Registered returns the addresses that were registered for pods of the node when their
	// interfaces were created. A pod has them while the state has no addresses of it and no other
	// pod has them. It is called in every transaction, and its result is kept; call Prompt when the
	// result changes. nil means none.
	Registered func() map[api.PodID][]netip.Addr
	// DenyNode removes the exemption of the node's own traffic from isolation.
	DenyNode bool
	// MinBackoff and MaxBackoff bound the delay before a failed renderer is retried; zero means 100
	// ms and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// ApplyTimeout bounds one Apply of a renderer; zero means 30 s.
	ApplyTimeout time.Duration
	Observer     Observer
}

// name returns the name of the plugin.
func (d *Deps) name() string { return cmp.Or(d.Name, defaultName) }

// complete validates the dependencies and sets defaults.
func (d *Deps) complete() error {
	names := map[string]bool{}
	for _, r := range d.Renderers {
		if names[r.Name()] {
			return fmt.Errorf("plugin %s: two renderers have the name %q", d.name(), r.Name())
		}
		names[r.Name()] = true
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	d.MinBackoff = cmp.Or(d.MinBackoff, defaultMinBackoff)
	d.MaxBackoff = max(d.MinBackoff, cmp.Or(d.MaxBackoff, defaultMaxBackoff))
	d.ApplyTimeout = cmp.Or(d.ApplyTimeout, defaultApplyTimeout)
	return nil
}

// Stage is a part of the processing of one transaction.
type Stage string

// The stages, in order.
const (
	StageCache        Stage = "cache"        // updates the state and the selection; includes what the processor records
	StageProcessor    Stage = "processor"    // computes changed policies, sets and pods
	StageConfigurator Stage = "configurator" // rules
	StageApply        Stage = "apply"        // renderers
)

// Observer holds callbacks for events of the plugin. The event loop calls them and waits for them.
// Each may be nil.
type Observer struct {
	// Stage receives the duration of a stage of a transaction.
	Stage func(Stage, time.Duration)
	// Transaction receives the status after each transaction, including retries.
	Transaction func(Status)
	// Quarantine receives, before the first state and after each time that the renderers have
	// checked, whether a dataplane enforces rules of an earlier run; see renderer.Quarantiner.
	Quarantine func(holdsRules bool)
	// Problem is called once when a problem begins: an invalid object, or a part of a policy that
	// cannot be enforced. Solved is called when the problem ends.
	Problem func(api.Problem)
	Solved  func(api.Problem)
	// Known reports whether a problem was already reported where the object came from. Such a
	// problem is not logged.
	Known func(api.Problem) bool
}

const (
	defaultName         = "policy"
	defaultMinBackoff   = 100 * time.Millisecond
	defaultMaxBackoff   = 30 * time.Second
	defaultApplyTimeout = 30 * time.Second
)
