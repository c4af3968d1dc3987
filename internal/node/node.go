package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy"
)

// Config of a node.
type Config struct {
	Name      string              // pods of this node are local; empty: all pods are
	Addresses func() []netip.Addr // policy.Deps.NodeAddresses
	AllowNode bool                // permit traffic between a pod and its own node
	Source    policy.Source       // nil: changes come by Apply
	Observer  policy.Observer
	Log       *slog.Logger
	// ApplyTimeout is that of policy.Deps.
	ApplyTimeout time.Duration
	// Registered is that of policy.Deps.
	Registered func() map[api.PodID][]netip.Addr
	// Backends enforce, each beside the others. New opens them in this order.
	Backends []Backend
}

// Node is one node. Its methods may be called by any goroutine.
type Node struct {
	Plugin   *policy.Plugin
	name     string
	backends []Backend // that are open
}

// New makes a node that does nothing until Start.
func New(cfg Config) (*Node, error) {
	n := &Node{name: cfg.Name, Plugin: policy.New(policy.Deps{
		Log: cfg.Log, Source: cfg.Source, Node: cfg.Name, NodeAddresses: cfg.Addresses, DenyNode: !cfg.AllowNode, Observer: cfg.Observer, Registered: cfg.Registered, ApplyTimeout: cfg.ApplyTimeout,
	})}
	if err := n.open(cfg.Backends, Host{Log: cfg.Log, OnChange: n.Plugin.Prompt, Served: n.served}); err != nil {
		return nil, errors.Join(err, n.closeBackends())
	}
	return n, nil
}

// open opens the backends. It wires the plugin, too, so that whoever starts the node in one
// goroutine can wait for it in another.
func (n *Node) open(backends []Backend, h Host) error {
	for _, b := range backends {
		if err := b.Open(h); err != nil {
			return err
		}
		n.backends = append(n.backends, b)
		n.Plugin.Renderers = append(n.Plugin.Renderers, b.Renderer())
	}
	return n.Plugin.Init()
}

// Start begins to follow the source.
func (n *Node) Start() error { return n.Plugin.AfterInit() }

// Apply brings changes down to the dataplane and waits until they are enforced.
// It is for nodes without a source.
func (n *Node) Apply(ctx context.Context, c model.Changes) error { return n.Plugin.Apply(ctx, c) }

// WaitEnforced returns when every change up to a revision of the source is
// enforced by all renderers.
func (n *Node) WaitEnforced(ctx context.Context, revision int64) error {
	return n.Plugin.WaitIdle(ctx, revision)
}

// Close stops the node. What a VPP of its own enforces stays enforced. It does not wait for
// an Apply that does not end: the dataplane is then closed as soon as it does.
func (n *Node) Close() error {
	err := n.Plugin.Close()
	if errors.Is(err, policy.ErrStuck) {
		go func() { _ = n.closeBackends() }() // they need what the Apply has locked
		return err
	}
	return errors.Join(err, n.closeBackends())
}

// closeBackends closes the last one first.
func (n *Node) closeBackends() (err error) {
	for _, b := range slices.Backward(n.backends) {
		err = errors.Join(err, b.Close())
	}
	return err
}
