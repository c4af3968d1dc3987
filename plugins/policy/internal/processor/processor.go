package processor

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// Options of a processor.
type Options struct {
	// Node is the name of the agent's node, whose pods are local. If it is empty, every pod is
	// local, and the set of node addresses holds the addresses of all nodes that have pods.
	Node string
}

// Processor resolves policies for the local pods. It passes notifications of the cache to its
// parts, each of which knows only those before it.
type Processor struct {
	node     *membership.OwnNode
	sets     *membership.Sets
	local    *localPods
	sharing  *sharing
	resolver *resolver
	problems *problemTracker
	state    State
}

// New returns a processor for an empty state. The state must be the cache that the processor
// watches.
func New(state State, opts Options) *Processor { return newProcessor(state, opts, api.NewSetID) }

func newProcessor(state State, opts Options, newID func(string) api.SetID) *Processor {
	node, sets := membership.NewOwnNode(opts.Node), membership.New(state, newID)
	local := newLocalPods(state, node, sets)
	resolver := newResolver(state, sets, local)
	return &Processor{
		node: node, sets: sets, local: local, sharing: newSharing(state, sets, local),
		resolver: resolver, problems: newProblemTracker(sets, resolver), state: state,
	}
}

// GroupAdded links a group without pods to its sets.
func (p *Processor) GroupAdded(id intent.GroupID, g *intent.Group) { p.sets.GroupAdded(id, g) }

// GroupRemoved unlinks a group without pods.
func (p *Processor) GroupRemoved(id intent.GroupID) { p.sets.GroupRemoved(id) }

// PodChanged records the effect of a pod on the sets of its group and on local pods.
func (p *Processor) PodChanged(old, now *intent.Pod) {
	if old == nil {
		p.resolver.pods++
	}
	if now == nil {
		p.resolver.pods--
	}
	p.sets.PodChanged(old, now)
	if old != nil {
		p.sharing.forgetRemote(old.ID)
	}
	p.node.PodChanged(old, now)
	if p.node.Has(old) || p.node.Has(now) {
		p.local.podChanged(old, now)
	}
}

// NamespaceChanged moves the groups of a namespace between the sets of selectors that began or
// ceased to match the namespace. It marks the local groups to which other policies may apply.
func (p *Processor) NamespaceChanged(name string, old, now intent.Labels) {
	p.sets.NamespaceChanged(name, old, now)
	p.local.namespaceChanged(name, old, now)
}

// PolicyChanged marks the local groups that the policy selects or selected.
func (p *Processor) PolicyChanged(old, now *intent.Policy) { p.local.policyChanged(old, now) }

// NodeChanged counts the addresses of a node in the sets of the selectors that select it, and those
// of the own node in the node set.
func (p *Processor) NodeChanged(old, now *intent.Node) {
	p.node.NodeChanged(old, now)
	p.sets.NodeChanged(old, now)
}

// SetNodeAddresses sets addresses of the agent's node in addition to those of its pods and its
// object. The next Flush publishes the changes. It reports whether they changed.
func (p *Processor) SetNodeAddresses(addrs []netip.Addr) bool { return p.node.SetFurther(addrs) }

// Solved returns the problems that the last Flush ended, sorted.
func (p *Processor) Solved() []api.Problem { return sorted(p.problems.solved, p.sharing.solved) }

// Problems returns the current problems of policies, and of pods that share an address, sorted, as
// Flush reported them. The cache has the problems of single objects.
func (p *Processor) Problems() []api.Problem { return sorted(p.problems.all(), p.sharing.problems) }

// sorted returns problems of two kinds in one order.
func sorted(a, b []api.Problem) []api.Problem {
	if len(b) == 0 {
		return a
	}
	out := slices.Concat(a, b)
	slices.SortFunc(out, api.Problem.Compare)
	return out
}

// Findings examines the pods of every policy that has named ports, and queries for every selector
// of a peer whether it selects any pod. It is meant for snapshots; Flush reports events without
// such a search.
func (p *Processor) Findings() Findings { return findingsOf(p.state, p.problems) }

// Sets describes the active sets, sorted by ID. The set of node addresses always exists.
func (p *Processor) Sets() []membership.Info {
	return append([]membership.Info{p.node.Info()}, p.sets.Infos()...)
}

// Selectors returns what the active sets stand for.
func (p *Processor) Selectors() map[api.SetID]string {
	out := p.sets.Selectors()
	out[api.NodeSet] = p.node.Info().Selector
	return out
}

// Members returns the members of an active set, sorted; none for other sets. It may be called
// between two updates of the cache, in or after Flush. The configurator calls it to compare sets.
func (p *Processor) Members(id api.SetID) []netip.Addr {
	if id == api.NodeSet {
		return p.node.Members()
	}
	return p.sets.Members(id)
}

// Contains reports whether an address is a member of an active set. It may be called when Members
// may.
func (p *Processor) Contains(id api.SetID, a netip.Addr) bool {
	if id == api.NodeSet {
		return p.node.Contains(a)
	}
	return p.sets.Contains(id, a)
}
