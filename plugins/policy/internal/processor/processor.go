package processor

import (
	"net/netip"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// Options of a processor.
type Options struct {
	// Node is the name of the agent's node: its pods are local. Empty means that
	// every pod is local; then the set of node addresses holds the addresses of
	// all nodes that have pods.
	Node string
}

// Processor resolves policies for the local pods. It passes on what the cache tells to
// its parts, each of which knows those before it only.
type Processor struct {
	node     *membership.OwnNode
	sets     *membership.Sets
	local    *localPods
	sharing  *sharing
	resolver *resolver
	problems *problemTracker
	state    State
}

// New returns a processor for an empty state. The state must be the cache that it
// is going to watch.
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

// GroupAdded links a group that has no pods yet to the sets it is in.
func (p *Processor) GroupAdded(id intent.GroupID, g *intent.Group) { p.sets.GroupAdded(id, g) }

// GroupRemoved unlinks a group that has no pods any more.
func (p *Processor) GroupRemoved(id intent.GroupID) { p.sets.GroupRemoved(id) }

// PodChanged records what a pod changes in the sets of its group, and for local pods.
func (p *Processor) PodChanged(old, now *intent.Pod) {
	p.sets.PodChanged(old, now)
	if old != nil {
		p.sharing.forgetRemote(old.ID)
	}
	p.node.PodChanged(old, now)
	if p.node.Has(old) || p.node.Has(now) {
		p.local.podChanged(old, now)
	}
}

// NamespaceChanged moves the groups of a namespace between the sets of selectors whose
// answer for the namespace is different now, and marks the local ones for which other
// policies may apply.
func (p *Processor) NamespaceChanged(name string, old, now intent.Labels) {
	p.sets.NamespaceChanged(name, old, now)
	p.local.namespaceChanged(name, old, now)
}

// PolicyChanged marks the local groups that the policy selects or selected.
func (p *Processor) PolicyChanged(old, now *intent.Policy) { p.local.policyChanged(old, now) }

// NodeChanged counts the addresses of a node in the sets of the selectors that select
// it, and those of the own node in its set.
func (p *Processor) NodeChanged(old, now *intent.Node) {
	p.node.NodeChanged(old, now)
	p.sets.NodeChanged(old, now)
}

// SetNodeAddresses takes addresses of the agent's node beside those that its pods and its object
// tell. The next Flush tells what is different. It reports whether they are others than before.
func (p *Processor) SetNodeAddresses(addrs []netip.Addr) bool { return p.node.SetFurther(addrs) }

// Solved returns the problems that the last Flush ended, sorted.
func (p *Processor) Solved() []api.Problem { return p.problems.solved }

// Problems returns what is wrong with policies at present, sorted, as Flush told it.
// What is wrong with single objects is known to the cache.
func (p *Processor) Problems() []api.Problem { return p.problems.all() }

// Findings looks at the pods of every policy that has named ports, and asks once for
// every selector of a peer whether it selects anybody. It is for snapshots: events
// are told of by Flush, which does not look.
func (p *Processor) Findings() Findings { return findingsOf(p.state, p.problems) }

// Sets describes the active sets, sorted by ID. The set of node addresses is always
// there.
func (p *Processor) Sets() []membership.Info {
	return append([]membership.Info{p.node.Info()}, p.sets.Infos()...)
}

// Members returns the members of an active set, sorted; none for other sets. It can be
// asked between two updates of the cache, in or after Flush: the configurator does so
// where sets have to be compared.
func (p *Processor) Members(id api.SetID) []netip.Addr {
	if id == api.NodeSet {
		return p.node.Members()
	}
	return p.sets.Members(id)
}

// Contains reports whether an address is a member of an active set, when Members can be
// asked.
func (p *Processor) Contains(id api.SetID, a netip.Addr) bool {
	if id == api.NodeSet {
		return p.node.Contains(a)
	}
	return p.sets.Contains(id, a)
}
