package processor

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// State answers questions about the cluster as it is now. The cache implements it.
type State interface {
	// MatchGroups returns the groups that match, each once, in any order.
	MatchGroups(q api.GroupQuery) iter.Seq2[api.GroupID, *api.Group]
	// AppendAddresses appends the addresses of a group's pods, in any order, once
	// per pod that has it.
	AppendAddresses(dst []netip.Addr, g api.GroupID) []netip.Addr
	// MatchNodes returns the nodes that a selector selects, in any order.
	MatchNodes(sel *api.Selector) iter.Seq[*api.Node]
	// Policies returns the policies that select a group, sorted by ID.
	Policies(g api.GroupID) []*api.PolicySpec
	// SubjectsDiffer says whether cluster-scoped policies select the pods of a
	// namespace differently when it has other labels; nil: it is not known.
	SubjectsDiffer(a, b api.Labels) bool
	// PodCount returns the number of pods of a group, PodsOf the pods, sorted.
	PodCount(g api.GroupID) int
	PodsOf(g api.GroupID) []api.PodID
	// Holders returns the group of every pod that has an address, PodsAt the pods.
	Holders(a netip.Addr) []api.GroupID
	PodsAt(a netip.Addr) []api.Pod
	// NodeAddresses returns the addresses of a node's object; none when there is none.
	NodeAddresses(name string) []netip.Addr
}

// Sink receives what became different. Slices that it is given are immutable and
// may be kept.
type Sink interface {
	// UpdateSet changes the members of an address set; both lists are sorted, the
	// prefixes are single addresses. An added member was not in the set, a removed
	// one was.
	UpdateSet(id api.SetID, added, removed []netip.Prefix)
	// DropSet says that no policy names a set any more, whose members, sorted, are these.
	DropSet(id api.SetID, members []netip.Prefix)
	// Configure says which policies apply to a local pod: sorted by ID, none when
	// the pod is not restricted. Equal lists are the same slice, so that the
	// address of the first element identifies the list as long as a pod has it. shared
	// has the other pods that have one of its addresses and are restricted otherwise.
	Configure(pod api.PodID, ips []netip.Addr, policies []*api.ContivPolicy, shared []api.Sharing)
	// Remove says that a pod is not local any more, or has no address any more.
	Remove(pod api.PodID)
}

// Options of a processor.
type Options struct {
	// Node is the name of the agent's node: its pods are local. Empty means that
	// every pod is local; then the set of node addresses holds the addresses of
	// all nodes that have pods.
	Node string
}

// Processor resolves policies for the local pods.
type Processor struct {
	state State
	node  string
	newID func(string) api.SetID // api.NewSetID

	groups     []groupState // by GroupID
	namespaces map[string]api.Labels
	scopes     scopes
	selectors  map[selectorKey]*selector
	sets       map[api.SetID]*addrSet
	touched    []*addrSet              // may have other members than the sink knows
	families   []*selector             // whose numbers may have changed
	idle       []*selector             // may have lost their last user
	contested  map[netip.Addr]struct{} // that two pods had since the last Flush, or have

	pods      map[api.PodID]*localPod
	remotes   map[api.PodID]*localPod   // pods of other nodes that share an address with one of pods
	sharing   map[*localPod][]*localPod // which of pods share an address, with whom
	dirtyPods []*localPod
	localNS   map[string]*localNamespace
	dirty     []*localGroup
	policies  map[api.PolicyID]*policyState
	lists     map[string]*policyList
	unlisted  []*policyList // may have lost their last group
	lastID    uint64        // of a resolution

	spare      []uint32     // to sort addresses with
	addrBuf    []netip.Addr // of one group
	setBuf     []*addrSet   // of one group
	spareLists []addrList   // to collect addresses in

	nodeAddrs  countedSet   // of the own node
	furtherIPs []netip.Addr // of the own node, see SetNodeAddresses
	hosts      map[string]*host
	doubtful   map[api.PolicyID]struct{}      // may have other problems than are known
	problems   map[api.PolicyID][]api.Problem // of policies that have some
	solved     []api.Problem                  // by the last Flush
}

// groupState is what the processor knows of a group.
type groupState struct {
	def   *api.Group
	sets  []*addrSet  // that the group is in
	local *localGroup // when it has local pods with an address
}

// New returns a processor for an empty state. The state must be the cache that it
// is going to watch.
func New(state State, opts Options) *Processor {
	return &Processor{
		state:      state,
		node:       opts.Node,
		newID:      api.NewSetID,
		namespaces: map[string]api.Labels{},
		scopes:     newScopes(),
		selectors:  map[selectorKey]*selector{},
		sets:       map[api.SetID]*addrSet{},
		contested:  map[netip.Addr]struct{}{},
		pods:       map[api.PodID]*localPod{},
		remotes:    map[api.PodID]*localPod{},
		localNS:    map[string]*localNamespace{},
		policies:   map[api.PolicyID]*policyState{},
		lists:      map[string]*policyList{},
		nodeAddrs:  newCountedSet(),
		hosts:      map[string]*host{},
		doubtful:   map[api.PolicyID]struct{}{},
		problems:   map[api.PolicyID][]api.Problem{},
	}
}

func (p *Processor) isLocal(pod *api.Pod) bool {
	return pod != nil && (p.node == "" || pod.Node == p.node)
}

// addresses returns the addresses of a group, valid until the next call.
func (p *Processor) addresses(id api.GroupID) []netip.Addr {
	p.addrBuf = p.state.AppendAddresses(p.addrBuf[:0], id)
	return p.addrBuf
}

// GroupAdded links a group that has no pods yet to the sets it is in.
func (p *Processor) GroupAdded(id api.GroupID, g *api.Group) {
	for int(id) >= len(p.groups) {
		p.groups = append(p.groups, groupState{})
	}
	p.groups[id] = groupState{def: g}
	labels := p.namespaces[g.Namespace]
	for sc := range p.scopes.covering(g.Namespace, labels) {
		for sel := range sc.selectorsOf(g) {
			p.link(sel, id)
		}
	}
}

// GroupRemoved unlinks a group that has no pods any more.
func (p *Processor) GroupRemoved(id api.GroupID) {
	for _, s := range p.groups[id].sets {
		p.leave(s)
	}
	p.groups[id] = groupState{}
}

// PodChanged records that addresses come or go in the sets of a pod's group.
func (p *Processor) PodChanged(old, new *api.Pod) {
	if old == nil || new == nil || old.Group != new.Group || !slices.Equal(old.IPs, new.IPs) {
		p.count(old, -1)
		p.count(new, +1)
	}
	if old != nil {
		p.forgetRemote(old.ID)
	}
	if new != nil && new.Shared {
		for _, a := range new.IPs {
			p.contested[a] = struct{}{}
		}
	}
	if p.isLocal(old) || p.isLocal(new) {
		p.localPodChanged(old, new)
	}
}

func (p *Processor) count(pod *api.Pod, d int) {
	if pod == nil {
		return
	}
	for _, s := range p.groups[pod.Group].sets {
		for _, a := range pod.IPs {
			p.record(s, a, d)
		}
	}
}

// NamespaceChanged links and unlinks the groups of a namespace, for the selectors
// whose answer for the namespace is different now.
func (p *Processor) NamespaceChanged(name string, old, new api.Labels) {
	if new == nil {
		delete(p.namespaces, name)
	} else {
		p.namespaces[name] = new
	}
	for sc := range p.scopes.chosenIndex.Matching(old) {
		if old != nil && (new == nil || !sc.sel.Matches(new)) {
			p.relinkNamespace(name, sc, -1)
		}
	}
	for sc := range p.scopes.chosenIndex.Matching(new) {
		if new != nil && (old == nil || !sc.sel.Matches(old)) {
			p.relinkNamespace(name, sc, +1)
		}
	}
	if ns := p.localNS[name]; ns != nil && ns.clean > 0 && p.state.SubjectsDiffer(old, new) {
		for _, g := range ns.groups {
			p.markGroup(g)
		}
	}
}

// fewSelectors is the number of selectors of a scope up to which it is cheaper to
// look for the groups of each than for the selectors of each group.
const fewSelectors = 16

func (p *Processor) relinkNamespace(name string, sc *scope, d int) {
	if sc.size() <= fewSelectors {
		for sel := range sc.all() {
			for id := range p.state.MatchGroups(api.GroupQuery{Namespace: name, Pods: sel.pods, Port: sel.port}) {
				p.relink(sel, id, d)
			}
		}
		return
	}
	for id, g := range p.state.MatchGroups(api.GroupQuery{Namespace: name, Pods: api.Everything}) {
		for sel := range sc.selectorsOf(g) {
			p.relink(sel, id, d)
		}
	}
}

func (p *Processor) relink(sel *selector, id api.GroupID, d int) {
	if d > 0 {
		p.link(sel, id)
	} else {
		p.unlink(sel, id)
	}
}

// PolicyChanged marks the local groups that the policy selects or selected.
func (p *Processor) PolicyChanged(old, new *api.PolicySpec) {
	if old != nil {
		p.markSelected(old)
	}
	if new != nil && (old == nil || old.Subject != new.Subject || old.SubjectNamespaces != new.SubjectNamespaces) {
		p.markSelected(new)
	}
}
