package cache

import (
	"slices"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Cache combines rules and tracks what the dataplane has acknowledged. Only one goroutine may
// change it. Any goroutine may read the acknowledged state (Installed, InstalledTables, Evaluate);
// a reader waits for at most one step of a change.
type Cache struct {
	// mu is held while the acknowledged state changes, and the sets that its readers use.
	mu sync.RWMutex

	resync *resync // nil outside a resync
	staged
	admission admission

	// Results of the last Compute.
	entries entries
	global  *Table

	installed installed
}

// New returns an empty cache. Its local tables contain the rules of the given direction, combined
// with the rules of the other direction. At most one bound limits what lists take.
func New(direction api.Direction, bounds ...Bound) *Cache {
	o := orientation(direction)
	c := &Cache{entries: make(entries)}
	c.reset(o, &c.mu)
	c.installed = newInstalled(o, c.sets.contained)
	c.admission.bound(&c.staged, bounds)
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

// setOwn looks up the own list of a pod in its configuration.
func (c *Cache) setOwn(p *pod) {
	if p.own != nil {
		c.lists.leave(p.own, p)
		p.own = nil
	}
	if l := c.orientation.ownRules(p.cfg); l.Restricts() {
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
	if l := c.orientation.oppRules(p.cfg); l.Restricts() {
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
