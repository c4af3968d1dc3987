package cache

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

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

// derive keeps the sets of the pods that have opposite lists, for an address of a pod
// that has, or had, one of them. An address of pods with several lists is in one of the
// sets only: the lists agree about it, and no part of the global table is about the pods
// of another.
func (c *Cache) derive(l *list, a *address) {
	lists := []*list{l}
	var first *list // the one that the global table asks first
	for _, o := range a.owners {
		if o.opp == nil {
			continue
		}
		lists = append(lists, o.opp)
		if first == nil || slices.Compare(o.opp.digest[:], first.digest[:]) < 0 {
			first = o.opp
		}
	}
	for _, l := range lists {
		s := c.setOf(l.podsSet)
		s.derived = true
		if c.put(s, prefixes.Host(a.addr), l == first) {
			c.changedSets[l.podsSet] = struct{}{}
		}
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
	c.locals.Insert(prefixes.Host(ip))
	return a
}

func (c *Cache) dropAddress(a *address) {
	delete(c.addrs, a.addr)
	c.locals.Delete(prefixes.Host(a.addr))
	c.slots[a.slot] = nil
	c.free = append(c.free, a.slot)
	for _, lists := range []map[renderer.Digest]*list{c.own, c.opp} {
		for _, l := range lists {
			l.forget(a.slot)
		}
	}
}
