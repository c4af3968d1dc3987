package cache

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Cache holds the state of the cluster.
type Cache struct {
	epoch uint32 // of the last resync; objects with an older one are gone

	namespaces namespaces
	groups     groups
	pods       pods
	policies   policies
	nodes      nodes
	registered registered
	problems   problems
}

// New returns an empty cache.
func New() *Cache {
	c := &Cache{
		namespaces: namespaces{byName: map[string]uint32{}, postings: newPostings[uint32]()},
		policies:   policies{selectors: newSelectorTable(), cluster: map[api.PolicyID]*policy{}, subjects: newSubjects()},
		nodes:      nodes{},
		problems:   problems{all: map[model.ID][]api.Problem{}},
	}
	c.groups = groups{ns: &c.namespaces, byPort: map[api.PortName][]intent.GroupID{}}
	c.pods = pods{ns: &c.namespaces, groups: &c.groups, hosts: newHostTable()}
	c.policies.ns = &c.namespaces
	c.registered = registered{pods: &c.pods, nodes: c.nodes}
	return c
}

// Problems returns the problems of all objects, sorted.
func (c *Cache) Problems() []api.Problem {
	var out []api.Problem
	for _, ps := range c.problems.all {
		out = append(out, ps...)
	}
	slices.SortFunc(out, api.Problem.Compare)
	return out
}

// Update brings the cache to a newer state and notifies the watcher of what changed. Changes with
// Resync are compared with the current state. It returns the new problems, sorted; Solved returns
// those that ended, and Problems returns all.
func (c *Cache) Update(ch model.Changes, watcher Watcher) []api.Problem {
	if ch.Resync {
		c.epoch++
		c.reserve(ch.Deltas)
	}
	c.problems.begin(ch.Resync)
	w := update{watcher, c.epoch}
	for _, d := range ch.Deltas {
		c.apply(d, w)
	}
	if ch.Resync {
		c.sweep(w)
	}
	c.registered.settle(&c.problems, w)
	c.problems.end()
	return c.problems.found
}

// Solved returns the problems that the last Update ended, sorted: their objects were deleted or
// changed.
func (c *Cache) Solved() []api.Problem { return c.problems.solved }

// Register sets the addresses that were registered for pods of a node; an empty node means all
// pods. They take effect with the next Update, for pods without addresses in the state. The map is
// kept.
func (c *Cache) Register(node string, addrs map[api.PodID][]netip.Addr) {
	c.registered.node, c.registered.addrs = node, addrs
}

// apply applies the change of one object. A value of the wrong kind for its ID changes nothing: the
// previous rules stay in force.
func (c *Cache) apply(d model.Delta, w update) {
	var problems []api.Problem
	switch d.ID.Kind {
	case model.KindNamespace:
		m, ok := d.Value.(*model.Namespace)
		if !ok && d.Value != nil || d.ID.Name == "" {
			problems = c.refuse(d)
			break
		}
		c.namespaces.apply(d.ID.Name, m, &c.pods.scratch, w)
	case model.KindPod:
		m, ok := d.Value.(*model.Pod)
		if !ok && d.Value != nil || d.ID.Name == "" || d.ID.Namespace == "" {
			problems = c.refuse(d)
			break
		}
		problems = c.pods.apply(d.ID, m, w)
	case model.KindNetworkPolicy:
		m, ok := d.Value.(*model.NetworkPolicy)
		if !ok && d.Value != nil || d.ID.Name == "" || d.ID.Namespace == "" {
			problems = c.refuse(d)
			break
		}
		problems = c.policies.apply(d.ID, m, w)
	case model.KindAdminNetworkPolicy, model.KindBaselineAdminNetworkPolicy, model.KindClusterNetworkPolicy:
		m, ok := d.Value.(*model.ClusterPolicy)
		if !ok && d.Value != nil || d.ID.Name == "" {
			problems = c.refuse(d)
			break
		}
		problems = c.policies.applyCluster(d.ID, m, w)
	case model.KindNode:
		m, ok := d.Value.(*model.Node)
		if !ok && d.Value != nil || d.ID.Name == "" {
			problems = c.refuse(d)
			break
		}
		problems = c.nodes.apply(d.ID, m, &c.pods.scratch, w)
	case model.KindService, model.KindEndpointSlice: // policy does not depend on them
	default:
		problems = c.refuse(d)
	}
	if p, clashes := c.registered.clashes[d.ID]; clashes {
		problems = append(problems, p)
	}
	c.problems.report(d.ID, problems)
}

// refuse keeps the previous state of an object whose new value is invalid.
func (c *Cache) refuse(d model.Delta) []api.Problem {
	c.keep(d.ID)
	return []api.Problem{{Object: d.ID.String(), Reason: fmt.Sprintf("a value of type %T is not understood here, the last good one is kept", d.Value)}}
}

// keep marks an object as seen by the current resync.
func (c *Cache) keep(id model.ID) {
	switch id.Kind {
	case model.KindNamespace:
		if n, ok := c.namespaces.byName[id.Name]; ok {
			c.namespaces.list[n].epoch = c.epoch
		}
	case model.KindPod:
		if i, ok := c.pods.find(id.Namespace, id.Name); ok {
			c.pods.list.at(i).epoch = c.epoch
		}
	case model.KindNetworkPolicy:
		if i, ok := c.policies.find(id.Namespace, id.Name); ok {
			c.policies.list[i].epoch = c.epoch
		}
	case model.KindNode:
		if n := c.nodes[id.Name]; n != nil {
			n.epoch = c.epoch
		}
	case model.KindAdminNetworkPolicy, model.KindBaselineAdminNetworkPolicy, model.KindClusterNetworkPolicy:
		if p := c.policies.cluster[clusterPolicyID(id)]; p != nil {
			p.epoch = c.epoch
		}
	case model.KindService, model.KindEndpointSlice: // of which nothing is kept here
	}
}

// sweep deletes the objects that are missing from a resync.
func (c *Cache) sweep(w update) {
	for i := range c.policies.list {
		if p := &c.policies.list[i]; p.spec != nil && p.epoch != c.epoch {
			c.policies.drop(uint32(i), w)
		}
	}
	for id, p := range c.policies.cluster {
		if p.epoch != c.epoch {
			c.policies.dropCluster(id, w)
		}
	}
	for name, n := range c.nodes {
		if n.epoch != c.epoch {
			c.nodes.set(name, nil, w)
		}
	}
	for i := range uint32(c.pods.list.len()) {
		if p := c.pods.list.at(i); p.name != "" && p.epoch != c.epoch {
			c.pods.drop(i, w)
		}
	}
	for i := range c.namespaces.list {
		if n := &c.namespaces.list[i]; n.labels != nil && n.epoch != c.epoch {
			c.namespaces.setLabels(uint32(i), nil, w)
		}
	}
}

// reserve allocates tables for the objects of a resync, so that they do not grow step by step.
func (c *Cache) reserve(deltas []model.Delta) {
	var pods, policies, namespaces int
	for _, d := range deltas {
		switch d.ID.Kind {
		case model.KindNamespace:
			namespaces++
		case model.KindPod:
			pods++
		case model.KindNetworkPolicy:
			policies++
		default: // there are few
		}
	}
	c.pods.index.reserve(pods)
	c.pods.byAddr.reserve(pods)
	c.namespaces.list = slices.Grow(c.namespaces.list, max(0, namespaces-len(c.namespaces.list)))
	c.policies.list = slices.Grow(c.policies.list, max(0, policies-len(c.policies.list)))
	c.policies.index.reserve(policies)
}
