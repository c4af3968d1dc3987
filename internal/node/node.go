package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/ligato"
	"github.com/sluice-net/sluice/renderer/session"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// Config of a node.
type Config struct {
	Name      string              // pods of this node are local; empty: all pods are
	Addresses func() []netip.Addr // policy.Deps.NodeAddresses
	AllowNode bool                // permit traffic between a pod and its own node
	Source    policy.Source       // nil: changes come by Apply
	Observer  policy.Observer
	Log       *slog.Logger

	// Renderers are told what the ACL renderer is told, beside it.
	Renderers []renderer.Renderer

	// VPPSocket is the API socket of a VPP. When it is empty the node has an
	// embedded dataplane.
	VPPSocket string
	Timeout   time.Duration // of one call to the dataplane; 0 for the default
	Uplinks   []string      // names of further interfaces that lead out of the node
	ACLMemory uint64        // bytes of the dataplane's memory that ACLs may take; 0: what it has

	// VPPStatsSocket is the socket of VPP's statistics segment; empty: hits of rules are
	// not known.
	VPPStatsSocket string

	// Plumbing, Refuses and HoldUnknown are those of the ACL renderer.
	Plumbing    acl.Plumbing
	Refuses     func(pod api.PodID, m vpp.Made) string
	HoldUnknown bool

	// See acl.Options for these.
	Established acl.Established
	Orientation acl.Orientation
	Grace       time.Duration
	UDPIdle     time.Duration
	Sessions    uint32 // acl.Options.SessionTable
	PauseBudget float64
	Services    []netip.Prefix
	Infra       renderer.Infra

	// Ligato has the rules published for a vpp-agent, which programs its VPP: there is
	// no dataplane then that this node could talk to.
	Ligato *ligato.Options

	// HostStack has the rules installed as session rules, too, for applications on the host
	// stack of the dataplane. Its Socket, Adapter and OnChange are the node's.
	HostStack *session.Options
	// PodsOnHostStack gives every pod of an embedded dataplane an application namespace.
	PodsOnHostStack bool
	// Registered is that of policy.Deps.
	Registered func() map[api.PodID][]netip.Addr
	// XDP has the rules enforced in the kernel, beside what else there is or alone.
	XDP *XDP
}

// Node is one node. Its methods may be called by any goroutine.
type Node struct {
	name     string
	Plugin   *policy.Plugin
	ACL      *acl.Renderer     // nil when a vpp-agent programs VPP, or there is none
	Ligato   *ligato.Renderer  // nil unless it does
	Session  *session.Renderer // nil without a HostStack
	Switch   *vswitch.Switch   // nil with a VPP of its own
	embedded *Embedded         // nil with a VPP of its own
	XDP      *xdp.Renderer     // nil unless the kernel enforces
	plane    xdp.Plane         // below it
}

// New makes a node that does nothing until Start.
func New(cfg Config) (*Node, error) {
	n := &Node{name: cfg.Name, Plugin: policy.New(policy.Deps{
		Log: cfg.Log, Source: cfg.Source, Node: cfg.Name, NodeAddresses: cfg.Addresses, DenyNode: !cfg.AllowNode, Observer: cfg.Observer, Registered: cfg.Registered,
	})}
	first, err := n.render(cfg)
	if err != nil {
		return nil, errors.Join(err, n.closeStack()) // the kernel may be open
	}
	n.Plugin.Renderers = append([]renderer.Renderer{first}, cfg.Renderers...)
	if cfg.HostStack != nil {
		if err := n.openSession(cfg); err != nil {
			return nil, errors.Join(err, n.closeStack())
		}
	}
	if n.XDP != nil && !n.onlyXDP() {
		n.Plugin.Renderers = append(n.Plugin.Renderers, n.XDP)
	}
	// The plugin is wired here, so that whoever starts the node in one goroutine can
	// wait for it in another.
	if err := n.Plugin.Init(); err != nil {
		return nil, errors.Join(err, n.closeStack())
	}
	return n, nil
}

// render makes the renderer and, unless there is a VPP, the dataplane below it.
func (n *Node) render(cfg Config) (renderer.Renderer, error) {
	if cfg.XDP != nil {
		if err := n.newXDP(*cfg.XDP); err != nil {
			return nil, err
		}
		if cfg.XDP.Only {
			return n.XDP, nil
		}
	}
	if cfg.Ligato != nil {
		var err error
		n.Ligato, err = ligato.New(*cfg.Ligato)
		return n.Ligato, err
	}
	options := acl.Options{
		Log: cfg.Log, Socket: cfg.VPPSocket, Uplinks: cfg.Uplinks, Timeout: cfg.Timeout,
		Memory: cfg.ACLMemory, StatsSocket: cfg.VPPStatsSocket,
		Established: cfg.Established, Orientation: cfg.Orientation, Grace: cfg.Grace, UDPIdle: cfg.UDPIdle, SessionTable: cfg.Sessions, Infra: cfg.Infra,
		PauseBudget: cfg.PauseBudget, Services: cfg.Services,
		Plumbing: cfg.Plumbing, Refuses: cfg.Refuses, HoldUnknown: cfg.HoldUnknown, OnChange: n.Plugin.Prompt,
		Elsewhere: func(pod api.PodID) bool { return n.Session != nil && n.Session.Serves(pod) },
	}
	if cfg.VPPSocket != "" {
		var err error
		n.ACL, err = acl.New(options)
		return n.ACL, err
	}
	e, err := NewEmbedded(vswitch.New(vswitch.Options{Log: cfg.Log}), options)
	if err != nil {
		return nil, err
	}
	if cfg.PodsOnHostStack {
		e.attach.namespace = e.Switch.AddNamespace
	}
	n.embedded, n.ACL, n.Switch = e, e.ACL, e.Switch
	return e.Renderer(), nil
}

// openSession makes the renderer for the host stack of the dataplane.
func (n *Node) openSession(cfg Config) error {
	o := *cfg.HostStack
	o.Socket, o.OnChange = cfg.VPPSocket, n.Plugin.Prompt
	if n.Switch != nil {
		o.Adapter = n.Switch.Adapter()
	}
	var err error
	if n.Session, err = session.New(o); err != nil {
		return err
	}
	n.Plugin.Renderers = append(n.Plugin.Renderers, n.Session)
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

// Close stops the node. What a VPP of its own enforces stays enforced. It does not wait for
// a commit that does not end: the dataplane is then closed as soon as it does.
func (n *Node) Close() error {
	err := n.Plugin.Close()
	if errors.Is(err, policy.ErrStuck) {
		go func() { _ = n.closeStack() }() // it needs what the commit has locked
		return err
	}
	return errors.Join(err, n.closeStack())
}

func (n *Node) closeStack() error {
	err := n.closeXDP()
	if n.Session != nil {
		err = errors.Join(err, n.Session.Close())
	}
	switch {
	case n.embedded != nil:
		return errors.Join(err, n.embedded.Close())
	case n.ACL != nil:
		return errors.Join(err, n.ACL.Close())
	}
	return err // nothing else is open
}
