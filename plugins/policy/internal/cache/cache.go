package cache

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Watcher is told what changed. It is called during Update, after the cache
// itself has changed, once per object that is different, by the goroutine that
// called Update. It may ask the cache, but must not change it.
type Watcher interface {
	// NamespaceChanged tells the labels of a namespace; nil stands for a
	// namespace that is not known. Labels of a known namespace are never empty.
	NamespaceChanged(name string, old, new intent.Labels)
	// GroupAdded tells of a group before its first pod. The group may be kept.
	GroupAdded(id intent.GroupID, g *intent.Group)
	// GroupRemoved tells that the last pod of a group has left. The ID may stand
	// for another group afterwards.
	GroupRemoved(id intent.GroupID)
	// PodChanged tells a pod's old and new state; nil stands for a pod that
	// policies do not see. The values and their IPs are only valid during the
	// call, the NodeIPs may be kept.
	PodChanged(old, new *intent.Pod)
	// PolicyChanged tells a policy's old and new state; nil stands for a policy
	// that does not exist. The specs may be kept.
	PolicyChanged(old, new *intent.Policy)
	// NodeChanged tells a node's old and new state; nil stands for a node that is
	// not known. The values may be kept.
	NodeChanged(old, new *intent.Node)
}

// Cache holds the state of the cluster.
type Cache struct {
	epoch   uint32 // of the last resync; what carries an older one is gone
	strings stringTable

	namespaces  []namespace
	nsByName    map[string]uint32
	freeNS      []uint32
	nsPostings  postings[uint32] // known namespaces by label
	nsCount     int              // known namespaces
	groups      []group
	groupIndex  hashIndex
	freeGroups  []intent.GroupID
	portGroups  map[api.PortName][]intent.GroupID
	pods        []pod
	podIndex    hashIndex
	addrIndex   hashIndex // address -> pods that have it, one entry for each
	freePods    []uint32
	extras      extraAddrs
	hosts       hostTable
	policies    []policy
	policyIndex hashIndex
	freePolicy  []uint32
	selectors   selectorTable

	registered      registered
	clusterPolicies map[api.PolicyID]*policy
	subjects        subjects
	nodes           map[string]*node

	problems map[model.ID][]api.Problem
	before   map[model.ID][]api.Problem // of objects that may have others after the running Update
	found    []api.Problem              // in the running Update
	solved   []api.Problem              // in the running Update
	scratch  scratch
}

// New returns an empty cache.
func New() *Cache {
	return &Cache{
		strings:    stringTable{},
		nsByName:   map[string]uint32{},
		nsPostings: newPostings[uint32](),
		portGroups: map[api.PortName][]intent.GroupID{},
		hosts:      newHostTable(),
		selectors:  newSelectorTable(),
		problems:   map[model.ID][]api.Problem{},

		clusterPolicies: map[api.PolicyID]*policy{},
		subjects:        newSubjects(),
		nodes:           map[string]*node{},
	}
}

// Problems returns what is wrong with the objects of the state, sorted.
func (c *Cache) Problems() []api.Problem {
	var out []api.Problem
	for _, ps := range c.problems {
		out = append(out, ps...)
	}
	slices.SortFunc(out, api.Problem.Compare)
	return out
}

// Update brings the cache to a newer state and tells the watcher what became
// different. Changes with Resync are compared with what is known. It returns the
// problems that are new, sorted; Solved returns those that it ended, and Problems
// all that there are.
func (c *Cache) Update(ch model.Changes, w Watcher) []api.Problem {
	c.found, c.solved, c.before = nil, nil, nil
	if ch.Resync {
		c.epoch++
		c.before, c.problems = c.problems, map[model.ID][]api.Problem{}
		c.reserve(ch.Deltas)
	}
	for _, d := range ch.Deltas {
		c.apply(d, w)
	}
	if ch.Resync {
		c.sweep(w)
	}
	c.settleRegistered(w)
	for id, before := range c.before {
		c.found = append(c.found, api.ProblemsWithout(c.problems[id], before)...)
		c.solved = append(c.solved, api.ProblemsWithout(before, c.problems[id])...)
	}
	c.before = nil
	slices.SortFunc(c.found, api.Problem.Compare)
	slices.SortFunc(c.solved, api.Problem.Compare)
	return c.found
}

// Solved returns the problems that the newest Update ended, sorted: objects are
// gone, or say something else now.
func (c *Cache) Solved() []api.Problem { return c.solved }

// apply brings one object to its new state. A value that is not of the kind that
// its ID says changes nothing: what is enforced stays enforced.
func (c *Cache) apply(d model.Delta, w Watcher) {
	var problems []api.Problem
	switch d.ID.Kind {
	case model.KindNamespace:
		m, ok := d.Value.(*model.Namespace)
		if !ok && d.Value != nil || d.ID.Name == "" {
			problems = c.refuse(d)
			break
		}
		c.applyNamespace(d.ID.Name, m, w)
	case model.KindPod:
		m, ok := d.Value.(*model.Pod)
		if !ok && d.Value != nil || d.ID.Name == "" || d.ID.Namespace == "" {
			problems = c.refuse(d)
			break
		}
		problems = c.applyPod(d.ID, m, w)
	case model.KindNetworkPolicy:
		m, ok := d.Value.(*model.NetworkPolicy)
		if !ok && d.Value != nil || d.ID.Name == "" || d.ID.Namespace == "" {
			problems = c.refuse(d)
			break
		}
		problems = c.applyPolicy(d.ID, m, w)
	case model.KindAdminNetworkPolicy, model.KindBaselineAdminNetworkPolicy, model.KindClusterNetworkPolicy:
		m, ok := d.Value.(*model.ClusterPolicy)
		if !ok && d.Value != nil || d.ID.Name == "" {
			problems = c.refuse(d)
			break
		}
		problems = c.applyClusterPolicy(d.ID, m, w)
	case model.KindNode:
		m, ok := d.Value.(*model.Node)
		if !ok && d.Value != nil || d.ID.Name == "" {
			problems = c.refuse(d)
			break
		}
		problems = c.applyNode(d.ID, m, w)
	case model.KindService, model.KindEndpointSlice: // policy does not depend on them
	default:
		problems = c.refuse(d)
	}
	if p, clashes := c.registered.clashes[d.ID]; clashes {
		problems = append(problems, p)
	}
	c.report(d.ID, problems)
}

// refuse keeps what is known of an object whose new value makes no sense.
func (c *Cache) refuse(d model.Delta) []api.Problem {
	c.keep(d.ID)
	return []api.Problem{{Object: d.ID.String(), Reason: fmt.Sprintf("a value of type %T is not understood here, the last good one is kept", d.Value)}}
}

// keep marks an object as seen by the running resync.
func (c *Cache) keep(id model.ID) {
	switch id.Kind {
	case model.KindNamespace:
		if n, ok := c.nsByName[id.Name]; ok {
			c.namespaces[n].epoch = c.epoch
		}
	case model.KindPod:
		if i, ok := c.findPod(id.Namespace, id.Name); ok {
			c.pods[i].epoch = c.epoch
		}
	case model.KindNetworkPolicy:
		if i, ok := c.findPolicy(id.Namespace, id.Name); ok {
			c.policies[i].epoch = c.epoch
		}
	case model.KindNode:
		if n := c.nodes[id.Name]; n != nil {
			n.epoch = c.epoch
		}
	case model.KindAdminNetworkPolicy, model.KindBaselineAdminNetworkPolicy, model.KindClusterNetworkPolicy:
		if p := c.clusterPolicies[clusterPolicyID(id)]; p != nil {
			p.epoch = c.epoch
		}
	case model.KindService, model.KindEndpointSlice: // of which nothing is kept here
	}
}

// report replaces the problems of an object.
func (c *Cache) report(id model.ID, problems []api.Problem) {
	if len(problems) == 0 && (len(c.problems) == 0 || len(c.problems[id]) == 0) {
		return
	}
	if c.before == nil {
		c.before = map[model.ID][]api.Problem{}
	}
	if _, noted := c.before[id]; !noted {
		c.before[id] = c.problems[id]
	}
	if len(problems) == 0 {
		delete(c.problems, id)
		return
	}
	for i := range problems {
		problems[i].Class = api.ClassObject
	}
	c.problems[id] = problems
}

// sweep deletes what a resync did not name.
func (c *Cache) sweep(w Watcher) {
	for i := range c.policies {
		if p := &c.policies[i]; p.spec != nil && p.epoch != c.epoch {
			c.dropPolicy(uint32(i), w)
		}
	}
	for id, p := range c.clusterPolicies {
		if p.epoch != c.epoch {
			c.dropClusterPolicy(id, w)
		}
	}
	for name, n := range c.nodes {
		if n.epoch != c.epoch {
			c.setNode(name, nil, w)
		}
	}
	for i := range c.pods {
		if p := &c.pods[i]; p.name != "" && p.epoch != c.epoch {
			c.dropPod(uint32(i), w)
		}
	}
	for i := range c.namespaces {
		if n := &c.namespaces[i]; n.labels != nil && n.epoch != c.epoch {
			c.setLabels(uint32(i), nil, w)
		}
	}
}

// reserve makes room for the objects of a resync, so that tables do not grow
// step by step.
func (c *Cache) reserve(deltas []model.Delta) {
	var pods, policies int
	for _, d := range deltas {
		switch d.ID.Kind {
		case model.KindPod:
			pods++
		case model.KindNetworkPolicy:
			policies++
		default: // there are few
		}
	}
	c.pods = slices.Grow(c.pods, max(0, pods-len(c.pods)))
	c.podIndex.reserve(pods)
	c.addrIndex.reserve(pods)
	c.policies = slices.Grow(c.policies, max(0, policies-len(c.policies)))
	c.policyIndex.reserve(policies)
}
