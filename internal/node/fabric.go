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
)

// Fabric is a cluster of nodes, each with its own pipeline and dataplane, joined
// by their uplinks. It grows a node when the first pod of one appears. It is for
// tests of policies: changes are applied one step at a time, and Apply returns
// when they are enforced everywhere.
type Fabric struct {
	log       *slog.Logger
	allowNode bool
	backends  func() []Backend // of a new node; the last one is probed, and is asked
	nodes     map[string]*Node
	state     map[model.ID]model.Delta
	revision  int64
}

// NewFabric returns a cluster without nodes, in which ACLs in embedded dataplanes enforce.
func NewFabric(log *slog.Logger, allowNode bool) *Fabric {
	return fabricOf(log, allowNode, func() []Backend { return []Backend{&Vswitch{}} })
}

// NewHostStackFabric is NewFabric for pods whose applications are on the host stack of their
// node, about which session rules decide.
func NewHostStackFabric(log *slog.Logger, allowNode bool) *Fabric {
	return fabricOf(log, allowNode, func() []Backend {
		sw := &Vswitch{}
		return []Backend{sw, &VswitchStack{Of: sw}}
	})
}

// NewXDPFabric returns a cluster without nodes, in which the XDP renderer enforces in the
// heap.
func NewXDPFabric(log *slog.Logger, allowNode bool) *Fabric {
	return fabricOf(log, allowNode, func() []Backend { return []Backend{NewHeap()} })
}

func fabricOf(log *slog.Logger, allowNode bool, backends func() []Backend) *Fabric {
	return &Fabric{log: log, allowNode: allowNode, backends: backends, nodes: map[string]*Node{}, state: map[model.ID]model.Delta{}}
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
	n, err := New(Config{Name: name, Log: f.log, AllowNode: f.allowNode, Backends: f.backends()})
	if err != nil {
		return err
	}
	f.nodes[name] = n
	if err := n.Start(); err != nil {
		return err
	}
	return n.Apply(ctx, model.Changes{Resync: true, Deltas: slices.Collect(maps.Values(f.state)), Revision: f.revision})
}

// asked returns the backend of a node that is asked about flows.
func (n *Node) asked() probed { return n.backends[len(n.backends)-1].(probed) }

// probed is a backend of a node in a Fabric.
type probed interface {
	Backend
	Prober
}

// Ask probes with the first packet of a flow from wherever its source is attached to wherever its
// destination is. It goes through the dataplanes of both nodes when they differ, in through an
// uplink when the source is no pod. On host stacks it is a connection.
func (f *Fabric) Ask(flow api.Flow) Walk {
	src, dst := f.ends(flow)
	var w Walk
	if src != nil {
		w = src.probe(flow)
	}
	if dst == nil || dst == src || src != nil && w.Verdict == api.Deny {
		if src == nil {
			return Walk{Verdict: api.Permit, Reason: "does not pass any node"}
		}
		return w
	}
	second := dst.probe(flow)
	second.Visits = append(w.Visits, second.Visits...)
	return second
}

// probe asks a node, and names it in the answer.
func (n *Node) probe(flow api.Flow) Walk {
	w := n.asked().Probe(flow)
	for i := range w.Visits {
		w.Visits[i].Node = n.name
	}
	return w
}

// Unenforced returns what the renderers that decide cannot have enforced on some node.
func (f *Fabric) Unenforced() (out []renderer.Unenforced) {
	for _, n := range f.nodes {
		if r, ok := renderer.As[renderer.Reporter](n.asked().Renderer()); ok {
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
		if r, ok := renderer.As[renderer.Explainer](n.asked().Renderer()); ok {
			out = append(out, r.Explain(flow)...)
		}
	}
	return out
}

// ends returns the nodes whose pods have the addresses of a flow, nil where none has.
func (f *Fabric) ends(flow api.Flow) (src, dst *Node) {
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		m := f.nodes[name]
		if src == nil && m.asked().Has(flow.Src) {
			src = m
		}
		if dst == nil && m.asked().Has(flow.Dst) {
			dst = m
		}
	}
	return src, dst
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
