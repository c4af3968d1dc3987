package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
)

// Config of a node.
type Config struct {
	Name      string        // pods of this node are local; empty: all pods are
	Addresses []netip.Addr  // of the node, beside those that its pods name
	AllowNode bool          // permit traffic between a pod and its own node
	Source    policy.Source // nil: changes come by Apply
	Observer  policy.Observer
	Log       *slog.Logger

	// Renderers are told what the ACL renderer is told, beside it.
	Renderers []renderer.Renderer

	// VPPSocket is the API socket of a VPP. When it is empty the node has an
	// embedded dataplane.
	VPPSocket string
	Timeout   time.Duration // of one call to the dataplane; 0 for the default
	Uplinks   []string      // names of further interfaces that lead out of the node
}

// Node is one node. Its methods may be called by any goroutine.
type Node struct {
	name   string
	Plugin *policy.Plugin
	ACL    *acl.Renderer
	Switch *vswitch.Switch // nil with a VPP of its own

	attach  *attacher  // nil with a VPP of its own
	uplink  uint32     // of the embedded dataplane
	sending sync.Mutex // one packet at a time, so that it is the first of its flow
}

// New makes a node that does nothing until Start.
func New(cfg Config) (*Node, error) {
	n := &Node{name: cfg.Name, Plugin: policy.New(policy.Deps{
		Log: cfg.Log, Source: cfg.Source, Node: cfg.Name, NodeAddresses: cfg.Addresses, DenyNode: !cfg.AllowNode, Observer: cfg.Observer,
	})}
	options := acl.Options{
		Log: cfg.Log, Socket: cfg.VPPSocket, Uplinks: cfg.Uplinks, Timeout: cfg.Timeout,
		OnChange: n.Plugin.Prompt,
	}
	if cfg.VPPSocket == "" {
		if err := n.embed(cfg.Log); err != nil {
			return nil, err
		}
		options.Adapter = n.Switch.Adapter()
	}
	var err error
	if n.ACL, err = acl.New(options); err != nil {
		return nil, errors.Join(err, n.closeSwitch())
	}
	var r renderer.Renderer = n.ACL
	if n.Switch != nil {
		n.attach = newAttacher(n.ACL, n.Switch)
		r = n.attach
	}
	n.Plugin.Renderers = append([]renderer.Renderer{r}, cfg.Renderers...)
	// The plugin is wired here, so that whoever starts the node in one goroutine can
	// wait for it in another.
	if err := n.Plugin.Init(); err != nil {
		return nil, errors.Join(err, n.ACL.Close(), n.closeSwitch())
	}
	return n, nil
}

// embed makes the embedded dataplane, with an uplink that everything that is no
// local pod is routed to.
func (n *Node) embed(log *slog.Logger) error {
	n.Switch = vswitch.New(vswitch.Options{Log: log})
	n.uplink = n.Switch.AddInterface("uplink0", acl.UplinkTag)
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		if err := n.Switch.AddRoute(netip.MustParsePrefix(all), n.uplink); err != nil {
			return fmt.Errorf("embedded dataplane: %w", err)
		}
	}
	return nil
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

// Close stops the node. What a VPP of its own enforces stays enforced.
func (n *Node) Close() error {
	return errors.Join(n.Plugin.Close(), n.ACL.Close(), n.closeSwitch())
}

func (n *Node) closeSwitch() error {
	if n.Switch == nil {
		return nil
	}
	return n.Switch.Close()
}
