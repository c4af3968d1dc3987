package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/session"
)

// Fabric is a cluster of nodes, each with its own pipeline and dataplane, joined
// by their uplinks. It grows a node when the first pod of one appears. It is for
// tests of policies: changes are applied one step at a time, and Apply returns
// when they are enforced everywhere.
type Fabric struct {
	log       *slog.Logger
	allowNode bool
	stack     bool // pods are applications on the host stack, too
	xdp       bool // nodes enforce by XDP, else by ACLs
	nodes     map[string]*Node
	state     map[model.ID]model.Delta
	revision  int64
}

// NewFabric returns a cluster without nodes.
func NewFabric(log *slog.Logger, allowNode bool) *Fabric {
	return &Fabric{log: log, allowNode: allowNode, nodes: map[string]*Node{}, state: map[model.ID]model.Delta{}}
}

// NewHostStackFabric is NewFabric for pods whose applications are on the host stack of their
// node, so that Attempt can be asked.
func NewHostStackFabric(log *slog.Logger, allowNode bool) *Fabric {
	f := NewFabric(log, allowNode)
	f.stack = true
	return f
}

// NewXDPFabric returns a cluster without nodes, in which the XDP renderer enforces in the
// heap.
func NewXDPFabric(log *slog.Logger, allowNode bool) *Fabric {
	f := NewFabric(log, allowNode)
	f.xdp = true
	return f
}

// defaultNode is where pods live whose spec names no node; it cannot be the name
// of one.
const defaultNode = "_"

// Apply tells every node what changed, and returns when all of them enforce it.
func (f *Fabric) Apply(ctx context.Context, deltas []model.Delta) error {
	f.revision++
	deltas = slices.Clone(deltas)
	var grown []string
	for i, d := range deltas {
		if pod, ok := d.Value.(*model.Pod); ok {
			pod = placed(pod)
			d.Value, deltas[i].Value = pod, pod
			if name := pod.GetNodeName(); f.nodes[name] == nil && !slices.Contains(grown, name) {
				grown = append(grown, name)
			}
		}
		if d.Value == nil {
			delete(f.state, d.ID)
		} else {
			f.state[d.ID] = d
		}
	}
	changes := model.Changes{Deltas: deltas, Revision: f.revision}
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		if err := f.nodes[name].Apply(ctx, changes); err != nil {
			return errorOf(name, err)
		}
	}
	for _, name := range grown {
		if err := f.grow(ctx, name); err != nil {
			return errorOf(name, err)
		}
	}
	return nil
}

// errorOf names the node of an error, if it has a name.
func errorOf(name string, err error) error {
	if name == defaultNode {
		return err
	}
	return fmt.Errorf("node %s: %w", name, err)
}

// placed returns the pod with a node.
func placed(pod *model.Pod) *model.Pod {
	if pod.GetNodeName() != "" {
		return pod
	}
	pod = proto.CloneOf(pod)
	pod.NodeName = defaultNode
	return pod
}

// grow starts a node and tells it the whole state.
func (f *Fabric) grow(ctx context.Context, name string) error {
	cfg := Config{Name: name, Log: f.log, AllowNode: f.allowNode, PodsOnHostStack: f.stack}
	if f.stack {
		cfg.HostStack = &session.Options{}
	}
	if f.xdp {
		cfg.XDP = HeapXDP()
	}
	n, err := New(cfg)
	if err != nil {
		return err
	}
	f.nodes[name] = n
	if err := n.Start(); err != nil {
		return err
	}
	return n.Apply(ctx, model.Changes{Resync: true, Deltas: slices.Collect(maps.Values(f.state)), Revision: f.revision})
}

// Ask probes with the first packet of a flow from wherever its source is attached to
// wherever its destination is: through the dataplanes of both nodes when they
// differ, in through an uplink when the source is no pod.
func (f *Fabric) Ask(flow api.Flow) Walk { return f.ask(flow, (*Node).Probe) }

// Attempt is Ask for a connection between applications on the host stacks of nodes, about which
// session rules decide, or between one and the world.
func (f *Fabric) Attempt(flow api.Flow) Walk { return f.ask(flow, (*Node).attempt) }

// Unenforced returns what the renderers that decide cannot have enforced on some node.
func (f *Fabric) Unenforced() (out []renderer.Unenforced) {
	for _, n := range f.nodes {
		if r, ok := n.decider().(renderer.Reporter); ok {
			out = append(out, r.Unenforced()...)
		}
	}
	return renderer.SortUnenforced(out)
}

// Explain returns the decisions of the tables that a flow meets, those on the node of its
// source first.
func (f *Fabric) Explain(flow api.Flow) (out []renderer.Decision) {
	src, dst := f.ends(flow)
	if dst == src {
		dst = nil
	}
	for _, n := range []*Node{src, dst} {
		if n == nil {
			continue
		}
		if r, ok := n.decider().(renderer.Explainer); ok {
			out = append(out, r.Explain(flow)...)
		}
	}
	return out
}

// ends returns the nodes whose pods have the addresses of a flow, nil where none has.
func (f *Fabric) ends(flow api.Flow) (src, dst *Node) {
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		m := f.nodes[name]
		if src == nil && m.has(flow.Src) {
			src = m
		}
		if dst == nil && m.has(flow.Dst) {
			dst = m
		}
	}
	return src, dst
}

func (f *Fabric) ask(flow api.Flow, send func(*Node, api.Flow) Walk) Walk {
	src, dst := f.ends(flow)
	var w Walk
	if src != nil {
		w = send(src, flow)
	}
	if dst == nil || dst == src || src != nil && w.Verdict == api.Deny {
		if src == nil {
			return Walk{Verdict: api.Permit, Reason: "does not pass any node"}
		}
		return w
	}
	second := send(dst, flow)
	second.Visits = append(w.Visits, second.Visits...)
	return second
}

// Close stops every node, all at once: one that is stuck takes as long as it may.
func (f *Fabric) Close() error {
	names := slices.Sorted(maps.Keys(f.nodes))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			if err := f.nodes[name].Close(); err != nil {
				errs[i] = errorOf(name, err)
			}
		})
	}
	wg.Wait()
	clear(f.nodes)
	return errors.Join(errs...)
}
