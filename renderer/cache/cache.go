package cache

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/renderer/cache/internal/traffic"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Cache combines rules and remembers what the stack acknowledged. One goroutine changes
// it; any may ask what is acknowledged (Installed, InstalledTables,
// Evaluate), and waits for no more than one step of a change.
type Cache struct {
	mu sync.RWMutex // held where what is acknowledged changes, and the sets that it reads

	orientation orientation
	resync      *resync // nil when there is none

	// What is staged.
	pods  map[api.PodID]*pod
	addrs addresses // of the pods
	lists lists     // of the pods
	sets  sets

	// What the last Compute made of it.
	combiner combiner
	entries  entries
	global   *Table

	stale       stale
	changedPods map[api.PodID]struct{} // since the last Commit
	installed   installed
}

// stale is what changed since the last Compute.
type stale struct {
	any     bool
	pods    map[api.PodID]*pod // their tables must be built anew
	touched map[membershipChange]struct{}
	global  bool
	lists   map[*list]struct{} // opposite lists whose pods changed
}

// list has the pods that an opposite list restricts, and the global table, looked at again.
func (s *stale) list(l *list) {
	s.lists[l] = struct{}{}
	s.global = true
}

// pod is a local pod as staged.
type pod struct {
	id       api.PodID
	cfg      renderer.PodConfig
	addrs    []*address // in order of the address
	own, opp *list      // nil when they do not restrict
	built    *block     // nil before the first Compute
	entry    *entry     // nil when the pod is open
}

// membershipChange is a set that gained or lost a local address.
type membershipChange struct {
	set  api.SetID
	addr netip.Addr
}

// New returns an empty cache. Local tables are made of the rules of the
// orientation, with the rules of the other direction combined into them.
func New(direction api.Direction) *Cache {
	o := orientation(direction)
	c := &Cache{
		orientation: o,
		pods:        make(map[api.PodID]*pod),
		addrs:       addresses{all: make(map[netip.Addr]*address)},
		lists:       newLists(o),
		entries:     make(entries),
		stale:       stale{pods: make(map[api.PodID]*pod), touched: make(map[membershipChange]struct{}), lists: make(map[*list]struct{})},
		changedPods: make(map[api.PodID]struct{}),
	}
	c.sets = sets{mu: &c.mu, all: make(map[api.SetID]*set), changed: make(map[api.SetID]struct{})}
	c.combiner = combiner{orientation: o, inSet: c.sets.contain, meets: make(map[pair]traffic.Traffic)}
	c.installed = newInstalled(o, c.sets.contained)
	return c
}

// SetPod stages the configuration of a local pod. The lists are kept and must not
// change.
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

// RemovePod stages the removal of a pod. Removing an unknown pod does nothing.
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

// mark has the tables of a pod built anew.
func (c *Cache) mark(p *pod) {
	c.stale.any = true
	c.stale.pods[p.id] = p
	c.changedPods[p.id] = struct{}{}
}

// setOwn makes the own list of a pod the one of its configuration.
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

// attach makes the addresses and lists of a pod known.
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

// detach forgets the addresses and the opposite list of a pod. Lists without pods
// stay until the next Compute, which must know whom they restricted.
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
