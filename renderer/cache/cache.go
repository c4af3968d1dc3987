package cache

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/renderer/cache/internal/traffic"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Cache combines rules and tracks what the dataplane has acknowledged. Only one goroutine may
// change it. Any goroutine may read the acknowledged state (Installed, InstalledTables, Evaluate);
// a reader waits for at most one step of a change.
type Cache struct {
	// mu is held while the acknowledged state changes, and the sets that its readers use.
	mu sync.RWMutex

	orientation orientation
	resync      *resync // nil outside a resync

	// Staged state.
	pods  map[api.PodID]*pod
	addrs addresses // addresses of the pods
	lists lists     // rule lists of the pods
	sets  sets

	weights weights // without a bound: none

	// Results of the last Compute.
	combiner combiner
	entries  entries
	global   *Table

	stale       stale
	changedPods map[api.PodID]struct{} // since the last Commit
	installed   installed
}

// stale is what has changed since the last Compute.
type stale struct {
	any     bool
	pods    map[api.PodID]*pod // their tables must be rebuilt
	touched map[membershipChange]struct{}
	global  bool
	lists   map[*list]struct{}     // opposite lists whose pods changed
	sets    map[api.SetID]struct{} // sets whose members changed
}

// list marks the pods that an opposite list restricts, and the global table, for another look.
func (s *stale) list(l *list) {
	s.lists[l] = struct{}{}
	s.global = true
}

// pod is the staged state of a local pod.
type pod struct {
	id       api.PodID
	cfg      renderer.PodConfig
	addrs    []*address // sorted by address
	own, opp *list      // nil when unrestricted
	built    *block     // nil before the first Compute
	entry    *entry     // nil when the pod has no table
	weight   *weight    // nil before the first Compute, and without a Bound
}

// membershipChange is a local address that joined or left a set.
type membershipChange struct {
	set  api.SetID
	addr netip.Addr
}

// New returns an empty cache. Its local tables contain the rules of the given direction, combined
// with the rules of the other direction. At most one bound limits what lists take.
func New(direction api.Direction, bounds ...Bound) *Cache {
	o := orientation(direction)
	c := &Cache{
		orientation: o,
		pods:        make(map[api.PodID]*pod),
		addrs:       addresses{all: make(map[netip.Addr]*address)},
		lists:       newLists(o),
		entries:     make(entries),
		stale:       stale{pods: make(map[api.PodID]*pod), touched: make(map[membershipChange]struct{}), lists: make(map[*list]struct{}), sets: make(map[api.SetID]struct{})},
		changedPods: make(map[api.PodID]struct{}),
	}
	c.sets = sets{mu: &c.mu, all: make(map[api.SetID]*set), changed: make(map[api.SetID]struct{}), stale: c.stale.sets}
	c.combiner = combiner{orientation: o, inSet: c.sets.contain, meets: make(map[pair]traffic.Traffic)}
	c.installed = newInstalled(o, c.sets.contained)
	c.weights.bound(c, bounds)
	return c
}

// SetPod stages the configuration of a local pod. The cache keeps the lists; the caller must not
// change them.
func (c *Cache) SetPod(id api.PodID, cfg renderer.PodConfig) {
	c.resync.sawPod(id)
	cfg.IPs = canonicalAddrs(cfg.IPs)
	p := c.pods[id]
	if p == nil {
		p = &pod{id: id}
		c.pods[id] = p
	} else if slices.Equal(p.cfg.IPs, cfg.IPs) && c.orientation.oppRules(p.cfg) == c.orientation.oppRules(cfg) {
		if c.orientation.ownRules(p.cfg) != c.orientation.ownRules(cfg) {
			p.cfg = cfg
			c.setOwn(p)
			c.mark(p)
		}
		return
	}
	c.detach(p)
	p.cfg = cfg
	c.attach(p)
	c.mark(p)
}

// RemovePod stages the removal of a pod. It ignores unknown pods.
func (c *Cache) RemovePod(id api.PodID) {
	p := c.pods[id]
	if p == nil {
		return
	}
	c.detach(p)
	p.cfg = renderer.PodConfig{}
	c.setOwn(p)
	delete(c.pods, id)
	delete(c.stale.pods, id)
	c.entries.bind(p, nil)
	c.stale.any = true
	c.changedPods[id] = struct{}{}
}

// mark schedules the table of a pod to be rebuilt.
func (c *Cache) mark(p *pod) {
	c.stale.any = true
	c.stale.pods[p.id] = p
	c.changedPods[p.id] = struct{}{}
}

// setOwn looks up the own list of a pod in its configuration.
func (c *Cache) setOwn(p *pod) {
	if p.own != nil {
		c.lists.leave(p.own, p)
		p.own = nil
	}
	if l := c.orientation.ownRules(p.cfg); restricts(l) {
		p.own = c.lists.own(l)
		p.own.pods[p.id] = p
	}
}

// attach indexes the addresses and lists of a pod.
func (c *Cache) attach(p *pod) {
	for _, ip := range p.cfg.IPs {
		a := c.addrs.all[ip]
		if a == nil {
			a = c.addrs.add(ip)
		}
		a.owners = append(a.owners, p)
		p.addrs = append(p.addrs, a)
	}
	c.setOwn(p)
	if l := c.orientation.oppRules(p.cfg); restricts(l) {
		p.opp = c.lists.opposite(l)
		p.opp.pods[p.id] = p
		c.stale.list(p.opp)
		for _, a := range p.addrs {
			c.sets.derive(p.opp, a)
		}
	}
}

// detach removes the addresses and the opposite list of a pod from the indexes. Lists without pods
// stay until the next Compute, which needs the pods that they restricted.
func (c *Cache) detach(p *pod) {
	for _, a := range p.addrs {
		a.owners = slices.DeleteFunc(a.owners, func(o *pod) bool { return o == p })
	}
	if l := p.opp; l != nil {
		p.opp = nil
		c.lists.leave(l, p)
		c.stale.list(l)
		for _, a := range p.addrs {
			c.sets.derive(l, a)
		}
	}
	for _, a := range p.addrs {
		if len(a.owners) == 0 {
			c.addrs.drop(a)
			c.lists.forget(a.slot)
		}
	}
	p.addrs = nil
}
