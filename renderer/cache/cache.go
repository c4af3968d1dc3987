package cache

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/renderer/cache/internal/traffic"

	"github.com/gaissmai/bart"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Cache combines rules and remembers what the stack acknowledged. One goroutine changes
// it; any may ask what is acknowledged (Installed, InstalledTables,
// Evaluate), and waits for no more than one step of a change.
type Cache struct {
	mu sync.RWMutex // held where what is acknowledged changes, and the sets that it reads

	orientation api.Direction
	ownPeer     side // the side of own rules that names the peer
	oppPeer     side // likewise for opposite rules

	// What is staged.
	sets   map[api.SetID]*set
	pods   map[api.PodID]*pod
	addrs  map[netip.Addr]*address
	locals bart.Lite // the keys of addrs
	slots  []*address
	free   []int // slots without an address
	own    map[renderer.Digest]*list
	opp    map[renderer.Digest]*list
	naming map[api.SetID]map[*list]struct{} // lists by the sets that they name

	// What the last Compute made of it.
	entries   map[renderer.Digest]*entry
	opposites []*list    // the opposite lists that pods have, sorted by digest
	about     rulesAbout // what rulesAbout returned last
	talkers   []talker   // the addresses of those pods, sorted
	global    *Table
	meets     map[pair]traffic.Traffic
	scratch   []traffic.Traffic

	// What changed since the last Compute.
	dirty        map[api.PodID]*pod // their tables must be built anew
	touched      map[touch]struct{}
	globalDirty  bool
	changedLists map[*list]struct{} // opposite lists whose pods changed
	orphans      []*list            // lists that lost their last pod; it may have come back
	staged       bool

	// What changed since the last Commit.
	changedPods map[api.PodID]struct{}
	changedSets map[api.SetID]struct{}

	installed installed
	resync    *resync
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

// touch is a set that gained or lost a local address.
type touch struct {
	set  api.SetID
	addr netip.Addr
}

// New returns an empty cache. Local tables are made of the rules of the
// orientation, with the rules of the other direction combined into them.
func New(orientation api.Direction) *Cache {
	return &Cache{
		orientation:  orientation,
		ownPeer:      orientation == api.Ingress,
		oppPeer:      orientation == api.Egress,
		sets:         make(map[api.SetID]*set),
		pods:         make(map[api.PodID]*pod),
		addrs:        make(map[netip.Addr]*address),
		own:          make(map[renderer.Digest]*list),
		opp:          make(map[renderer.Digest]*list),
		naming:       make(map[api.SetID]map[*list]struct{}),
		entries:      make(map[renderer.Digest]*entry),
		meets:        make(map[pair]traffic.Traffic),
		dirty:        make(map[api.PodID]*pod),
		touched:      make(map[touch]struct{}),
		changedLists: make(map[*list]struct{}),
		changedPods:  make(map[api.PodID]struct{}),
		changedSets:  make(map[api.SetID]struct{}),
		installed:    newInstalled(),
	}
}

// ownRules and oppRules pick the list of the orientation and of the other direction.
func (c *Cache) ownRules(cfg renderer.PodConfig) *renderer.RuleList {
	if c.orientation == api.Egress {
		return cfg.Egress
	}
	return cfg.Ingress
}

func (c *Cache) oppRules(cfg renderer.PodConfig) *renderer.RuleList {
	if c.orientation == api.Egress {
		return cfg.Ingress
	}
	return cfg.Egress
}

// SetPod stages the configuration of a local pod. The lists are kept and must not
// change.
func (c *Cache) SetPod(id api.PodID, cfg renderer.PodConfig) {
	c.seenPod(id)
	cfg.IPs = canonicalAddrs(cfg.IPs)
	p := c.pods[id]
	if p == nil {
		p = &pod{id: id}
		c.pods[id] = p
	} else if slices.Equal(p.cfg.IPs, cfg.IPs) && c.oppRules(p.cfg) == c.oppRules(cfg) {
		if c.ownRules(p.cfg) != c.ownRules(cfg) {
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
	delete(c.dirty, id)
	c.bind(p, nil)
	c.staged = true
	c.changedPods[id] = struct{}{}
}

// mark has the tables of a pod built anew.
func (c *Cache) mark(p *pod) {
	c.staged = true
	c.dirty[p.id] = p
	c.changedPods[p.id] = struct{}{}
}

// setOwn makes the own list of a pod the one of its configuration.
func (c *Cache) setOwn(p *pod) {
	if p.own != nil {
		c.leave(p.own, p)
		p.own = nil
	}
	if l := c.ownRules(p.cfg); restricts(l) {
		p.own = c.intern(c.own, l, c.ownPeer)
		p.own.pods[p.id] = p
	}
}

// attach makes the addresses and lists of a pod known.
func (c *Cache) attach(p *pod) {
	for _, ip := range p.cfg.IPs {
		a := c.addrs[ip]
		if a == nil {
			a = c.newAddress(ip)
		}
		a.owners = append(a.owners, p)
		p.addrs = append(p.addrs, a)
	}
	c.setOwn(p)
	if l := c.oppRules(p.cfg); restricts(l) {
		p.opp = c.intern(c.opp, l, c.oppPeer)
		p.opp.pods[p.id] = p
		c.changeList(p.opp)
		for _, a := range p.addrs {
			c.derive(p.opp, a)
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
		c.leave(l, p)
		c.changeList(l)
		for _, a := range p.addrs {
			c.derive(l, a)
		}
	}
	for _, a := range p.addrs {
		if len(a.owners) == 0 {
			c.dropAddress(a)
		}
	}
	p.addrs = nil
}

// changeList has the pods that an opposite list restricts, and the global table,
// looked at again.
func (c *Cache) changeList(l *list) {
	c.changedLists[l] = struct{}{}
	c.globalDirty = true
}
