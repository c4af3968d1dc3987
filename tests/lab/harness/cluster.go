package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// Options of a Cluster.
type Options struct {
	DenyNode bool // traffic between a pod and its own node is restricted as all other
}

// Cluster is the nodes of a cluster. One goroutine uses it at a time.
type Cluster struct {
	Examined Examined // by all checks so far

	kind    backends.Kind
	options Options
	nodes   map[string]*Node
	talking []api.Flow // whose sessions the last check has left
}

// New starts a fleet of the nodes that have these names. No node has resynced yet, so
// the first changes must be a resync.
func New(kind backends.Kind, names []string, options Options) (*Cluster, error) {
	f := &Cluster{kind: kind, options: options, nodes: map[string]*Node{}}
	for _, name := range names {
		n, err := newNode(name, kind, options)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("node %s: %w", name, err), f.Close())
		}
		f.nodes[name] = n
	}
	return f, nil
}

// NamesOf returns the names of nodes.
func NamesOf(nodes []*corev1.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return out
}

// Names returns the names of the nodes, sorted.
func (f *Cluster) Names() []string { return slices.Sorted(maps.Keys(f.nodes)) }

// Node returns a node, nil for one that the fleet does not have.
func (f *Cluster) Node(name string) *Node { return f.nodes[name] }

// Apply sends the changes to every node and waits until all enforce them.
func (f *Cluster) Apply(ctx context.Context, c model.Changes) error {
	return f.each(func(n *Node) error { return n.Plugin.Apply(ctx, c) })
}

// Prompt lets the renderers of every node look at their backends.
func (f *Cluster) Prompt(ctx context.Context) error {
	return f.each(func(n *Node) error { return n.Prompt(ctx) })
}

// Restart ends the agent of a node and starts a new one over its dataplane, which has received
// nothing yet.
func (f *Cluster) Restart(name string) error { return f.nodes[name].restart() }

// Close stops every node.
func (f *Cluster) Close() error { return f.each((*Node).close) }

// each calls all nodes, in the order of their names.
func (f *Cluster) each(do func(*Node) error) error {
	var errs []error
	for _, name := range f.Names() {
		if err := do(f.nodes[name]); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Allowed reports whether the first packet of a flow arrives.
func (f *Cluster) Allowed(flow api.Flow) bool {
	return f.walk(flow, func(s backends.Backend) bool { return s.Verdict(flow) == api.Permit })
}

// Does reports whether the first packet of a flow arrives, as far as the dataplanes can judge it:
// they may not see it, or deny it because they cannot express the rule that permits it. Then that
// is right, and right is returned.
func (f *Cluster) Does(flow api.Flow, right bool) bool {
	if !f.Sees(flow) {
		return right
	}
	return f.Allowed(flow) || right && f.narrows(flow)
}

// narrows reports whether a dataplane may deny a flow that the rules permit.
func (f *Cluster) narrows(flow api.Flow) bool {
	for _, n := range f.nodes {
		if s, ok := n.Backend.(backends.Narrow); ok && s.Narrows(flow) {
			return true
		}
	}
	return false
}

// Judge says that Allowed will be asked about flows: backends.Batched want to know.
func (f *Cluster) Judge(flows []api.Flow) {
	asked := map[*Node][]api.Flow{}
	for _, flow := range flows {
		for _, n := range f.way(flow) {
			if f.Sees(flow) {
				asked[n] = append(asked[n], flow)
			}
		}
	}
	for n, flows := range asked {
		if b, ok := n.Backend.(backends.Batched); ok {
			b.Judge(flows)
		}
	}
}

// Sees reports whether the dataplanes can be asked about a flow.
func (f *Cluster) Sees(flow api.Flow) bool {
	for _, n := range f.nodes {
		if p, ok := n.Backend.(backends.Partial); ok && !p.Sees(flow) {
			return false
		}
	}
	return true
}

// First sends the first packet of a flow, which leaves its sessions behind, and reports whether it
// arrives. The backends must be backends.Stateful.
func (f *Cluster) First(flow api.Flow) bool {
	return f.walk(flow, func(s backends.Backend) bool { return s.(backends.Stateful).First(flow) })
}

// Reply sends the answer to the first packet of a flow. The dataplanes must be
// backends.Stateful.
func (f *Cluster) Reply(flow api.Flow) bool {
	return f.walk(flow.Reverse(), func(s backends.Backend) bool { return s.(backends.Stateful).Reply(flow) })
}

// IsStateful reports whether First and Reply may be called.
func (f *Cluster) IsStateful() bool {
	for _, n := range f.nodes {
		_, ok := n.Backend.(backends.Stateful)
		return ok
	}
	return false
}

// walk takes a packet through the dataplanes that it meets, as far as it gets.
func (f *Cluster) walk(flow api.Flow, pass func(backends.Backend) bool) bool {
	for _, n := range f.way(flow) {
		if !pass(n.Backend) {
			return false
		}
	}
	return true
}

// way returns the nodes that a packet meets: that of its source, and that of its
// destination. A packet to its own address stays inside the pod.
func (f *Cluster) way(flow api.Flow) []*Node {
	if flow.Src == flow.Dst {
		return nil
	}
	var out []*Node
	for _, addr := range []func(*Node) bool{
		func(n *Node) bool { return n.Backend.Has(flow.Src) },
		func(n *Node) bool { return n.Backend.Has(flow.Dst) },
	} {
		for _, name := range f.Names() {
			if n := f.nodes[name]; addr(n) {
				if !slices.Contains(out, n) {
					out = append(out, n)
				}
				break
			}
		}
	}
	return out
}

// Trace describes what happens to the first packet of a flow.
func (f *Cluster) Trace(flow api.Flow) string {
	var b strings.Builder
	for _, n := range f.way(flow) {
		fmt.Fprintf(&b, "node %s: %s\n", n.Name, n.Backend.Trace(flow))
	}
	if b.Len() == 0 {
		return "meets no node\n"
	}
	return b.String()
}
