package cache

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"
)

// canonicalAddrs returns the valid addresses, sorted and without zones.
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

// addresses indexes the addresses of the local pods.
type addresses struct {
	all   map[netip.Addr]*address
	tree  bart.Lite // all keys
	slots []*address
	free  []int // slots that no address uses
}

func (x *addresses) add(ip netip.Addr) *address {
	a := &address{addr: ip}
	if n := len(x.free); n > 0 {
		a.slot, x.free = x.free[n-1], x.free[:n-1]
		x.slots[a.slot] = a
	} else {
		a.slot = len(x.slots)
		x.slots = append(x.slots, a)
	}
	x.all[ip] = a
	x.tree.Insert(prefixes.Host(ip))
	return a
}

func (x *addresses) drop(a *address) {
	delete(x.all, a.addr)
	x.tree.Delete(prefixes.Host(a.addr))
	x.slots[a.slot] = nil
	x.free = append(x.free, a.slot)
}

// within calls f for each address in the prefix.
func (x *addresses) within(p netip.Prefix, f func(netip.Addr)) {
	if prefixes.IsHost(p) {
		if a := x.all[p.Addr()]; a != nil {
			f(a.addr)
		}
		return
	}
	for host := range x.tree.Subnets(p) {
		f(host.Addr())
	}
}
