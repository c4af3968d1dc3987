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
	// Next waits for changes and takes them; the first are a resync. When ctx ends
	// it returns its error at once, and what was not taken comes with the next call.
	// Any other error says that there will be no more changes.
	Next(ctx context.Context) (model.Changes, error)
}

// Deps are what a Plugin needs. Zero values are sensible where nothing else is said.
type Deps struct {
	Name string       // of the plugin; "policy" when empty
	Log  *slog.Logger // nil discards
	// Source delivers the state. Without one, changes come by Apply.
	Source Source
	// Renderers enforce; their names must differ.
	Renderers []renderer.Renderer
	// Node is the agent's node: its pods are local. Empty makes all pods local.
	Node string
	// NodeAddresses returns addresses of the node beside those that its pods tell. It is asked with
	// every transaction, and must not wait; call Prompt when they are others. nil is none.
	NodeAddresses func() []netip.Addr
	// Registered returns addresses that pods of the node got, from whoever makes their interfaces:
	// a pod has them while the state has no addresses of it and no other pod with them. It is asked
	// at every transaction, and its answer is kept; Prompt says that there is another one. Nil:
	// none.
	Registered func() map[api.PodID][]netip.Addr
	// DenyNode ends the exemption of the node's own traffic from isolation.
	DenyNode bool
	// MinBackoff and MaxBackoff bound the pause before a renderer that failed is
	// tried again; 100 ms and 30 s when zero.
	MinBackoff, MaxBackoff time.Duration
	// CommitTimeout bounds one commit of all renderers; 30 s when zero.
	CommitTimeout time.Duration
	Observer      Observer
}

// name is the name of the plugin.
func (d *Deps) name() string { return cmp.Or(d.Name, defaultName) }

// complete checks the dependencies, and puts in those that were left out.
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
	d.CommitTimeout = cmp.Or(d.CommitTimeout, defaultCommitTimeout)
	return nil
}

// Stage is a part of the work on one transaction.
type Stage string

// The stages, in order.
const (
	StageCache        Stage = "cache"        // state and selection, with what the processor records
	StageProcessor    Stage = "processor"    // policies, sets and pods that are different
	StageConfigurator Stage = "configurator" // rules
	StageCommit       Stage = "commit"       // renderers
)

// Observer is told what happens, by the event loop, which waits for it. Every
// function may be nil.
type Observer struct {
	// Stage is told how long a stage of a transaction took.
	Stage func(Stage, time.Duration)
	// Transaction is told the status after a transaction, retries included.
	Transaction func(Status)
	// Quarantine gets, before the first state, whether a dataplane enforces rules of an earlier
	// run, each time that its renderer has looked; see renderer.Quarantiner.
	Quarantine func(holdsRules bool)
	// Problem is told what is wrong with objects, and what of policies cannot be
	// enforced, once when it begins; Solved, when it is no more.
	Problem func(api.Problem)
	Solved  func(api.Problem)
	// Known reports whether a problem was told to people already, where the object came
	// from. Such a problem is not logged.
	Known func(api.Problem) bool
}

const (
	defaultName          = "policy"
	defaultMinBackoff    = 100 * time.Millisecond
	defaultMaxBackoff    = 30 * time.Second
	defaultCommitTimeout = 30 * time.Second
)
