package cache

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer"
)

// address is an address of at least one local pod.
type address struct {
	addr   netip.Addr
	slot   int // index of what lists say about it
	owners []*pod
}

// canonicalAddrs returns the valid addresses, sorted, without zones.
func canonicalAddrs(in []netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(in))
	for _, a := range in {
		if a.IsValid() {
			out = append(out, a.Unmap().WithZone(""))
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// derive keeps the set of the pods that have an opposite list.
func (c *Cache) derive(l *list, a *address) {
	s := c.setOf(l.podsSet)
	s.derived = true
	member := slices.ContainsFunc(a.owners, func(o *pod) bool { return o.opp == l })
	if c.put(s, hostPrefix(a.addr), member) {
		c.changedSets[l.podsSet] = struct{}{}
	}
}

func (c *Cache) newAddress(ip netip.Addr) *address {
	a := &address{addr: ip}
	if n := len(c.free); n > 0 {
		a.slot, c.free = c.free[n-1], c.free[:n-1]
		c.slots[a.slot] = a
	} else {
		a.slot = len(c.slots)
		c.slots = append(c.slots, a)
	}
	c.addrs[ip] = a
	c.locals.Insert(hostPrefix(ip))
	return a
}

func (c *Cache) dropAddress(a *address) {
	delete(c.addrs, a.addr)
	c.locals.Delete(hostPrefix(a.addr))
	c.slots[a.slot] = nil
	c.free = append(c.free, a.slot)
	for _, lists := range []map[renderer.Digest]*list{c.own, c.opp} {
		for _, l := range lists {
			l.forget(a.slot)
		}
	}
}
